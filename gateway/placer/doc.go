// Package placer is a region's side of the placement authority. It follows what was
// decided, lays it over the manifest for everyone who asks where a log is, holds the
// region's leases, takes the region's own logs to the authority, and stands before each
// record of a log that may move: it is stored only while the region may write the log, and
// acknowledged only if it still may then.
//
// How the authority is reached is not known here, nor where records lie. Logs that never
// move do not come here at all.
package placer
