package regions

import "errors"

// ErrOutOfOrder: a batch does not start where the copy ends. The sender asks for the
// cursor and goes on from there.
var ErrOutOfOrder = errors.New("batch does not start at the copy's cursor")

// ErrIncarnation: the batch comes from another incarnation of the log than the copy
// holds. A decision for a person, never a wait.
var ErrIncarnation = errors.New("log incarnation differs from the copy's")
