package regions

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Drills says whether, when and for how long people may cut links of the federation on
// purpose. The field tags are federation.yaml's. Without it nobody may.
type Drills struct {
	Approvals int           `yaml:"approvals"` // people, besides the one who asks, that a drill needs
	MaxFor    time.Duration `yaml:"max_for"`   // the longest cut; it is over then, whoever renews it
	Windows   []Window      `yaml:"windows"`   // when a cut may be made, UTC; none: at any time
}

// Bounds of what a manifest may permit.
const (
	maxDrill          = 24 * time.Hour
	maxDrillApprovals = 5
	maxWindows        = 32
)

// Window is a span of the day on some days of the week, UTC: "Mon-Fri 09:00-16:00". It does
// not pass midnight.
type Window struct {
	first, last time.Weekday
	from, until time.Duration // since midnight
}

var weekdays = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// UnmarshalText reads "Mon-Fri 09:00-16:00" or "Sat 09:00-16:00".
func (w *Window) UnmarshalText(text []byte) error {
	days, hours, ok := strings.Cut(string(text), " ")
	first, last, span := strings.Cut(days, "-")
	if !span {
		last = first
	}
	from, until, both := strings.Cut(hours, "-")
	next := Window{first: time.Weekday(slices.Index(weekdays, first)), last: time.Weekday(slices.Index(weekdays, last))}
	var err1, err2 error
	next.from, err1 = timeOfDay(from)
	next.until, err2 = timeOfDay(until)
	if !ok || !both || next.first < 0 || next.last < 0 || err1 != nil || err2 != nil || next.from >= next.until {
		return fmt.Errorf("window %q: write days and hours in UTC, as Mon-Fri 09:00-16:00; a window ends before midnight", text)
	}
	*w = next
	return nil
}

func timeOfDay(text string) (time.Duration, error) {
	h, m, ok := strings.Cut(text, ":")
	hour, err1 := strconv.ParseUint(h, 10, 8)
	minute, err2 := strconv.ParseUint(m, 10, 8)
	if !ok || len(h) != 2 || len(m) != 2 || err1 != nil || err2 != nil || minute > 59 || hour > 24 || hour == 24 && minute > 0 {
		return 0, fmt.Errorf("time %q", text)
	}
	return time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute, nil
}

// String is the form that UnmarshalText reads.
func (w Window) String() string {
	days := weekdays[w.first]
	if w.last != w.first {
		days += "-" + weekdays[w.last]
	}
	hm := func(d time.Duration) string { return fmt.Sprintf("%02d:%02d", int(d.Hours()), int(d.Minutes())%60) }
	return days + " " + hm(w.from) + "-" + hm(w.until)
}

// holds reports whether an instant lies in the window.
func (w Window) holds(at time.Time) bool {
	at = at.UTC()
	day := at.Weekday()
	in := day >= w.first && day <= w.last
	if w.first > w.last { // over the end of the week
		in = day >= w.first || day <= w.last
	}
	since := time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute + time.Duration(at.Second())*time.Second
	return in && since >= w.from && since < w.until
}

// Holds reports whether a drill may cut at the instant and for so long, by the windows
// alone: all of the time has to lie in one of them.
func (d *Drills) Holds(at time.Time, long time.Duration) bool {
	if len(d.Windows) == 0 {
		return true
	}
	return slices.ContainsFunc(d.Windows, func(w Window) bool {
		end := at.Add(max(long-time.Nanosecond, 0))
		return w.holds(at) && w.holds(end) && at.UTC().YearDay() == end.UTC().YearDay()
	})
}

// WindowsText lists the windows for people.
func (d *Drills) WindowsText() string {
	out := make([]string, len(d.Windows))
	for i, w := range d.Windows {
		out[i] = w.String()
	}
	return strings.Join(out, ", ")
}

// String is the canonical form, part of the manifest's digest.
func (d *Drills) String() string {
	return fmt.Sprintf("approvals=%d max_for=%s windows=%s", d.Approvals, d.MaxFor, d.WindowsText())
}

func (m *manifestFile) addDrills(f *state) error {
	d := m.Drills
	if d == nil {
		return nil
	}
	switch {
	case d.Approvals < 0 || d.Approvals > maxDrillApprovals:
		return bad("drills.approvals", strconv.Itoa(d.Approvals), fmt.Sprintf("0 to %d people besides the one who asks", maxDrillApprovals))
	case d.MaxFor <= 0 || d.MaxFor > maxDrill:
		return bad("drills.max_for", d.MaxFor.String(), "how long a cut may last at most, as 15m; up to "+Span(maxDrill))
	case len(d.Windows) > maxWindows:
		return bad("drills.windows", strconv.Itoa(len(d.Windows)), fmt.Sprintf("at most %d windows", maxWindows))
	}
	f.drills = d
	return nil
}

// Drills is what the manifest permits of drills; nil: none. It must not be changed.
func (f *Federation) Drills() *Drills { return f.now.Load().drills }
