// Package divergence is what people do about the records that a region holds beyond the end
// of an epoch: look at them, publish them anew through the same path as any record, or put
// on record that they are not wanted. What became of each is kept in a journal beside the
// store, so that every step can be done again after a crash.
package divergence
