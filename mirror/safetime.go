package mirror

import (
	"time"

	"domicile/regions"
)

// maxClosings bounds how many heads ahead of the cursor are remembered.
const maxClosings = 16

// closing says: a log that ends at head holds everything stamped before at.
type closing struct {
	head     uint64
	headTime time.Time
	at       time.Time
}

// knowledge is what a target knows of one log: how far its copy is, what the origin
// said, and the safe time that follows. It is a value with rules, no locks: the rules
// are what the lag figures stand on.
//
// A time T is safe when every record of the log stamped before T is in the copy, or
// accounted for by a gap in it.
type knowledge struct {
	// the copy
	incarnation string
	cursor      uint64
	cursorTime  time.Time
	// the origin, by its last mark
	heard    bool // a mark came in this run
	listed   bool // since the peer's last complete round: its link-wide instant counts
	mark     regions.LogMark
	closings []closing // heads the copy has not reached, ascending
	alarm    trouble   // why nothing the origin says is believed
	clock    time.Time // the latest that the origin's clock can read; zero: not known
	safe     time.Time // zero: none
}

// ahead reports whether a stamp lies ahead of the origin's clock, as those do that it
// gives after its clock was set back, until it has come up with them. They are in order,
// and say nothing of when.
func (k *knowledge) ahead(stamp time.Time) bool { return !k.clock.IsZero() && stamp.After(k.clock) }

// applied takes in where the copy ends now. The stamp of its last item is safe by
// itself: stamps never go back within a log.
func (k *knowledge) applied(incarnation string, cursor uint64, at time.Time) {
	k.incarnation, k.cursor, k.cursorTime = incarnation, cursor, at
	if !at.IsZero() && !k.ahead(at) {
		k.raise(at)
	}
	k.reach()
}

func (k *knowledge) raise(t time.Time) {
	if t.After(k.safe) {
		k.safe = t
	}
}

// marked takes in one log's mark.
func (k *knowledge) marked(m regions.LogMark) {
	k.heard, k.listed, k.mark = true, true, m
	if k.alarm.alarm() {
		return
	}
	if k.cursor > 0 && m.Incarnation != k.incarnation {
		k.closings = k.closings[:0]
		k.alarm = trouble{regions.LagIncarnation, "the copy is of incarnation " + k.incarnation + ", the log is " + m.Incarnation}
		return
	}
	if !m.Closed.IsZero() && m.Closed.Before(k.safe) {
		// Only a home that was restarted with its clock set back takes its word back:
		// records that are stamped before what it promised may come now.
		if k.safe, k.closings = k.cursorTime, k.closings[:0]; k.ahead(k.safe) {
			k.safe = time.Time{}
		}
	}
	k.closes(closing{m.Head, m.HeadTime, m.Closed})
}

// instant takes in a link-wide instant: the log is as it was listed last.
func (k *knowledge) instant(at time.Time) {
	if k.listed && !at.IsZero() && !k.alarm.alarm() {
		k.closes(closing{k.mark.Head, k.mark.HeadTime, at})
	}
}

// disconnected: messages may be lost from here on; what was listed counts no more.
func (k *knowledge) disconnected() { k.listed = false }

// closes notes a closing. One that the copy is past already says nothing new: the
// record after its head was stamped at or after it.
func (k *knowledge) closes(c closing) {
	if c.at.IsZero() || c.head < k.cursor {
		return
	}
	n := len(k.closings)
	switch {
	case n > 0 && k.closings[n-1].head == c.head:
		k.closings[n-1] = c
	case n > 0 && k.closings[n-1].head > c.head:
		return // the origin went back: the open will tell
	case n == maxClosings:
		k.closings[n-1] = c
	default:
		k.closings = append(k.closings, c)
	}
	k.reach()
}

// reach applies the closings that the copy has come to. Only a closing whose head is
// exactly the copy's last record counts, and only if both were stamped alike: else
// the origin was set back and holds other records under these sequences.
func (k *knowledge) reach() {
	n := 0
	for n < len(k.closings) && k.closings[n].head < k.cursor {
		n++
	}
	k.closings = append(k.closings[:0], k.closings[n:]...)
	if len(k.closings) == 0 || k.closings[0].head != k.cursor {
		return
	}
	c := k.closings[0]
	if k.cursor > 0 && !sameStamp(c.headTime, k.cursorTime) {
		k.closings = k.closings[:0]
		k.alarm = trouble{regions.LagCursorAhead, "the origin's last record was stamped at another time than the copy's: the log was set back"}
		return
	}
	k.raise(c.at)
}
