// Package loss says what a forced move of a log left behind: at the cut from what the new
// home was told of it, and once the old home is back from what it has. Both are pure
// functions of what is handed in. What is not known is said to be unknown, in ranges and
// in time, and is never counted as nothing.
package loss
