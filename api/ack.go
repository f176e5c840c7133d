package api

import "time"

// Durability names what was really done before an acknowledgement was sent.
type Durability string

// The durabilities a fabric can report.
const (
	Disk1    Durability = "disk-1"    // on the disk of the one node of a solo region
	Disk2of3 Durability = "disk-2of3" // on the disks of at least two of the three nodes of a quorum region
	OS1      Durability = "os-1"      // written on one node and not synced: a kill leaves it, a power cut may not
)

// Ack says exactly what is durable, and where. It is sent only after the barrier
// named by Durability.
type Ack struct {
	ID             string // the event id the record is stored under
	IDMade         bool   // the gateway made the id: a retry without it is a new record
	Topic          string
	Log            LogID
	Region         string // whose disk holds it
	Incarnation    string
	Epoch          Epoch // zero, as WriterTerm and Position, if not known any more: of a duplicate that retention took
	WriterTerm     uint64
	Sequence       uint64
	IngestTime     time.Time // stamped by the log's writer
	Durability     Durability
	Duplicate      bool     // the id was already durable; nothing was stored by this call
	Forwarded      bool     // stored by another region than the one that was asked
	EventTimeOdd   bool     // event time further than EventTimeSlack from ingest
	PolicyRevision string   // of the decision that admitted it at its home
	Copies         []string // other regions on whose disks it is as well, where the topic waits for them
	Unconfirmed    bool     // durable there, but the placement authority has been out of reach for 10 s, or the log is being taken away: a forced failover would make it void. Its absence is no promise for the last 10 s
	Drill          string   // id of a drill that held links of the region that was asked; "": of none
	Position       Position
}
