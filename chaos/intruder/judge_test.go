package intruder_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/lab"
	"domicile/regions"
)

const (
	refusedTotal = "domicile_peer_refused_total" // by peer, lane and reason
	soon         = 15 * time.Second              // until the honest regions are well again, on a busy machine
	countedIn    = 10 * time.Second              // at once, but on a busy machine a lie may take a while to be heard
	slack        = time.Second                   // a copy may be behind: what stands still is seen at one of the next lies
	longest      = 256                           // bytes of a liar's text in an answer
	memory       = 256 << 20                     // bytes that a lie may cost a process for a moment
)

// raw reports text that would do something to a terminal.
func raw(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' })
}

func (w *world) found(format string, args ...any) {
	w.findings = append(w.findings, fmt.Sprintf(format, args...))
}

// broken is a finding that the next lie must not be judged by.
func (w *world) broken(format string, args ...any) {
	w.found(format, args...)
	w.loss = true
}

// mark is the state before a lie.
type mark struct {
	refused map[string]float64
	resting map[string]uint64 // bytes
	process map[string]string // that counted
}

func (w *world) mark(ctx context.Context) mark {
	m := mark{refused: map[string]float64{}, resting: map[string]uint64{}, process: map[string]string{}}
	for _, name := range honest() {
		m.refused[name], _ = w.refused(ctx, name)
		m.resting[name], m.process[name] = w.regions[name].rest(), w.regions[name].proc("")
	}
	return m
}

// refused is how often a region has refused the liar.
func (w *world) refused(ctx context.Context, name string) (n float64, err error) {
	page, err := w.metrics(ctx, name)
	for _, m := range page {
		switch {
		case m.Name != refusedTotal:
		case m.Labels["peer"] == traitor:
			n += m.Value
		default:
			err = fmt.Errorf("%s counts a lie against %s, which told none: %s, %s", name, m.Labels["peer"], m.Labels["lane"], m.Labels["reason"])
		}
	}
	return n, err
}

// rest is what the process holds now; its peak begins anew.
func (r *region) rest() uint64 {
	_ = os.WriteFile(r.proc("clear_refs"), []byte("5"), 0) // refused: the peak is that of its life
	return r.size("VmRSS:")
}

func (r *region) proc(file string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("/proc/%d/%s", r.cmd.Process.Pid, file)
}

func (r *region) size(field string) uint64 {
	text, _ := os.ReadFile(r.proc("status"))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, _ := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// check judges the honest regions after a lie about one of them.
func (w *world) check(ctx context.Context, before mark, since time.Time, counted ...string) {
	w.alive()
	if w.loss {
		return
	}
	complete := since.Add(-slack)
	if alone() {
		complete = since
	}
	err := lab.Poll(ctx, soon, func() error {
		if w.alive(); w.loss {
			return nil
		}
		now, err := w.placements(ctx)
		if err == nil && now != w.placed {
			err = fmt.Errorf("what is said of the log that may move was %s and is %s", w.placed, now)
		}
		return errors.Join(w.trade.after(since), w.whole(ctx, complete), err)
	})
	if err != nil {
		w.broken("the honest regions do not go on: %v", err)
	}
	if w.loss {
		return
	}
	for _, name := range honest() {
		if peak := w.regions[name].size("VmHWM:"); before.resting[name] > 0 && peak > before.resting[name]+memory {
			w.found("%s took %d MiB for it", name, (peak-before.resting[name])>>20)
		}
		w.printable(ctx, name)
	}
	if len(counted) > 0 {
		w.counted(ctx, before, counted)
	}
}

// alone says that each lie has a federation to itself, and the whole of the honest regions' word
// is waited for after it.
func alone() bool { return os.Getenv("DOMICILE_INTRUDER_ALONE") != "" }

// alive says which processes have ended.
func (w *world) alive() {
	for _, name := range honest() {
		if how := w.regions[name].ended(); how != "" && !w.loss {
			w.broken("the process of %s has ended: %s; %s", name, how, w.regions[name].panicked())
		}
	}
}

// panicked is what the process said at its end.
func (r *region) panicked() string {
	text, _ := os.ReadFile(r.log())
	at := strings.LastIndex(string(text), "panic")
	if fatal := strings.LastIndex(string(text), "fatal error"); fatal > at {
		at = fatal
	}
	if at < 0 {
		at = max(0, len(text)-300)
	}
	return fmt.Sprintf("%.300s", text[at:])
}

// counted: the lie is under the liar's name, in the metrics of one of the regions named.
func (w *world) counted(ctx context.Context, before mark, names []string) {
	err := lab.Poll(ctx, countedIn, func() error {
		unheard := fmt.Errorf("%s counted nothing against the liar", strings.Join(names, " and "))
		for _, name := range names {
			n, err := w.refused(ctx, name)
			if err != nil {
				return err
			}
			if w.regions[name].proc("") != before.process[name] {
				before.refused[name] = 0 // it was restarted
			}
			if n > before.refused[name] {
				unheard = nil
			}
		}
		return unheard
	})
	if err != nil {
		w.found("%v", err)
	}
}

// whole is what the honest regions say of each other: the link is up, and each copy that one
// has of the other's logs is complete up to an instant, not further than now, and fits.
func (w *world) whole(ctx context.Context, since time.Time) error {
	for _, name := range honest() {
		page, err := w.metrics(ctx, name)
		if err != nil {
			return err
		}
		active, up, safe := false, false, map[string]float64{}
		for _, m := range page {
			switch {
			case m.Name == lab.PolicyActive:
				active = m.Value == 1
			case m.Name == lab.LinkUp && m.Labels["peer"] == other(name):
				up = m.Value == 1
			case m.Name == lab.SafeTimeSeconds && m.Labels["target"] == name:
				safe[m.Labels["log"]] = m.Value
			case m.Name == lab.MirrorState && m.Value == 1 && m.Labels["home"] == other(name) && alarming(regions.LagState(m.Labels["state"])):
				return fmt.Errorf("%s says %s of its copy of %s", name, m.Labels["state"], m.Labels["log"])
			}
		}
		if !active || !up {
			return fmt.Errorf("%s: policy %v, link to %s %v", name, active, other(name), up)
		}
		for _, log := range lab.Copies(w.federation, name) {
			if home, _, _ := w.federation.Home(logID(log)); home == traitor {
				continue
			}
			if want := float64(since.UnixMicro()) / 1e6; !since.IsZero() && safe[log] < want {
				return fmt.Errorf("the copy of %s in %s is complete up to %.3f, want %.3f", log, name, safe[log], want)
			}
			if now := float64(time.Now().UnixMicro()) / 1e6; safe[log] > now {
				return fmt.Errorf("the copy of %s in %s is complete up to %.3f, and it is %.3f", log, name, safe[log], now)
			}
		}
	}
	return nil
}

func alarming(s regions.LagState) bool {
	switch s {
	case regions.LagIncarnation, regions.LagCursorAhead, regions.LagManifestDiffers, regions.LagPolicySkew:
		return true
	}
	return false
}

// placements is all that both honest regions say of the log that may move.
func (w *world) placements(ctx context.Context) (string, error) {
	var said []string
	for _, name := range honest() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		m, err := w.regions[name].desk.Placements(ctx, "catalog", "")
		cancel()
		if err != nil {
			return "", err
		}
		if a := m.GetAuthority(); !a.GetReached() || a.GetLeader() == "" && a.GetRole() == "voter" || len(a.GetRivals()) > 0 || a.GetTrouble() != "" || a.GetGeneration() != 1 {
			return "", fmt.Errorf("the authority that %s knows: %.300v", name, a)
		}
		for _, l := range m.GetLogs() {
			if !l.GetKnown() || l.GetStatus() != "ACTIVE" {
				return "", fmt.Errorf("%s: %v", name, l)
			}
			l.Explain = nil
			said = append(said, fmt.Sprintf("%s: votes %v; %s of %s in %s, %s, to %v, of %v, %d past, tails %d, %s", name, m.GetAuthority().GetVoting(), l.GetIncarnation(), wire.EpochFromProto(l.GetEpoch()), l.GetHome(),
				l.GetStatus(), l.GetTargets(), l.GetAllowed(), len(l.GetHistory()), len(l.GetTails()), l.GetRefused()))
		}
		if len(m.GetLogs()) != 1 {
			return "", fmt.Errorf("%s knows of %d logs that may move", name, len(m.GetLogs()))
		}
	}
	return strings.Join(said, "; "), nil
}

// printable: no text of the liar's reaches an answer to people as it came.
func (w *world) printable(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	status, err := w.regions[name].desk.Status(ctx)
	if err != nil {
		w.found("%s has no status: %v", name, err)
		return
	}
	var answers []proto.Message
	answers = append(answers, status)
	err = w.regions[name].desk.Lag(ctx, &pb.LagRequest{}, func(m *pb.LagResponse) error { answers = append(answers, m); return nil })
	if err != nil {
		w.found("%s has no lag: %v", name, err)
	}
	for _, m := range answers {
		walk(m.ProtoReflect(), "", func(field, text string) {
			if said := name + field + text; (raw(text) || len(text) > 8*longest) && !w.shown[said] {
				w.shown[said] = true // it stays, and is this lie's
				w.found("%s shows at %s what the liar said: %.60q, %d bytes", name, field, text, len(text))
			}
		})
	}
	if _, err := protojson.Marshal(status); err != nil {
		w.found("the status of %s can't be written: %v", name, err)
	}
}

// walk gives every text of a message.
func walk(m protoreflect.Message, path string, see func(field, text string)) {
	one := func(path string, f protoreflect.FieldDescriptor, v protoreflect.Value) {
		switch f.Kind() {
		case protoreflect.StringKind:
			see(path, v.String())
		case protoreflect.MessageKind:
			walk(v.Message(), path, see)
		}
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at := path + "." + string(f.Name())
		switch {
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				see(at, k.String())
				one(at, f.MapValue(), v)
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				one(at, f, v.List().Get(i))
			}
		default:
			one(at, f, v)
		}
		return true
	})
}

// again ends both honest processes, one well and one by SIGKILL, starts them, and reads all
// their logs: everything that was acknowledged is there, and nothing is damaged.
func (w *world) again(ctx context.Context) {
	if w.loss {
		return
	}
	if err := w.regions[west].stop(); err != nil {
		w.broken("%v", err)
	}
	w.regions[central].kill()
	for _, name := range honest() {
		if err := w.regions[name].start(); err != nil {
			w.broken("start %s: %v", name, err)
		}
	}
	since := time.Now()
	if err := lab.Poll(ctx, time.Minute, func() error {
		if w.alive(); w.loss {
			return nil
		}
		return errors.Join(w.trade.after(since), w.whole(ctx, since))
	}); err != nil {
		w.broken("after a restart: %v%s", err, w.logs())
	}
	if w.loss {
		return
	}
	for _, name := range honest() {
		err := w.regions[name].desk.VerifyTopic(ctx, &pb.VerifyTopicRequest{}, func(m *pb.VerifyTopicResponse) error {
			if m.GetDamaged() > 0 || m.GetMarkersDamaged() > 0 || m.GetStopped() != "" {
				w.found("%s finds its log %s damaged: %d, %d, %s", name, wire.LogFromProto(m.GetLog()), m.GetDamaged(), m.GetMarkersDamaged(), m.GetStopped())
			}
			return nil
		})
		if err != nil {
			w.found("%s can't read its logs: %v", name, err)
		}
	}
}

// over ends everything and holds the stores against what producers were told.
func (w *world) over(ctx context.Context) {
	since := time.Now()
	if !w.loss {
		if err := lab.Poll(ctx, soon, func() error { return w.whole(ctx, since) }); err != nil {
			w.found("at the end: %v", err)
		}
	}
	w.trade.end()
	if !w.loss {
		since = time.Now()
		if err := lab.Poll(ctx, soon, func() error { return w.whole(ctx, since) }); err != nil {
			w.found("the copies do not catch up: %v", err)
		}
	}
	w.liar.down()
	for _, name := range honest() {
		if err := w.regions[name].stop(); err != nil && !w.loss {
			w.found("%v", err)
		}
	}
	w.settled(ctx)
}

// take gives what was found since the last time.
func (w *world) take() []string {
	found := w.findings
	w.findings = nil
	return found
}

// strike is an honest fault: it has a region stop, end, hang or lose its link for a while.
func (w *world) strike(ctx context.Context, kind int, name string) (string, error) {
	r := w.regions[name]
	switch kind % 4 {
	case 0:
		r.kill()
		return "kill " + name, r.start()
	case 1:
		return "restart " + name, errors.Join(r.stop(), r.start())
	case 2:
		r.signal(syscall.SIGSTOP)
		err := lab.Pass(ctx, time.Second)
		r.signal(syscall.SIGCONT)
		return "hang " + name, err
	}
	r.signal(syscall.SIGUSR1)
	return "cut " + name + " from " + other(name), lab.Pass(ctx, cutFor)
}
