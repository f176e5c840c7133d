package regions

import "time"

// Writes says how many logs a topic has.
type Writes string

// The two ways to write.
const (
	WritesLocal Writes = "local" // one log per region that may hold records
	WritesHome  Writes = "home"  // one log, at the topic's home
)

// Topic is what producers and consumers name. The field tags are the manifest's.
// After the manifest is loaded Regions and Mirror are explicit lists.
type Topic struct {
	Name       string      `yaml:"-"`
	Writes     Writes      `yaml:"writes"`
	Home       string      `yaml:"home"`    // writes: home only
	Regions    []string    `yaml:"regions"` // writes: local only; empty: every region
	Mirror     []string    `yaml:"mirror"`  // regions that get copies; ["all"]: every region; empty: none
	Retention  Retention   `yaml:"retention"`
	Durability string      `yaml:"durability"` // "disk" or Relaxed
	Batch      Batch       `yaml:"batch"`
	Route      string      `yaml:"route"` // RouteHome or RouteWithinBoundary
	Hold       bool        `yaml:"hold"`  // retention waits until every copy has the record, at the latest until max_bytes
	Quota      Quota       `yaml:"quota"` // of publishes in each region
	Sync       *Sync       `yaml:"sync"`  // nil: an ack waits for the home alone
	Failover   Failover    `yaml:"failover"`
	OnHomeLoss *OnHomeLoss `yaml:"on_home_loss"`
}

// Relaxed is the durability of a topic whose records are acknowledged when they are
// written and before they are synced, where the region can tell the two apart.
const Relaxed = "relaxed"

// Where a record goes whose log has its home elsewhere.
const (
	RouteHome           = "home"            // to that home, or nowhere
	RouteWithinBoundary = "within_boundary" // while that home is cut off, to another log of its boundary
)

// Retention bounds a log. Both bounds apply; zero age means no age bound.
type Retention struct {
	MaxAge   time.Duration `yaml:"max_age"`
	MaxBytes Size          `yaml:"max_bytes"`
}

// MaxBatchRecords is how many records the mirror sends at once at most.
const MaxBatchRecords = 4096

// Batch bounds what the mirror sends at once: by count, by bytes and by time.
type Batch struct {
	Records int           `yaml:"records"`
	Bytes   int           `yaml:"bytes"`
	Linger  time.Duration `yaml:"linger"`
}

// Sync makes an acknowledgement wait for copies inside a boundary.
type Sync struct {
	Within    string `yaml:"within"`     // the boundary of the home and of these copies
	Copies    int    `yaml:"copies"`     // regions that have the record before it is acknowledged, its home included
	WhenShort string `yaml:"when_short"` // "refuse": what is published while a copy is missing
}

// OnHomeLoss says in advance what producers and consumers get while a topic that
// cannot fail over has lost its home.
type OnHomeLoss struct {
	Producers string    `yaml:"producers"` // "refuse"
	Consumers Consumers `yaml:"consumers"`
	Owner     string    `yaml:"owner"` // who to ask
	Text      string    `yaml:"text"`  // what people are told
}

// Consumers is what a reader gets while the home is lost: wait, stop, or a read
// copy that is at most MaxStaleness behind. In the manifest: wait, stop, or
// read_copy with max_staleness beside it.
type Consumers struct {
	Mode         string        `yaml:"mode"` // "wait", "read_copy" or "stop"
	MaxStaleness time.Duration `yaml:"max_staleness"`
}
