package drill

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"domicile/api"
	"domicile/chaos/drill/history"
	"domicile/regions"
	"domicile/regions/strict"
)

// Plan is a drill as it is written in its file. The field tags are the file's.
type Plan struct {
	Isolate   string        `yaml:"isolate"`   // region
	Peers     []string      `yaml:"peers"`     // regions that it is cut off from
	Planes    []string      `yaml:"planes"`    // control, data, council, gossip
	Direction string        `yaml:"direction"` // both, or in or out as seen from the isolated region
	Fault     string        `yaml:"fault"`     // cut or blackhole
	Gate      string        `yaml:"gate"`      // process, or nftables: in the nodes' kernels
	Baseline  time.Duration `yaml:"baseline"`  // watched before the cut
	For       time.Duration `yaml:"for"`       // the cut
	Lease     time.Duration `yaml:"lease"`     // of the cut; it is renewed three times in that time
	CatchUp   time.Duration `yaml:"catch_up"`  // within which copies have caught up after it
	Reason    string        `yaml:"reason"`    // kept in the regions' audits
	// ConfirmAbove is how many real records may be refused or delayed before somebody has
	// to say yes.
	ConfirmAbove uint64     `yaml:"confirm_above"`
	Feeds        []Feed     `yaml:"feeds"`    // what the drill itself publishes
	Exercise     []Exercise `yaml:"exercise"` // logs that really move; none: everything is only asked
	StopWhen     StopWhen   `yaml:"stop_when"`
	Expect       []Expect   `yaml:"expect"`
	Bounds       Bounds     `yaml:"bounds"`
}

// Feed is a steady row of records at one region's door.
type Feed struct {
	Region string            `yaml:"region"`
	Topic  string            `yaml:"topic"`
	Tags   map[string]string `yaml:"tags"`
	Rate   int               `yaml:"rate"` // records a second
	Size   int               `yaml:"size"` // bytes of each body
}

// Exercise is a log that is moved during the cut by force, and moved back afterwards.
type Exercise struct {
	Topic string `yaml:"topic"`
	Log   string `yaml:"log"` // which of the topic's logs; "": its only one
	To    string `yaml:"to"`
	// Move is the id of the move's own plan where people have to approve it: they sign it
	// before the drill begins, and home and target check that as of any move. "": nobody has to.
	Move string `yaml:"move,omitempty"`
}

// StopWhen is what ends the cut early. A fault that is not the drill's always does.
type StopWhen struct {
	StorageAbove int           `yaml:"storage_above"` // percent of a region's store that is used
	RoomBelow    time.Duration `yaml:"room_below"`    // time until retention overtakes a copy
	AckP99       time.Duration `yaml:"ack_p99"`       // what 99 of 100 acks of the last seconds took at most; 0: however long
}

// Expect is what the failover rules have to answer.
type Expect struct {
	Topic  string `yaml:"topic"`
	Log    string `yaml:"log"`
	Target string `yaml:"target"`
	At     string `yaml:"at"`   // before, 0, rpo/2, rpo, 2rpo, healed or every
	Want   string `yaml:"want"` // allowed or denied
	Why    string `yaml:"why"`  // of a denial: residency, lag, never …; "": any
}

// Bounds are how far what regions say may be off.
type Bounds struct {
	Busy  time.Duration `yaml:"busy"`  // a lag, while records flow
	Idle  time.Duration `yaml:"idle"`  // a lag, while none do
	Clock time.Duration `yaml:"clock"` // how far below the truth a lag may be
	See   time.Duration `yaml:"see"`   // within which both sides see the cut
}

// Planes and faults that a plan may name are the node's; it refuses others when it is
// armed. Bounds of what is only the controller's:
const (
	maxBaseline = time.Hour
	maxCatchUp  = 24 * time.Hour
	maxFeeds    = 200
	maxRate     = 20_000
	maxSize     = 1 << 20
	maxPlan     = 1 << 20 // bytes of a plan's file
)

// gateFilter is the gate that older nodes do not know.
const gateFilter = "nftables"

// NewPlan is a plan with every default, which names no region.
func NewPlan() Plan {
	return Plan{Planes: []string{"control", "data", "council", "gossip"}, Direction: "both", Fault: "blackhole", Gate: "process", Baseline: time.Minute, For: time.Minute, Lease: 10 * time.Second,
		CatchUp: 5 * time.Minute, ConfirmAbove: 1_000, StopWhen: StopWhen{StorageAbove: 90, RoomBelow: time.Minute, AckP99: 2 * time.Second},
		Bounds: Bounds{Busy: 300 * time.Millisecond, Idle: 1300 * time.Millisecond, Clock: 200 * time.Millisecond, See: 5 * time.Second}}
}

// Last sets how long the cut lasts, its lease, and the time before it; 0 leaves what is
// there. A lease that was not given is shortened to fit.
func (p *Plan) Last(cut, lease, baseline time.Duration) {
	p.For, p.Baseline = cmp.Or(cut, p.For), cmp.Or(baseline, p.Baseline)
	p.Lease = cmp.Or(lease, min(p.Lease, p.For))
}

// Load reads a plan's file. digest stands for exactly these bytes.
func Load(path string) (p Plan, digest string, err error) {
	text, err := os.ReadFile(path)
	if err == nil && len(text) > maxPlan {
		err = fmt.Errorf("%d bytes, at most %d", len(text), maxPlan)
	}
	if err != nil {
		return Plan{}, "", &api.Error{Code: api.ConfigInvalid, Op: "read drill plan", Field: "plan", Value: path, Err: err, Hint: "domicile drill plan isolate REGION writes one"}
	}
	p = NewPlan()
	p.Planes = nil // a list in the file replaces the default
	if err := strict.Decode(path, text, &p); err != nil {
		return Plan{}, "", err
	}
	if p.Planes == nil {
		p.Planes = NewPlan().Planes
	}
	sum := sha256.Sum256(text)
	return p, hex.EncodeToString(sum[:8]), p.Check()
}

// Check refuses what cannot be meant, with the field. What the federation permits is asked
// of it when the drill is armed.
func (p *Plan) Check() error {
	bad := func(field, value, hint string) error {
		return &api.Error{Code: api.ConfigInvalid, Op: "check drill plan", Field: field, Value: value, Hint: hint}
	}
	switch {
	case p.Isolate == "":
		return bad("isolate", "", "name the region that is cut off")
	case len(p.Peers) == 0:
		return bad("peers", "", "name the regions that it is cut off from")
	case p.Baseline <= 0 || p.Baseline > maxBaseline:
		return bad("baseline", p.Baseline.String(), "up to "+regions.Span(maxBaseline))
	case p.For <= 0 || p.For < p.Lease:
		return bad("for", p.For.String(), "at least the lease, "+p.Lease.String())
	case p.CatchUp <= 0 || p.CatchUp > maxCatchUp:
		return bad("catch_up", p.CatchUp.String(), "up to "+regions.Span(maxCatchUp))
	case strings.TrimSpace(p.Reason) == "":
		return bad("reason", "", "say why: it is kept in the audits")
	case len(p.Feeds) > maxFeeds:
		return bad("feeds", fmt.Sprint(len(p.Feeds)), fmt.Sprintf("at most %d", maxFeeds))
	case p.StopWhen.AckP99 < 0:
		return bad("stop_when.ack_p99", p.StopWhen.AckP99.String(), "a time, or 0 for none")
	case p.StopWhen.StorageAbove < 1 || p.StopWhen.StorageAbove > 100:
		return bad("stop_when.storage_above", fmt.Sprint(p.StopWhen.StorageAbove), "percent, 1 to 100")
	}
	for i, f := range p.Feeds {
		if f.Region == "" || f.Topic == "" || f.Rate < 1 || f.Rate > maxRate || f.Size < 0 || f.Size > maxSize {
			return bad(fmt.Sprintf("feeds[%d]", i), f.Region+" "+f.Topic, fmt.Sprintf("region, topic, a rate of 1 to %d and a size up to %s", maxRate, regions.Bytes(int64(maxSize))))
		}
	}
	for i, x := range p.Exercise {
		if x.Topic == "" || x.To == "" || x.To == p.Isolate {
			return bad(fmt.Sprintf("exercise[%d]", i), x.Topic, "a topic, and a region to move its log to that is not the isolated one")
		}
	}
	return p.checkExpect(bad)
}

func (p *Plan) checkExpect(bad func(field, value, hint string) error) error {
	moments := []string{history.Before, history.AtCut, history.HalfRPO, history.AtRPO, history.TwiceRPO, history.AfterHeal, history.Always}
	for i, e := range p.Expect {
		field := fmt.Sprintf("expect[%d]", i)
		switch {
		case e.Topic == "":
			return bad(field+".topic", "", "name the topic")
		case !slices.Contains(moments, e.At):
			return bad(field+".at", e.At, strings.Join(moments, ", "))
		case e.Want != history.Allowed && e.Want != history.Denied:
			return bad(field+".want", e.Want, "allowed or denied")
		case slices.ContainsFunc(p.Exercise, func(x Exercise) bool { return x.Topic == e.Topic }) && !slices.Contains([]string{history.Before, history.AtCut, history.AfterHeal}, e.At):
			return bad(field+".at", e.At, "the topic is exercised, so its log is elsewhere by then: expect it before, at 0 or healed, or not at all")
		case e.Want == history.Allowed && e.Why != "":
			return bad(field+".why", e.Why, "only of a denial")
		}
	}
	return nil
}

// Encode writes the plan as Load reads it.
func (p *Plan) Encode() ([]byte, error) { return strict.Encode(p) }
