// Package clock decides whether a node's own clock is to be believed. It is one pure
// decision, evidence in and verdict out: whatever acts by age or by an instant asks it.
package clock

import (
	"fmt"
	"strings"
	"time"

	"domicile/regions"
)

// The bounds of the decision.
const (
	Apart = time.Minute      // clocks that are further apart do not agree
	Gap   = time.Hour        // the longest stop over a boot of the machine that is believed unasked
	Fresh = 10 * time.Minute // how long a peer's clock counts after the peer was last heard
	sharp = 30 * time.Second // a peer's offset with a larger error says nothing
)

// Reading is what a node's clocks read at one moment. Up counts within Boot alone, also
// while the machine is suspended.
type Reading struct {
	At   time.Time     `json:"at"`
	Boot string        `json:"boot"`
	Up   time.Duration `json:"up"`
	// Against is by how many peers the clock was contradicted that have not agreed since.
	Against int `json:"against,omitempty"`
	// Guessed: the clock was ahead of At over a boot of the machine, and how long that took
	// nobody counted. It may be right.
	Guessed bool `json:"guessed,omitempty"`
}

// Peer is another region's clock as it was measured on a link.
type Peer struct {
	Region string
	Offset time.Duration // its clock minus ours
	Error  time.Duration // ±
	Known  bool          // it was measured in this run
	Age    time.Duration // since the peer was last heard
}

// Evidence is all that is known of a clock.
type Evidence struct {
	Now   Reading
	Last  Reading // of the store, when it last ran, or was looked at; zero: not known
	Fresh bool    // the store holds nothing yet

	Machine time.Time // the machine's own clock now; zero: not known
	Synced  bool      // the kernel calls it synchronised
	Peers   []Peer
	// The span of the node's own certificate; zero: it has none.
	NotBefore, NotAfter time.Time
	// Checked: a person compared the clock with a good one when this run began.
	Checked bool
}

// Verdict is what is decided of a clock. The zero verdict is that it is believed.
type Verdict struct {
	Doubt  bool
	Reason string // why, in words
	Clears string // what ends the doubt
	// Off is what the clock has to be corrected by to go on from when the store last ran:
	// stamps that are given in doubt follow that. 0: it goes on from there, or is believed.
	Off     time.Duration
	Against int // for the next Reading
}

const (
	clearsAtStart = "start the node again: it reads the machine's clock when it starts"
	clearsAlone   = "it ends by itself once the kernel calls the machine's clock synchronised, or two or more peers, " +
		"and most of those that answer, agree with it"
	clearsPerson = clearsAlone + ", or once the node is started again after its machine was suspended; " +
		"where neither can be, set the machine's clock right, write clock: {at: THE TIME, reason: TEXT} into node.yaml " +
		"and start the node within the hour"
)

// Judge decides. No single peer's word raises doubt where another or the kernel speaks for
// the clock, and none ends it: a peer can agree with whatever it is asked. What was believed
// of the clock when the store last ran stands until somebody agrees with something else.
func Judge(e *Evidence) Verdict {
	agree, against, who := e.votes()
	doubt := func(clears, reason string, args ...any) Verdict {
		return Verdict{Doubt: true, Reason: fmt.Sprintf(reason, args...), Clears: clears, Off: -e.drift(),
			Against: e.contradicted(agree, against)}
	}
	away := time.Duration(0)
	if !e.Machine.IsZero() {
		away = e.Now.At.Round(0).Sub(e.Machine.Round(0))
	}
	stepped := away.Abs() > Apart
	switch most := agree >= 2 && agree > against; {
	case e.Synced && stepped:
		return doubt(clearsAtStart, "it is %s the machine's, which the kernel calls synchronised", beside(away))
	case against >= 2 && against > agree && !e.Checked:
		return doubt(clearsPerson, "of %d peers that answer %d are away from it: %s", agree+against, against, who)
	case e.Synced || most || e.Checked:
		return Verdict{}
	case against > agree:
		return doubt(clearsPerson, "the only peer that answers is away from it, and nobody can tell which is right: %s", who)
	case e.contradicted(agree, against) > 0:
		return doubt(clearsPerson, "peers were away from it when they were last heard, and have not agreed since")
	case e.Last.At.IsZero() && !e.Fresh:
		return doubt(clearsPerson, "the store does not say when it last ran")
	case e.drift() != 0:
		return doubt(clearsPerson, "it is %s where the store's last run has it", beside(e.drift()))
	case !e.NotAfter.IsZero() && (e.Now.At.Before(e.NotBefore) || e.Now.At.After(e.NotAfter)):
		return doubt(clearsPerson, "it lies outside the span of the node's own certificate, %s to %s",
			e.NotBefore.UTC().Format(time.RFC3339), e.NotAfter.UTC().Format(time.RFC3339))
	case stepped:
		return doubt(clearsAtStart, "it is %s the machine's, which was set since the node started", beside(away))
	}
	return Verdict{}
}

// drift is how far the clock is from where it should be since Last. 0: not so far that it is
// not to be believed, or nothing is known. Over a boot nobody counted, so it may only have
// gone on, and not far.
func (e *Evidence) drift() time.Duration {
	if e.Last.At.IsZero() {
		return 0
	}
	d := e.Now.At.Round(0).Sub(e.Last.At)
	ahead := Gap
	if e.Now.Boot == e.Last.Boot {
		d, ahead = d-(e.Now.Up-e.Last.Up), Apart
	}
	if -Apart <= d && d <= ahead {
		return 0
	}
	return d
}

// votes counts the peers whose clocks are known well enough, and names who is away.
func (e *Evidence) votes() (agree, against int, who string) {
	var away []string
	for _, p := range e.Peers {
		switch {
		case !p.Known || p.Age > Fresh || p.Error > sharp:
		case p.Offset.Abs() <= Apart+p.Error:
			agree++
		default:
			against++
			away = append(away, p.Region+" by "+regions.Span(p.Offset.Abs()))
		}
	}
	return agree, against, strings.Join(away, ", ")
}

// contradicted is by how many peers the clock stands contradicted. Their silence takes
// nothing back; one that was alone with it is outweighed by one other.
func (e *Evidence) contradicted(agree, against int) int {
	switch last := e.Last.Against; {
	case against > agree:
		return max(against, last)
	case last == 1 && agree > 0, agree >= 2 && agree > against:
		return 0
	default:
		return last
	}
}

func beside(d time.Duration) string {
	if d > 0 {
		return regions.Span(d) + " ahead of"
	}
	return regions.Span(d.Abs()) + " behind"
}
