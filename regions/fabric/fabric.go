package fabric

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"domicile/api"
	"domicile/regions"
)

// Fabric is one region's store. Open starts it, Close ends it; in between it owns its
// data directory alone.
type Fabric struct {
	cfg     Config
	id      *identity
	boot    string
	lock    *os.File
	dir     *os.File
	broker  *broker
	hash    *hasher
	indexes *indexes
	barrier *barrier
	share   *share
	held    atomic.Int64 // bytes in all writers
	seat    *seat

	// Of a quorum region.
	members   *members
	calls     *calls
	settled   atomic.Bool               // the identity is the one all nodes share
	suspended atomic.Pointer[api.Error] // what appends are told below quorum; nil: they are taken
	yielded   atomic.Pointer[time.Time] // until when this node leaves the seat to others
	listed    map[string]listedLog      // the region's list as of the last taking of the seat; mu
	unfit     atomic.Bool               // this node's disk lost what its siblings have
	holding   atomic.Pointer[holding]   // see holds
	outside   atomic.Pointer[string]    // why this node does not take part in the region yet; nil: it does
	floor     atomic.Int64              // no stamp may be before it: what earlier runs and holders may have called closed

	identifying sync.Mutex // one writer of the identity at a time

	ctx    context.Context // ends when the fabric closes; writers stop waiting then
	cancel context.CancelFunc
	sweeps chan struct{} // a log passed its high-water mark

	wireMu sync.Mutex
	wired  *wire
	tokens atomic.Uint64 // given to requests and batches

	rescued Rescued            // written before anything runs
	counted map[string][]Range // by stream, the broker's sequences that an unclean end left in its blocks; mu
	shut    map[string]shut    // by the log's name in the list; mu

	space   space
	belief  belief
	marking sync.Mutex   // one writer of the run mark at a time
	marked  string       // the state it was given last; marking is held
	bound   atomic.Int64 // no closed instant may be past it: the run mark on disk holds it
	failure atomic.Pointer[failure]
	emptied chan struct{} // logs were vacated
	closed  chan struct{} // closed when Close is through

	mu        sync.Mutex
	draining  bool // Close was called: no log is opened any more
	closing   bool // nothing is started any more
	wg        sync.WaitGroup
	fenced    chan struct{}     // closed at a failure
	logs      map[string]*store // by stream, those opened in this run
	opening   map[string]bool
	known     map[string]logEntry // by stream, all that this store was ever given
	clean     map[string]uint64   // by stream, broker's last sequence at the last clean end
	ended     map[string]uint64   // by the stream's incarnation, the last sequence known to have been durable
	restarted bool                // the broker was, in this run: no end is a clean one
}

// Open starts the region's store on cfg.Dir, which it creates if need be. It fails
// with CONFIG_INVALID when the directory belongs to another region, federation, mode
// or format, is in use, or lacks what an earlier run put there.
func Open(ctx context.Context, cfg Config) (*Fabric, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	f := &Fabric{cfg: cfg, indexes: newIndexes(), share: newShare(), logs: map[string]*store{}, opening: map[string]bool{},
		known: map[string]logEntry{}, clean: map[string]uint64{}, ended: map[string]uint64{}, sweeps: make(chan struct{}, 1),
		counted: map[string][]Range{}, shut: map[string]shut{},
		fenced: make(chan struct{}), emptied: make(chan struct{}, 1), closed: make(chan struct{}), seat: newSeat()}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := f.open(ctx); err != nil {
		f.cancel()
		f.wg.Wait()
		f.release()
		return nil, err
	}
	return f, nil
}

func (f *Fabric) open(ctx context.Context) error {
	if err := f.openDir(); err != nil {
		return err
	}
	last, err := f.readMarks()
	if err != nil {
		return err
	}
	if err := f.checkStart(); err != nil {
		return err
	}
	f.tokens.Store(rand.Uint64() >> 1) // siblings' tokens must be others
	f.barrier = &barrier{dir: f.dir, lazy: f.cfg.Pace.Of(lazySync), sync: f.syncRound, fail: f.failSync, spawn: f.spawn, good: time.Now()}
	if err := f.rescue(last); err != nil {
		return err
	}
	if f.cfg.Cluster != nil {
		return f.openMember(ctx, last)
	}
	if err := f.redirty(last); err != nil {
		return err
	}
	if last.State == runFailed {
		// Tails are there twice for a while, which the logs' bounds do not foresee. That
		// broker goes again, so that none of its room can be promised to a log.
		if err := f.start(ctx, 2*MaxHeldBytes, last); err != nil {
			return err
		}
		if err := f.rewriteTails(ctx, last); err != nil {
			return err
		}
		f.stopBroker()
	}
	if err := f.start(ctx, 0, last); err != nil {
		return err
	}
	if err := f.openLoops(); err != nil {
		return err
	}
	f.seat.set(Seat{Node: f.cfg.Region, Mine: true, Term: 1, Since: f.cfg.Clock.Now()})
	return nil
}

// openLoops marks the store open and begins what goes on until it closes.
func (f *Fabric) openLoops() error {
	if err := f.writeRun(run{State: runOpen, Boot: f.boot}); err != nil {
		return fmt.Errorf("write run mark: %w", err)
	}
	if !f.spawn(f.sweepLoop) || !f.spawn(f.spaceLoop) || !f.spawn(f.markLoop) {
		return errors.New("fabric closed while it opened")
	}
	return nil
}

// start starts the broker, with room to spare beyond MaxStore, and brings what it took up
// of an unclean run to disk.
func (f *Fabric) start(ctx context.Context, spare int64, last run) (err error) {
	if last.State != runClean {
		if err := f.distrust(); err != nil {
			return f.notRescued(err)
		}
	}
	b, err := startBroker(ctx, &f.cfg, f.cfg.MaxStore+spare)
	if err != nil {
		return err
	}
	f.wireMu.Lock() // readers of an earlier broker may still ask for a wire
	f.broker = b
	f.wireMu.Unlock()
	if f.cfg.Cluster == nil {
		if err := f.finishDeletions(ctx); err != nil {
			return err
		}
		if err := f.checkStreams(ctx); err != nil {
			return err
		}
		if err := f.recountAll(ctx); err != nil {
			return err
		}
	}
	if last.State == runClean {
		return nil
	}
	if err := f.cfg.Hooks.Sync(f.dir); err != nil {
		return &api.Error{Code: api.StorageFailed, Op: "sync after an unclean end", Hint: "check the disk", Err: errors.Join(errUnsynced, err)}
	}
	return nil
}

// errUnsynced is of a sync that failed, which no other makes good in this run.
var errUnsynced = errors.New("not synced")

func (f *Fabric) stopBroker() {
	f.stopWire()
	f.wireMu.Lock()
	b := f.broker
	f.broker = nil
	f.wireMu.Unlock()
	if b != nil {
		b.stop()
	}
}

func (f *Fabric) openDir() error {
	dir := f.cfg.Dir
	if err := regions.MakeFolder(dir); err != nil {
		return refuse("dir", dir, "the data directory can't be made", err)
	}
	var err error
	if f.lock, err = os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return refuse("dir", dir, "the data directory is not writable", err)
	}
	if err := unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return refuse("dir", dir, "another process has this data directory open: stop it first", err)
	}
	if f.dir, err = os.Open(dir); err != nil {
		return refuse("dir", dir, "the data directory is not readable", err)
	}
	if f.boot = f.cfg.Hooks.BootID; f.boot == "" {
		if f.boot, err = bootID(); err != nil {
			return fmt.Errorf("read boot id: %w", err)
		}
	}
	return nil
}

// readMarks checks the three marks against the configuration and each other.
func (f *Fabric) readMarks() (last run, err error) {
	if f.id, err = openIdentity(&f.cfg); err != nil {
		return last, err
	}
	key, err := hex.DecodeString(f.id.HashKey)
	if err != nil {
		return last, err
	}
	f.hash = newHasher(key)
	if err := readJSON(filepath.Join(f.cfg.Dir, logsFile), &f.known); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return last, refuse("logs", logsFile, "the list of logs is unreadable: restore it from a backup", err)
	}
	err = readJSON(filepath.Join(f.cfg.Dir, runFile), &last)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		last.State = runOpen // never got as far as writing one
	case err != nil:
		// A torn mark can only be one we were writing: it says as much as none.
		f.cfg.Logger.Warn("run mark unreadable, taken as an unclean end", "error", err)
		last = run{State: runOpen}
	case last.State == runClean:
		maps.Copy(f.clean, last.Clean)
	}
	maps.Copy(f.ended, last.Ends)
	f.floor.Store(last.Closed)
	f.bound.Store(last.Closed)
	return last, f.remember(&last, err == nil)
}

// checkStreams keeps a log of the list shut that has no stream, or lost records in an
// earlier run: made anew it would take a second record under a position that was given away.
func (f *Fabric) checkStreams(ctx context.Context) error {
	have := map[string]bool{}
	names := f.broker.js.StreamNames(ctx)
	for name := range names.Name() {
		have[name] = true
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("list streams: %w", err)
	}
	spoilt, err := f.spoilt()
	if err != nil {
		return err
	}
	f.mu.Lock()
	known := maps.Clone(f.known)
	maps.DeleteFunc(known, func(stream string, e logEntry) bool { return e.State != "" || f.shut[stream].last })
	f.mu.Unlock()
	for stream, e := range known {
		switch {
		case !have[stream]:
			f.shutLog(stream, goneLog(e.Log))
		case slices.Contains(spoilt, stream):
			f.shutLog(stream, f.damagedLog(e.Log, "an earlier start lost records of it: restore the data directory from a backup", nil))
		}
	}
	return nil
}

// ID is the fabric's id: random, made with the data directory and kept in it.
// The nodes of a quorum region share it; there it is "" until they have met for the first
// time, which they have once any of them holds the seat.
func (f *Fabric) ID() string {
	return f.identity().Fabric
}

// identity is the present one. It is not to be changed, see changeIdentity.
func (f *Fabric) identity() *identity {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id
}

// changeIdentity brings a changed identity to disk, and then into force.
func (f *Fabric) changeIdentity(change func(*identity)) error {
	f.identifying.Lock()
	defer f.identifying.Unlock()
	id := *f.identity()
	id.Siblings = maps.Clone(id.Siblings)
	if id.Siblings == nil {
		id.Siblings = map[string]string{}
	}
	change(&id)
	if err := writeJSON(f.path(identityFile), id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.id = &id
	return nil
}

func (f *Fabric) path(file string) string { return filepath.Join(f.cfg.Dir, file) }

// spawn runs fn on a goroutine that Close waits for; false when it is too late.
func (f *Fabric) spawn(fn func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return false
	}
	f.wg.Go(fn)
	return true
}

// wire is the writers' connection, made again if the last one broke.
func (f *Fabric) wire() (*wire, error) {
	f.wireMu.Lock()
	defer f.wireMu.Unlock()
	if f.wired != nil {
		select {
		case <-f.wired.closed:
			f.wired.close()
			f.wired = nil
		default:
			return f.wired, nil
		}
	}
	if f.ctx.Err() != nil {
		return nil, shuttingDown()
	}
	if f.broker == nil {
		return nil, f.startingAgain()
	}
	conn, err := f.broker.srv.InProcessConn()
	if err != nil {
		return nil, err
	}
	if h := f.cfg.Hooks.Wire; h != nil {
		conn = h(conn)
	}
	w, err := dialWire(conn, writerUser, f.broker.password, f.cfg.Pace.Of(2*time.Second), &f.tokens)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	f.wired = w
	return w, nil
}

func (f *Fabric) startingAgain() error {
	return &api.Error{Code: api.NotReady, Op: "use store", RetryAfter: f.cfg.Pace.Of(time.Second), Hint: "the broker is being started again"}
}

// running is the broker, for those who may ask while it is started again.
func (f *Fabric) running() (*broker, error) {
	f.wireMu.Lock()
	defer f.wireMu.Unlock()
	if f.broker == nil {
		return nil, f.startingAgain()
	}
	return f.broker, nil
}

func shuttingDown() error {
	return &api.Error{Code: api.ShuttingDown, Op: "use store", Hint: "retry with the same id when the region is back"}
}

// Close refuses new appends, waits until those under way are decided, at the latest
// until ctx ends or the append deadline has passed, stops the broker, and marks the
// store clean. What is undecided then is told OUTCOME_UNKNOWN and the next start is an
// unclean one. When the disk hangs it gives up after the append deadline once more.
func (f *Fabric) Close(ctx context.Context) error {
	f.mu.Lock()
	if f.draining {
		f.mu.Unlock()
		<-f.closed // the first call has its deadlines
		return nil
	}
	f.draining = true
	logs := maps.Clone(f.logs)
	f.mu.Unlock()
	defer close(f.closed)
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	drained := f.StepDown(ctx) == nil
	for _, l := range logs {
		l.refuse(shuttingDown())
	}
	for _, l := range logs {
		drained = l.drain(ctx) && drained
	}
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	f.cancel()
	if f.members != nil {
		f.members.leave()
	}
	if !f.join(f.cfg.Pace.Of(AppendDeadline)) {
		for _, l := range logs {
			l.abandon()
		}
		return &api.Error{Code: api.StorageFailed, Op: "close store", Hint: "the disk does not answer a sync; end the process, the next start reads back what is there"}
	}
	clean := f.cleanMark(logs)
	for _, l := range logs {
		l.abandon()
	}
	f.wireMu.Lock()
	ran := f.broker != nil
	f.wireMu.Unlock()
	f.stopBroker()
	var err error
	if ran { // else the mark stays as it is: nobody has read the blocks that the run before left
		err = f.markClosed(drained, clean)
	}
	f.release()
	return err
}

// join waits for the fabric's goroutines. One that hangs in a sync can't be ended; then
// the store is left as a killed process would leave it.
func (f *Fabric) join(wait time.Duration) bool {
	done := make(chan struct{})
	go func() {
		f.wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func (f *Fabric) cleanMark(logs map[string]*store) map[string]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	for stream, l := range logs {
		f.clean[stream] = l.durableBroker()
	}
	return f.clean
}

// markClosed writes the clean mark, once all the broker left is on disk.
func (f *Fabric) markClosed(drained bool, clean map[string]uint64) error {
	if f.failure.Load() != nil {
		return nil // the mark of the failure stays
	}
	if !drained {
		return &api.Error{Code: api.OutcomeUnknown, Op: "close store", Hint: "some appends were undecided; the next start reads them back"}
	}
	if err := f.cfg.Hooks.Sync(f.dir); err != nil {
		return errors.Join(&api.Error{Code: api.StorageFailed, Op: "sync at close", Hint: "check the disk", Err: err},
			f.writeRun(run{State: runFailed, Boot: f.boot, Clean: clean}))
	}
	if f.members != nil {
		if err := f.members.promises.settle(); err != nil {
			return err
		}
	}
	return f.writeRun(run{State: runClean, Boot: f.boot, Clean: clean})
}

func (f *Fabric) stopWire() {
	f.wireMu.Lock()
	defer f.wireMu.Unlock()
	if f.wired != nil {
		f.wired.close()
		f.wired = nil
	}
}

// release gives back what Open took before anything could be written.
func (f *Fabric) release() {
	f.stopBroker()
	for _, file := range []*os.File{f.dir, f.lock} {
		if file != nil {
			_ = file.Close()
		}
	}
}
