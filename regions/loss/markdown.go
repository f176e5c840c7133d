package loss

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// listed is how many records a text names; the JSON has them all.
const listed = 20

// Markdown is the report for people. What is not known is called unknown.
func (r *Report) Markdown() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	m := &r.Move
	line("# What the move of %s left behind", m.Log)
	line("")
	line("From %s (epoch %s) to %s (epoch %s), cut after sequence %d. Made by %s at %s.", m.Old.Region, m.Old.Epoch, m.New.Region, m.New.Epoch, m.Cut, r.By, instant(&r.Made))
	line("")
	line("| | |\n|---|---|")
	line("| every record is here that was stored before | %s |", instant(r.SafeTime))
	line("| not here all the same | %s |", r.Below)
	line("| up to there compared with the old home | %s |", m.compared())
	line("| the old home stopped by | %s |", r.stopped())
	line("| last heard of the old home | %s |", instant(r.Heard))
	line("| its log ended then at | %s |", number(r.Head))
	line("| named missing | %s |", r.named())
	line("| unknown up to there | %s |", r.unknown())
	line("| missing up to there, at most | %s |", number(r.AtMost))
	line("| missing behind it | %s |", r.behind())
	line("| kept in the old home by policy, not lost | %s |", r.kept())
	for _, kind := range sortedKeys(r.Gone) {
		line("| %s in the old home before | %d |", kind, r.Gone[kind])
	}
	if r.Truth != nil {
		r.Truth.markdown(line)
	} else if len(r.Missing) > 0 {
		line("\n## Named missing\n\n| sequence | id (hash) | stored | bytes |\n|---|---|---|---|")
		for _, x := range r.Missing[:min(listed, len(r.Missing))] {
			line("| %d | %s | %s | %d |", x.Sequence, x.Hash, instant(&x.Time), x.Bytes)
		}
		more(line, len(r.Missing))
	}
	return b.String()
}

func (t *Truth) markdown(line func(string, ...any)) {
	line("\n## What the old home has beyond the cut\n\n| | |\n|---|---|")
	line("| records | %d, sequences %d to %d, %d bytes |", t.Tail.Records, t.Tail.From, t.Tail.To, t.Tail.Bytes)
	for _, fate := range Fates() {
		line("| %s | %d |", fate, t.Fates[fate])
	}
	line("| sequences without a record | %d |", t.Gaps)
	line("| named missing and not there: lost | %d |", t.Lost)
	line("\n## What was said at the cut\n\n| claim | | |\n|---|---|---|")
	for _, c := range t.Claims {
		verdict := "holds"
		if !c.Holds {
			verdict = "FALSE"
		}
		line("| %s | %s | %s |", c.Claim, verdict, c.Why)
	}
	if len(t.Records) == 0 {
		return
	}
	line("\n## The records\n\n| sequence | id (hash) | stored | bytes | fate | where |\n|---|---|---|---|---|---|")
	for _, f := range t.Records[:min(listed, len(t.Records))] {
		line("| %d | %s | %s | %d | %s | %s |", f.Sequence, f.Hash, instant(&f.Time), f.Bytes, strings.TrimSpace(string(f.Fate)+" "+f.Code), f.Where)
	}
	more(line, len(t.Records))
}

func more(line func(string, ...any), n int) {
	if n > listed {
		line("\n%d more are in the JSON form.", n-listed)
	}
}

func (r *Report) stopped() string {
	if r.Stopped == nil {
		return "unknown: it may have gone on"
	}
	return fmt.Sprintf("%s (± %s)", instant(r.Stopped), r.ClockError)
}

func (m *Move) compared() string {
	if m.Compared {
		return "yes, and the same"
	}
	return "not compared"
}

const nothingTold = "unknown: nothing was told"

func (r *Report) named() string {
	if r.Head == nil {
		return nothingTold
	}
	return fmt.Sprint(len(r.Missing))
}

func (r *Report) kept() string {
	if r.Head == nil {
		return nothingTold
	}
	return fmt.Sprintf("%d, and any among the unknown", Count(r.Kept))
}

func (r *Report) unknown() string {
	if r.Head == nil {
		return "unknown"
	}
	return fmt.Sprint(Count(r.Unknown))
}

// behind is what may be missing behind the last that was heard of the old home.
func (r *Report) behind() string {
	switch {
	case r.Whole():
		return "nothing: it was complete when it stopped"
	case r.Stopped == nil && r.Closed == nil:
		return "unknown, without a bound"
	case r.Stopped == nil:
		return "unknown: whatever was stored after " + instant(r.Closed)
	case r.Closed == nil:
		return "unknown: whatever was stored until " + instant(r.Stopped)
	}
	return fmt.Sprintf("unknown: whatever was stored in %s", max(0, r.Stopped.Add(r.ClockError).Sub(*r.Closed)))
}

func instant(t *time.Time) string {
	if t == nil {
		return "unknown"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

func number(n *uint64) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}

func sortedKeys(m map[string]uint64) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
