package council

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// The voters' timings at full pace. A region that is cut off has stopped leading after
// leaseTimeout, and another leads after 8 s as a rule; with shorter ones a delay of half a
// second on a long line costs the leader.
const (
	heartbeatTimeout = 3 * time.Second
	leaseTimeout     = 2500 * time.Millisecond
	commitTimeout    = 500 * time.Millisecond
	lineTimeout      = 10 * time.Second
	snapshotEvery    = 1000 // entries
)

// TrailingLogs is how many entries of a voter's log stay behind a snapshot.
const TrailingLogs = 10_000

// CacheFile is the name of the placement cache in a voter's folder.
const CacheFile = "placement.cache"

// Config is what a voter runs with.
type Config struct {
	Dir   string
	Lines Lines
	Boot  regions.BootClock
	Pace  regions.Pace
	Log   *slog.Logger
	// Refused counts what other regions say that no correct voter or follower says; nil: nobody counts.
	Refused *regions.PeerRefusals
	// MayChange refuses a change of voters that this node's own files speak against; nil:
	// none is. It is asked at the leader.
	MayChange func(c VoterChange, before []string) error
	// MayPlace refuses a command that this node's own files speak against, l as the log is
	// placed, without an incarnation if it is not; PermissionDenied: no honest region sends it.
	// It is asked at the leader; nil: none is refused.
	MayPlace func(c placement.Command, l placement.Log) error
	// MayFound refuses a later founding that people did not agree to, by this node's own trust;
	// nil: none is believed.
	MayFound func(Consent) error
	// Identity signs what this region sends, and verifies what others send.
	Identity Identity

	reads byte // the latest version of commands; 0: this program's
}

// Voter is one region's voice in the authority. A witness is a voter whose node has no
// store of records. Safe for concurrent use.
type Voter struct {
	cfg      Config
	mark     mark
	consent  *Consent // to its own founding; nil: it founded nothing anew
	store    *store
	audit    *auditFile
	machine  *machine
	raft     *raft.Raft
	ballots  *ballots
	lines    *checkedLines
	renewals renewals

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	silent     bool // it stands still
	conns      map[closer]bool
	rivals     map[string]Rival
	met        map[string]hello     // what was taken in of each region of an earlier founding
	dismissals map[string]dismissal // voters of this founding that say that the region has no vote
	replaced   bool                 // its region's vote is another voter's
	shown      *founding            // by the founder of this authority, if that was founded anew; see founded
	doubted    map[string]string    // why a region's authority was not believed, as it was logged

	changing sync.Mutex // one change of voters at a time
	noting   sync.Mutex // one note of what a voter reads at a time
}

type closer interface{ Close() error }

// Rival is another founding that a region was found to belong to.
type Rival struct {
	Authority  string
	Generation uint32
	Voters     string // by the file that its voter was made with; "": it does not say
}

// Open starts the voter that Create made.
func Open(cfg Config) (*Voter, error) {
	m, err := readMark(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if cfg.reads == 0 {
		cfg.reads = placement.CommandVersion
	}
	v := &Voter{cfg: cfg, mark: m, conns: map[closer]bool{}, rivals: map[string]Rival{}, met: map[string]hello{}, dismissals: map[string]dismissal{}, doubted: map[string]string{}}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	if err := v.open(); err != nil {
		v.cancel()
		if v.store != nil {
			err = errors.Join(err, v.store.close())
		}
		if v.audit != nil {
			err = errors.Join(err, v.audit.close())
		}
		return nil, err
	}
	return v, nil
}

func (v *Voter) open() (err error) {
	if v.store, err = openStore(v.cfg.Dir, v.cfg.Pace.Of(time.Second), v.silence); err != nil {
		return err
	}
	if err := v.store.verify(); err != nil {
		return err
	}
	if v.consent, err = v.mark.consent(); err != nil {
		return err
	}
	if err := v.loadFounding(); err != nil {
		return err
	}
	if v.audit, err = openAudit(v.cfg.Dir); err != nil {
		return err
	}
	out := &plainLog{v.cfg.Log}
	snapshots, err := raft.NewFileSnapshotStore(v.cfg.Dir, 2, out)
	if err != nil {
		return err
	}
	v.machine = newMachine(v.nominal, v.audit, v.cfg.Log, v.cfg.reads, v.store.note)
	v.ballots = newBallots(v.mark.address(), v.dialVoter)
	v.lines = v.checked(raft.NewNetworkTransport(v.ballots, 3, v.cfg.Pace.Of(lineTimeout), out))
	notify := make(chan bool, 16)
	if v.raft, err = raft.NewRaft(v.raftConfig(notify, out), v.machine, v.store, v.store, snapshots, v.lines); err != nil {
		return errors.Join(err, v.lines.Close())
	}
	v.renewals.init()
	v.wg.Go(v.lines.run)
	v.wg.Go(v.serve)
	v.wg.Go(func() { v.govern(notify) })
	v.wg.Go(v.keepCache)
	v.wg.Go(v.lookOut)
	return nil
}

func (v *Voter) raftConfig(notify chan bool, out *plainLog) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(v.mark.Region)
	c.HeartbeatTimeout, c.ElectionTimeout = v.cfg.Pace.Of(heartbeatTimeout), v.cfg.Pace.Of(heartbeatTimeout)
	c.LeaderLeaseTimeout, c.CommitTimeout = v.cfg.Pace.Of(leaseTimeout), v.cfg.Pace.Of(commitTimeout)
	c.SnapshotThreshold, c.TrailingLogs = snapshotEvery, TrailingLogs
	c.NotifyCh, c.LogOutput, c.LogLevel = notify, out, "WARN"
	c.NoLegacyTelemetry = true
	return c
}

// nominal is the boot clock at full pace, whatever the pace is: leases and waits are
// counted in it, as the declarations write them.
func (v *Voter) nominal() time.Duration {
	if v.cfg.Pace == 0 {
		return v.cfg.Boot()
	}
	return time.Duration(float64(v.cfg.Boot()) / float64(v.cfg.Pace))
}

// Close stops the voter and waits for all that it started, at the longest until ctx ends
// for the voters' protocol to end. The others elect another leader if it led.
func (v *Voter) Close(ctx context.Context) error {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return nil
	}
	v.closed = true
	conns := v.conns
	v.conns = map[closer]bool{}
	v.mu.Unlock()
	v.cancel()
	err := errors.Join(v.cfg.Lines.Close(), v.lines.Close())
	for c := range conns {
		_ = c.Close() // its reader ends, which is all that is wanted
	}
	v.store.release() // no way is left for what it says
	stopped := make(chan error, 1)
	go func() { stopped <- v.raft.Shutdown().Error() }()
	select {
	case e := <-stopped:
		err = errors.Join(err, e)
	case <-ctx.Done():
		return errors.Join(err, ctx.Err()) // files stay open: they are still written
	}
	v.wg.Wait()
	return errors.Join(err, v.store.close(), v.audit.close())
}

// silence ends all that the voter says to others, for good: they elect another leader.
func (v *Voter) silence() {
	v.mu.Lock()
	if v.silent || v.closed {
		v.mu.Unlock()
		return
	}
	v.silent = true
	conns := v.conns
	v.conns = map[closer]bool{}
	v.wg.Add(1)
	v.mu.Unlock()
	v.cfg.Log.Error("the voter stands still and says nothing until it is started again", "err", v.store.failure())
	// The store's caller does not wait for what a closing line still has to say.
	go func() {
		defer v.wg.Done()
		_ = v.lines.Close() // it only stops
		for c := range conns {
			_ = c.Close() // its reader ends, which is all that is wanted
		}
	}()
}

// enter counts a caller in, unless the voter is closing.
func (v *Voter) enter() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return false
	}
	v.wg.Add(1)
	return true
}

// Region is the voter's own.
func (v *Voter) Region() string { return v.mark.Region }

// Log is the placement of a log, as far as this voter has applied it.
func (v *Voter) Log(incarnation string) (l placement.Log, ok bool) {
	v.machine.read(func(s *placement.State) { l, ok = s.Log(incarnation) })
	return l, ok
}

// Since is what changed after a version under the named authority, and a channel that is
// closed at the next change.
func (v *Voter) Since(version uint64, authority string) (placement.Delta, <-chan struct{}) {
	return v.machine.since(version, authority)
}

// Audit lists the audit's entries after a number, as far back as the state keeps them.
func (v *Voter) Audit(after uint64) (entries []placement.Entry, err error) {
	v.machine.read(func(s *placement.State) { entries, err = s.Audit(after) })
	return entries, err
}

// Status is what a voter knows of the authority.
type Status struct {
	Region     string
	Leader     string // "": none is known
	Leading    bool
	Term       uint64
	Authority  string
	Generation uint32 // 0: not founded, as far as this voter knows
	Version    uint64
	Entries    uint64 // in the voters' log, all told
	Voters     []string
	Roll       []string         // who votes in the founding, by the file that this voter was made with; none: it joined
	Seats      []string         // the voters as one another calls them: a voter that joined anew is another one
	Rivals     map[string]Rival // regions that belong to another founding
	Applied    uint64           // of the entries, by this voter
	Heard      bool             // the leader was, in this run, by this voter, which does not lead; then HeardAgo says when
	HeardAgo   time.Duration
	Failed     error // why the voter stands still: its disk, or a command of a later version; nil if it does not
}

// Status is the present one.
func (v *Voter) Status() Status {
	_, leader := v.raft.LeaderWithID()
	s := Status{
		Region: v.mark.Region, Leader: string(leader), Leading: v.raft.State() == raft.Leader, Term: v.raft.CurrentTerm(),
		Authority: v.mark.Authority, Entries: v.raft.LastIndex(), Voters: v.voters(), Seats: v.seats(), Roll: v.mark.Roll, Failed: v.store.failure(),
	}
	s.Applied = v.raft.AppliedIndex()
	if at := v.raft.LastContact(); !s.Leading && !at.IsZero() {
		s.Heard, s.HeardAgo = true, time.Since(at)
	}
	v.machine.read(func(p *placement.State) { s.Generation, s.Version = p.Generation(), p.Version() })
	v.mu.Lock()
	defer v.mu.Unlock()
	s.Rivals = maps.Clone(v.rivals)
	return s
}

func (v *Voter) voters() []string {
	var names []string
	for _, a := range v.seats() {
		region, _ := address(a).parts()
		names = append(names, region)
	}
	return names
}

// others are the regions besides this one that vote.
func (v *Voter) others() []string {
	return slices.DeleteFunc(v.voters(), func(r string) bool { return r == v.mark.Region })
}

// seats are the addresses of those who vote, by what this voter has heard.
func (v *Voter) seats() []string {
	f := v.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	var all []string
	for _, s := range f.Configuration().Servers {
		if s.Suffrage == raft.Voter {
			all = append(all, string(s.Address))
		}
	}
	return all
}

// born is the folder's name of the voter that a region's vote was given to; false: it has
// none.
func (v *Voter) born(region string) (born string, votes bool) {
	for _, a := range v.seats() {
		if name, born := address(a).parts(); name == region {
			return born, true
		}
	}
	return "", false
}

// keepCache keeps what was decided for the next start. A voter that has just started has what
// its last snapshot holds and hears all later decisions again: what it kept before is not
// given up for that.
func (v *Voter) keepCache() {
	path := filepath.Join(v.cfg.Dir, CacheFile)
	kept, _, err := LoadCache(path)
	if err != nil { // none, or a damaged one, which whoever needs it speaks of
		kept = &placement.State{}
	}
	keepCache(v.ctx, v.cfg.Pace, v.cfg.Log, path, func() ([]byte, <-chan struct{}, error) {
		v.machine.mu.RLock()
		defer v.machine.mu.RUnlock()
		s := v.machine.state
		if s.Generation() == 0 || s.Generation() < kept.Generation() || s.Authority() == kept.Authority() && s.Version() < kept.Version() {
			return nil, v.machine.changed, nil
		}
		data, err := s.Snapshot()
		return data, v.machine.changed, err
	})
}

// contested refuses service while another founding of the same or a later generation is
// known: this one may not decide any more.
func (v *Voter) contested() error {
	var generation uint32
	v.machine.read(func(s *placement.State) { generation = s.Generation() })
	v.mu.Lock()
	defer v.mu.Unlock()
	for region, r := range v.rivals {
		if generation > 0 && r.Generation >= generation && v.believes(r) {
			return &api.Error{Code: api.Contested, Op: "place log", Region: region, Field: "generation",
				Hint: "that region belongs to another authority of this or a later generation; join it, or found one anew from both"}
		}
	}
	return nil
}

// Joining reports whether this voter has no vote yet, and never had one.
func (v *Voter) Joining() bool { return len(v.mark.Founding) == 0 && len(v.voters()) == 0 }

// Aside reports whether this voter has no say: its founding was overtaken by a later one,
// its vote was taken away, or not given yet. follow names the regions that know more.
func (v *Voter) Aside() (follow []string, aside bool) {
	greeting, voters, others := v.greeting(), v.voters(), v.others()
	v.mu.Lock()
	defer v.mu.Unlock()
	for region, r := range v.rivals {
		if r.Generation > greeting.Generation && v.believes(r) {
			follow = append(follow, region)
		}
	}
	switch {
	case len(follow) > 0:
	case v.dismissed(greeting.After, others):
		follow = others
	case len(voters) == 0:
		follow = slices.Clone(v.mark.Join)
	case len(others) == len(voters):
		follow = others
	default:
		return nil, false
	}
	slices.Sort(follow)
	return follow, true
}

// heard keeps what another region's voter says of itself.
func (v *Voter) heard(region string, h hello) {
	if err := h.check(); err != nil {
		v.misread(region, err)
		return
	}
	if h.Authority == v.mark.Authority {
		if seat := addressOf(region, h.Born); slices.Contains(v.seats(), seat) { // a name of a folder takes room on this disk
			v.noteReads(seat, max(h.Reads, 1))
		}
		v.keepFounding(h.Founding)
	} else if err := v.doubt(h); err != nil {
		v.disbelieve(region, v.refuse(region, regions.NotTheirs, err))
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if h.Authority == v.mark.Authority {
		delete(v.rivals, region)
		return
	}
	if h.Authority == "" {
		return
	}
	r := Rival{h.Authority, h.Generation, h.Roll}
	if v.rivals[region] != r {
		v.cfg.Log.Error("another placement authority", "region", region, "generation", h.Generation, "voters", h.Roll, "ours", v.mark.Roll)
	}
	v.rivals[region] = r
}

// disbelieve says once why a region's authority is none.
func (v *Voter) disbelieve(region string, err error) {
	v.mu.Lock()
	known := v.doubted[region]
	v.doubted[region] = err.Error()
	v.mu.Unlock()
	if known != err.Error() {
		v.cfg.Log.Error("a region speaks of another placement authority and does not show that people founded it", "region", region, "err", err)
	}
}
