package gateway

import (
	"context"
	"time"

	"domicile/api"
	"domicile/regions"
)

// Defaults and bounds of one batch of a reader.
const (
	DefaultReadRecords = 500
	MaxReadRecords     = 5_000
	DefaultReadBytes   = 1 << 20
	MaxReadBytes       = 2 << 20
)

// ReadRequest says what to read and from where. At most one of Position, Time and
// Latest is set; none of them means from the oldest record that is here.
type ReadRequest struct {
	Topic    string
	Slot     string       // one log of the topic; "": all that are here
	Position api.Position // as an ack or a batch gave it; logs it does not name start at their oldest record
	Time     time.Time    // ingest time
	Latest   bool         // only what comes from now on
	Follow   bool         // go on at the end, with a batch at least every second
	Records  int          // per batch; 0: DefaultReadRecords
	Bytes    int          // per batch; 0: DefaultReadBytes
}

// ReadRecord is one record as a reader gets it.
type ReadRecord struct {
	Log  api.LogID
	Item regions.Item // never a gap
}

// LogState is how far behind this region's copy of a log is, and what was left out.
type LogState struct {
	Lag        regions.Lag // of this region's copy; of a home log State is LagHome
	Unreadable uint64      // records that this reader may not see, so far in this stream
	Expired    uint64      // sequences that retention took before they were read, so far in this stream
	Diverged   uint64      // sequences beyond the end of an epoch that were given out, so far in this stream, or before its position
	Cursor     uint64      // of this stream
}

// Batch is one step of a reader: records in order per log, the state of every log of
// the union, and where to go on.
type Batch struct {
	Records  []ReadRecord
	Logs     []LogState
	Position api.Position
}

// Read gives a topic's local logs to send, batch by batch, until their ends or, with
// Follow, until ctx ends. send runs on this goroutine and may block; what it got is
// its own. The topic's on_home_loss is obeyed for every copy whose home is
// unreachable.
func (g *Gateway) Read(ctx context.Context, q ReadRequest, who regions.Principal, send func(Batch) error) error {
	s, err := g.openStream(ctx, q, who)
	if err != nil {
		return err
	}
	defer s.close()
	tick := time.NewTicker(g.Pace.Of(time.Second))
	defer tick.Stop()
	due := true // a batch is due even if it is empty: the reader learns where it is
	for {
		moved, err := s.round(ctx, send, due)
		if err != nil {
			return err
		}
		due = false
		if moved {
			continue
		}
		if !q.Follow {
			return nil
		}
		if due, err = s.wait(ctx, tick.C); err != nil {
			return err
		}
		if due {
			if err := s.refresh(ctx, false); err != nil {
				return err
			}
		}
	}
}
