package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
	"domicile/regions"
)

// At pace 1.
const (
	lookEvery  = 100 * time.Millisecond
	takeWithin = 5 * time.Second // one attempt to take the seat
	askWithin  = time.Second     // one look at the control stream; a request may have met no leader
	pullWithin = 8 * time.Second // to get the leadership of a log's stream back, else the seat goes
	pullAgain  = time.Second
	abstainFor = 5 * time.Second  // after StepDown
	stepInAt   = 10 * time.Second // that nobody holds the seat although a majority is heard
)

// contest is a quorum region's seat as this node goes after it. All but yielded belongs to
// the seat loop.
type contest struct {
	below  time.Time            // since when less than a majority is heard; zero: it is
	vacant time.Time            // since when nobody holds the seat although a majority is heard; zero: it is not so
	astray map[string]time.Time // streams of open logs that another node leads, since when
	asked  map[string]time.Time // when their leadership was last asked for
}

const unfitHere = "records are damaged on this node's disk: start the node once with serve --rejoin, which sets the damaged logs aside and has the other nodes fill them; if it happens again, replace the disk"

// seatLoop looks who leads, takes the seat, and gives it up.
func (f *Fabric) seatLoop() {
	c := &contest{astray: map[string]time.Time{}, asked: map[string]time.Time{}}
	tick := time.NewTicker(max(f.cfg.Pace.Of(lookEvery), time.Millisecond))
	defer tick.Stop()
	for {
		f.lookAtSeat(c)
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			return
		}
	}
}

func (f *Fabric) lookAtSeat(c *contest) {
	up, holder, term := f.members.up()
	f.watchQuorum(c, up)
	seat, _ := f.Seat()
	if seat.Mine || holder != "" || !c.below.IsZero() {
		c.vacant = time.Time{}
	}
	if seat.Mine {
		if why := f.mustGiveUp(c, term); why != "" {
			f.loseSeat(why)
		}
		return
	}
	reason := "another node of the region holds the seat"
	switch {
	case f.failure.Load() != nil:
		reason = "the store of this node failed"
	case f.outside.Load() != nil:
		reason, holder, term = *f.outside.Load(), "", 0
	case !c.below.IsZero():
		reason, holder, term = f.belowQuorum(up).Hint, "", 0
	case holder == "":
		if reason = f.tryTake(c); reason == "" {
			return
		}
		if why := f.stepIn(c); why != "" {
			reason += "; " + why
		}
	case !f.settled.Load():
		// A node that joins while another holds the seat must know whose node it is, too.
		if _, err := f.meet(); err != nil {
			reason += "; this node has not met the region yet: " + plain(err)
		}
	}
	f.observe(Seat{Node: holder, Term: term, Reason: reason})
}

// stepIn does what can be done for a region that has a majority of its nodes and no holder.
// A leader of the control stream that does not take the seat is asked to hand over. Where the
// broker elects nobody because a replica is empty, only the node that has the rest can help;
// then it says so.
func (f *Fabric) stepIn(c *contest) string {
	now := time.Now()
	if c.vacant.IsZero() {
		c.vacant = now
	}
	if now.Sub(c.vacant) < f.cfg.Pace.Of(stepInAt) {
		return ""
	}
	if own := f.holds(); own.Short == 0 && !f.leads(controlStream) && now.Sub(c.asked[controlStream]) > f.cfg.Pace.Of(stepInAt) {
		c.asked[controlStream] = now
		f.cfg.Logger.Warn("nobody holds the seat although a majority is up: asking for it")
		f.spawn(func() { f.askLead(f.ctx, controlStream) })
	}
	short := f.members.short()
	if f.holds().Short > 0 {
		short = append(short, f.cfg.Cluster.Node)
	}
	if len(short) == 0 {
		return ""
	}
	return "replicas of node " + strings.Join(short, " and ") + " are not filled, and an empty one has no vote: start the node that is missing"
}

// observe publishes what this node sees of a seat that is not its own.
func (f *Fabric) observe(s Seat) {
	if now, _ := f.Seat(); now.Mine || now.Node == s.Node && now.Term == s.Term && now.Reason == s.Reason {
		return
	}
	s.Since = f.cfg.Clock.Now()
	f.seat.set(s)
}

// watchQuorum refuses appends while less than a majority is heard.
func (f *Fabric) watchQuorum(c *contest, up int) {
	if up > regions.QuorumNodes/2 {
		if f.suspended.Swap(nil) != nil {
			f.cfg.Logger.Info("the region has its quorum", "nodes", up)
		}
		c.below = time.Time{}
		return
	}
	if c.below.IsZero() {
		c.below = time.Now()
		err := f.belowQuorum(up)
		if f.suspended.Swap(err) == nil {
			f.cfg.Logger.Warn("below quorum: appends are refused", "nodes", up)
		}
		for _, l := range f.openLogs() {
			l.suspend(err)
		}
	}
}

func (f *Fabric) suspension() error {
	if e := f.suspended.Load(); e != nil {
		return e
	}
	return nil
}

func (f *Fabric) openLogs() map[string]*store {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.logs)
}

// mustGiveUp says why the holder is one no longer; "" if it is.
func (f *Fabric) mustGiveUp(c *contest, other uint64) string {
	seat, _ := f.Seat()
	switch {
	case f.failure.Load() != nil:
		return "the store of this node failed"
	case f.yielding():
		return "it was given away"
	case f.unfit.Load() && f.relieved():
		return unfitHere
	case f.crowded():
		return crowdedHere
	case other > seat.Term:
		return "another node holds it under a higher term"
	case f.members.promises.get().Term > seat.Term:
		return "another node is taking it"
	case !c.below.IsZero() && time.Since(c.below) > f.cfg.Pace.Of(giveUpSeat):
		return "the region is below quorum"
	case !f.leads(controlStream):
		return "another node leads the region's control stream"
	}
	return f.pullBack(c)
}

// pullBack asks for the leadership of open logs that went elsewhere.
func (f *Fabric) pullBack(c *contest) string {
	for _, l := range f.openLogs() {
		stream := l.stream
		if f.leads(stream) {
			delete(c.astray, stream)
			delete(c.asked, stream)
			continue
		}
		now := time.Now()
		switch since, ok := c.astray[stream]; {
		case !ok:
			c.astray[stream] = now
		case now.Sub(since) > f.cfg.Pace.Of(pullWithin):
			return "the leadership of a log's stream could not be brought here"
		}
		if f.current(stream) && now.Sub(c.asked[stream]) >= f.cfg.Pace.Of(pullAgain) {
			c.asked[stream] = now
			f.spawn(func() { f.askLead(f.ctx, stream) })
		}
	}
	return ""
}

// loseSeat ends the writing of all logs. They stay open for readers until Vacate.
func (f *Fabric) loseSeat(why string) {
	f.cfg.Logger.Warn("the seat is lost", "reason", why)
	f.seat.set(Seat{Since: f.cfg.Clock.Now(), Reason: why})
	for _, l := range f.openLogs() {
		l.stop(f.writingMoves(), "")
	}
}

// tryTake takes the seat when this node leads the control stream. The reason it returns is
// empty when it did.
func (f *Fabric) tryTake(c *contest) string {
	f.mu.Lock()
	busy := len(f.logs)+len(f.opening) > 0
	draining := f.draining
	f.mu.Unlock()
	switch {
	case draining:
		return "this node is shutting down"
	case f.unfit.Load() && f.relieved():
		if f.leads(controlStream) {
			f.handOver(f.ctx, controlStream, f.members.heir())
		}
		return unfitHere
	case busy:
		return "logs of the last seat are still open here"
	case f.crowded():
		if f.leads(controlStream) {
			f.handOver(f.ctx, controlStream, f.members.heir())
		}
		return crowdedHere
	case f.yielding():
		return "it was given away here a moment ago"
	}
	if f.settled.Load() && !f.leads(controlStream) {
		return "no node holds the seat yet"
	}
	s, err := f.meet()
	switch {
	case err != nil:
		return "the region's nodes have not agreed yet: " + plain(err)
	case !f.leads(controlStream):
		return "no node holds the seat yet"
	}
	if err := f.take(s); err != nil {
		return "the seat was not taken: " + plain(err)
	}
	clear(c.astray)
	clear(c.asked)
	return ""
}

// meet finds the region's control stream and holds this node's identity against it. A node
// of another region fails for good.
func (f *Fabric) meet() (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Pace.Of(askWithin))
	defer cancel()
	s, err := f.openControl(ctx)
	if err == nil {
		err = f.settleIdentity(ctx, s)
	}
	if api.CodeOf(err) == api.ConfigInvalid {
		f.fail(err.Error(), false)
	}
	return s, err
}

// plain says an error in words that fit a status line.
func plain(err error) string {
	var e *api.Error
	switch {
	case errors.As(err, &e):
		return e.Hint
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return err.Error()
}

// take commits a term of this node's own to the control stream, which alone proves it, and
// hears a majority's promises before the node may stamp anything.
func (f *Fabric) take(s jetstream.Stream) error {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Pace.Of(takeWithin))
	defer cancel()
	info, err := s.Info(ctx)
	if err != nil {
		return err
	}
	var last seatRecord
	if _, err := readControl(ctx, s, subjectSeat, &last); errors.Is(err, errGarbled) {
		f.cfg.Logger.Error("the last term is taken from what the nodes promised", "error", err) // each promised it before it was used
	} else if err != nil {
		return err
	}
	next := seatRecord{Term: max(last.Term, f.members.promises.get().Term) + 1, Node: f.cfg.Cluster.Node}
	if _, err := f.appendControl(ctx, subjectSeat, next, jetstream.WithExpectLastSequence(info.State.LastSeq)); err != nil {
		return err
	}
	if err := f.readList(ctx, s); err != nil {
		return err
	}
	highest, ok := f.members.poll(ctx, next.Term, 0)
	if !ok {
		return errors.New("less than a majority answered")
	}
	floor := max(highest, f.now().UnixNano())
	if _, ok = f.members.poll(ctx, next.Term, floor); !ok || !f.members.raise(next.Term, floor) {
		return errors.New("less than a majority promised")
	}
	if !f.leads(controlStream) {
		return errors.New("the leadership went elsewhere meanwhile")
	}
	f.floor.Store(highest)
	f.cfg.Logger.Info("the seat is taken", "term", next.Term)
	f.seat.set(Seat{Node: next.Node, Mine: true, Term: next.Term, Since: f.cfg.Clock.Now()})
	f.spawn(func() {
		f.gather()
		f.goOnDeleting(next.Term)
	})
	return nil
}

func (f *Fabric) leads(stream string) bool {
	b, err := f.running()
	return err == nil && b.srv.JetStreamIsStreamLeader(api.DefaultTenant, stream)
}

// current: this node's replica of a stream has come up with its leader.
func (f *Fabric) current(stream string) bool {
	b, err := f.running()
	return err == nil && b.srv.JetStreamIsStreamCurrent(api.DefaultTenant, stream)
}

// insist tries again, in a quorum region, while the seat is held and ctx lasts: leaders
// may be on the move. An error that is one of final is not tried again.
func (f *Fabric) insist(ctx context.Context, try func(context.Context) error, final ...error) error {
	if f.cfg.Cluster == nil {
		return try(ctx)
	}
	tick := time.NewTicker(max(f.cfg.Pace.Of(lookEvery), time.Millisecond))
	defer tick.Stop()
	for {
		once, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(2*time.Second))
		err := try(once)
		cancel()
		seat, _ := f.Seat()
		switch {
		case err == nil || ctx.Err() != nil || slices.ContainsFunc(final, func(x error) bool { return errors.Is(err, x) }):
			return err
		case !seat.Mine:
			return f.writingMoves()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// lead brings the leadership of a stream to this node and waits until it is here.
func (f *Fabric) lead(ctx context.Context, stream string) error {
	if f.cfg.Cluster == nil {
		return nil
	}
	tick := time.NewTicker(max(f.cfg.Pace.Of(lookEvery)/4, time.Millisecond))
	defer tick.Stop()
	var asked time.Time
	for !f.leads(stream) || !f.current(stream) {
		if !f.leads(stream) && f.current(stream) && time.Since(asked) >= f.cfg.Pace.Of(pullAgain) {
			asked = time.Now()
			f.askLead(ctx, stream)
		}
		if seat, _ := f.Seat(); !seat.Mine {
			return f.writingMoves()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("lead the stream: %w", ctx.Err())
		}
	}
	return nil
}

// gather asks for the leadership of all logs' streams at once, so that opening them does not
// wait for one after the other.
func (f *Fabric) gather() {
	f.mu.Lock()
	known := maps.Clone(f.known)
	f.mu.Unlock()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for stream, e := range known {
		stream = anew(stream, e.Made)
		if e.State != "" || f.leads(stream) || !f.current(stream) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			f.askLead(f.ctx, stream)
			<-slots
		})
	}
	wg.Wait()
}

// askLead asks the stream's present leader to hand over to this node, whose replica has to
// be current: one that lags can't lead, and a leader that steps down no longer fills it.
func (f *Fabric) askLead(ctx context.Context, stream string) {
	f.handOver(ctx, stream, f.cfg.Cluster.Node)
}

// handOver asks a stream's leader to step down in favour of a node. Whether it did is seen
// by looking, not from the answer.
func (f *Fabric) handOver(ctx context.Context, stream, node string) {
	request, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": serverName(f.cfg.Region, node)}})
	if err != nil {
		return
	}
	b, err := f.running()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(pullAgain))
	defer cancel()
	_, _ = b.admin.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, request)
}

// yield leaves the seat to others for a while.
func (f *Fabric) yield() {
	until := time.Now().Add(f.cfg.Pace.Of(abstainFor))
	f.yielded.Store(&until)
}

func (f *Fabric) yielding() bool {
	until := f.yielded.Load()
	return until != nil && time.Now().Before(*until)
}

// StepDown gives the seat away: what is in flight is decided first, within the append
// deadline, then the streams go to a sibling that is up. This node does not go after the
// seat for the next seconds. Close begins with it. Without a seat it does nothing.
func (f *Fabric) StepDown(ctx context.Context) error {
	seat, _ := f.Seat()
	if f.members == nil || !seat.Mine {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	logs := f.openLogs()
	for _, l := range logs {
		l.refuse(f.writingMoves())
	}
	drained := true
	for _, l := range logs {
		drained = l.drain(ctx) && drained
	}
	f.yield()
	if heir := f.members.heir(); heir != "" {
		for _, l := range logs {
			f.handOver(ctx, l.stream, heir)
		}
		f.handOver(ctx, controlStream, heir)
	}
	if !drained {
		return &api.Error{Code: api.OutcomeUnknown, Op: "give the seat away", Hint: "some appends were undecided; the next holder reads them back"}
	}
	return nil
}
