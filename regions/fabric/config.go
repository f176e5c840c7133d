package fabric

import (
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/clock"
)

// The fixed bounds of a fabric.
const (
	AppendDeadline = 5 * time.Second // at pace 1: an append not decided by then is OUTCOME_UNKNOWN
	MaxQueued      = 16384           // records one log's writer holds, over it: OVERLOADED
	MaxQueuedBytes = 64 << 20        // their bytes, per log
	MaxHeldBytes   = 512 << 20       // bytes all writers of a fabric hold together

	burstRecords = 1000        // one fast batch
	burstBytes   = 4 << 20     // one fast batch; one record may exceed it
	lazySync     = time.Second // at pace 1: the longest that a written record waits for its sync

	headroom = 1 << 20 // of a stream, for control messages when the log is full
)

// Config is what a fabric is opened with. Region, Federation, Dir and MaxStore have
// to be given.
type Config struct {
	Region     string
	Federation string
	Dir        string   // of its own; a volume of its own keeps other writers out of the sync
	Lodgers    []string // names in Dir that are not the store's and may be there before it
	MaxStore   int64    // bytes the broker may use; at least the sum of the logs' MaxBytes plus 1 MiB each
	Clock      regions.Clock
	Boot       regions.BootClock // within one boot of the machine; nil: the system's if Clock is, else what Clock counts
	// Evidence is what the node knows of Clock beyond what the store does; nil: nothing. It
	// must not block.
	Evidence func() clock.Evidence
	Pace     regions.Pace
	Logger   *slog.Logger
	Cluster  *Cluster // nil: a solo region
	Hooks    Hooks

	arrival *moveMark // of the move that fills the store; nil: it is nobody's target
}

// Hooks watch and break a fabric from Go code, for tests and self-checks. No file and
// no command can set them. They run on the fabric's own goroutines and must not block.
type Hooks struct {
	// Sync replaces the real sync of the data volume.
	Sync func(dir *os.File) error
	// NoBarrier releases appends without any sync.
	NoBarrier bool
	// NoDedupe forgets that an id is durable: a record sent again is stored again.
	NoDedupe bool
	// Written is told that the broker has taken a log's records up to sequence.
	Written func(log api.LogID, sequence uint64)
	// Released is told, just before the callers are, that records up to sequence are
	// about to be acknowledged.
	Released func(log api.LogID, sequence uint64)
	// DropAck makes the writer miss the broker's answer to a batch when it is true.
	DropAck func(log api.LogID) bool
	// Wire wraps the writers' connection to the broker; it may hold back what passes.
	Wire func(net.Conn) net.Conn
	// Step is told of each step of a purge, a deletion or a move once it is done.
	Step func(step string)
	// Free replaces the question to the file system how much of it is free.
	Free func(dir string) (free, total int64, err error)
	// BootID replaces the kernel's boot id.
	BootID string
}

// durability is what an acknowledgement of this fabric means.
func (c *Config) durability() api.Durability {
	if c.Cluster != nil {
		return api.Disk2of3
	}
	return api.Disk1
}

// Syncfs is the real sync: it returns when all of the volume that dir lies on is on
// disk, or with the first write-back error since dir was opened.
func Syncfs(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) }

func (c *Config) fill() error {
	for _, f := range []struct{ name, value string }{{"region", c.Region}, {"federation", c.Federation}, {"dir", c.Dir}} {
		if f.value == "" {
			return refuse(f.name, "", "the fabric needs it", nil)
		}
	}
	if c.MaxStore <= 0 {
		return refuse("max_store", "", "say in bytes how much of the disk the region may use", nil)
	}
	if c.Cluster != nil {
		if err := c.Cluster.check(); err != nil {
			return err
		}
	}
	if c.Clock == nil {
		c.Clock = regions.NewSteadyClock()
		if c.Boot == nil {
			c.Boot = regions.SystemBootClock
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Hooks.Sync == nil {
		c.Hooks.Sync = Syncfs
	}
	if c.Hooks.Free == nil {
		c.Hooks.Free = Statfs
	}
	return nil
}

// LogConfig is what a log is opened with.
type LogConfig struct {
	ID    api.LogID
	Epoch api.Epoch // of a home's new records; copies take the epoch from their items
	// NotBefore holds the stamps of a home that opens an epoch: what the home before it may
	// have called closed lies before it. Zero: nothing is known of another home.
	NotBefore time.Time
	// Sealed opens a home whose epoch has ended here, for it to be read and mirrored from up
	// to there: it takes no record, and the epoch does not go on.
	Sealed bool
	// Incarnation of the log, for an empty copy that becomes a home: nothing here tells it.
	Incarnation string
	// History is what the authority says of the log's epochs. A copy that is opened with it
	// goes by it as after Learn; a home whose epoch it ends may be opened as a copy.
	History regions.History
	// MaxBytes is what the log may hold, in bytes as the broker counts them. At it,
	// appends are refused with STORAGE_FULL until the sweeper has made room.
	MaxBytes int64
	// MaxAge is how long a record is kept after its ingest; 0: no bound by age.
	MaxAge time.Duration
	// Relaxed acknowledges a home's records once the broker has written them, os-1; they are
	// synced, and seen by readers and mirrors, within about a second. Copies stay as they are.
	Relaxed bool
	// Keep has a home keep what it was last told to keep, where MaxAge, MaxBytes and Hold
	// would keep less, until Alter says less without it. What a log was told is on disk.
	Keep bool
	// Hold has retention ask Safe first.
	Hold bool
	// Safe is the highest sequence retention may take, asked at every sweep: what all
	// mirrors that count have on disk. Which mirrors count (hold, absence) is the
	// caller's rule. nil: everything may be taken. It must not block.
	Safe func() uint64
	// Waits says for whom Safe holds records back, for the refusal of a full log; nil or
	// "": nobody. It must not block.
	Waits func() string
}
