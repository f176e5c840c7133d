// Package fabric is a region's log store: an embedded NATS JetStream server without
// a listener, one stream and one writer per log, and a barrier that lets an
// acknowledgement out only after the disk has the record. Everything of NATS stays
// in here; the other packages see the interfaces of package regions.
//
// All exported methods are safe for concurrent use.
package fabric
