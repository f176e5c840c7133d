// Package syncset makes an acknowledgement wait until more than one region has the record
// on disk. It knows no transport: it is told what other regions confirm, and how far a log
// is common, and shows the log up to there and no further.
package syncset
