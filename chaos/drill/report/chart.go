package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The drawing of a chart, in its own units: a text of 12 is legible on a telephone.
const (
	chartWide  = 420.0
	chartHigh  = 220.0
	chartLeft  = 44.0
	chartRight = 8.0
	chartTop   = 10.0
	chartFoot  = 30.0
)

// chart is the lags of one log, one line a target.
type chart struct {
	Log, Home string
	Words     string // for those who do not see it
	Lines     []line
	X, Y      []grade
	Cut       *band
	Wide      float64
	High      float64
	Left      float64
	Floor     float64 // y of zero
	End       float64 // x of the right edge
	Top       float64
	Foot      float64 // y of the words below
	Plot      float64 // height of the field
	Gutter    float64 // x of the words to the left
	Strip     float64 // y of the marks for what is unknown
}

// line is one target's lag. Its class gives it a colour and a dash of its own.
type line struct {
	Target string
	Class  int
	Paths  []string // parts without a gap
	Gaps   []band   // where the figure was unknown
	Most   string
}

type grade struct {
	At   float64
	Text string
}

type band struct{ From, Wide float64 }

// curve is what one target said of a log, whichever region was its home then.
type curve struct {
	target string
	points []Point
	parted bool
	most   *float64
	when   time.Duration // of the last figure while cut off
}

// charts draws every log that the cut parted from one of its copies.
func (r *Report) charts() []chart {
	if r.Cut == nil {
		return nil
	}
	var out []chart
	for i := 0; i < len(r.Lags); {
		k := i
		for k < len(r.Lags) && r.Lags[k].Log == r.Lags[i].Log {
			k++
		}
		if slices.ContainsFunc(r.Lags[i:k], func(l Lag) bool { return l.Parted }) {
			out = append(out, r.chart(r.Lags[i:k]))
		}
		i = k
	}
	return out
}

// curves joins what a target said while the log had one home and then another.
func (r *Report) curves(lags []Lag) (out []curve) {
	for _, l := range lags {
		i := slices.IndexFunc(out, func(c curve) bool { return c.target == l.Target })
		if i < 0 {
			i, out = len(out), append(out, curve{target: l.Target})
		}
		c := &out[i]
		c.points = append(c.points, l.Points...)
		c.parted = c.parted || l.Parted
		for _, p := range l.Points {
			if l.Parted && p.Seconds != nil && p.At >= c.when && p.At >= r.Cut.Surely && p.At <= r.Cut.Until {
				c.when, c.most = p.At, p.Seconds
			}
		}
	}
	for i := range out {
		slices.SortStableFunc(out[i].points, func(a, b Point) int { return cmp.Compare(a.At, b.At) })
	}
	return out
}

func (r *Report) chart(lags []Lag) chart {
	curves := r.curves(lags)
	from, to, high := r.Took, time.Duration(0), 1.0
	var homes []string
	for _, l := range lags {
		if !slices.Contains(homes, l.Home) {
			homes = append(homes, l.Home)
		}
		for _, p := range l.Points {
			from, to = min(from, p.At), max(to, p.At)
			if p.Seconds != nil {
				high = max(high, *p.Seconds)
			}
		}
	}
	c := chart{Log: lags[0].Log, Home: strings.Join(homes, ", "), Wide: chartWide, High: chartHigh, Left: chartLeft, Floor: chartHigh - chartFoot, End: chartWide - chartRight, Top: chartTop, Foot: chartHigh - chartFoot + 16,
		Plot: chartHigh - chartFoot - chartTop, Gutter: chartLeft - 6, Strip: chartHigh - chartFoot - 5}
	step := nice(high / 4)
	top := step * math.Ceil(high/step)
	x := func(at time.Duration) float64 {
		at = min(max(at, from), to)
		return chartLeft + (chartWide-chartLeft-chartRight)*float64(at-from)/float64(max(to-from, 1))
	}
	y := func(v float64) float64 { return c.Floor - (c.Floor-chartTop)*v/top }
	for v := 0.0; v <= top+step/2; v += step {
		c.Y = append(c.Y, grade{y(v), fmt.Sprintf("%g s", v)})
	}
	wide := nice((to - from).Seconds() / 5)
	for v := math.Ceil((from-r.Cut.From).Seconds()/wide)*wide + 0; v <= (to - r.Cut.From).Seconds(); v += wide {
		c.X = append(c.X, grade{x(r.Cut.From + time.Duration(v*float64(time.Second))), fmt.Sprintf("%g", v)})
	}
	c.Cut = &band{x(r.Cut.From), x(r.Cut.Until) - x(r.Cut.From)}
	var words []string
	for i := range curves {
		l := draw(&curves[i], x, y)
		if curves[i].parted && r.Cut.Until-curves[i].when > ended {
			l.Most += " when it was last asked"
		} else if curves[i].parted {
			l.Most += " when the cut ended"
		}
		l.Class = i % 4
		c.Lines = append(c.Lines, l)
		words = append(words, l.Target+" "+l.Most)
	}
	c.Words = "Lag of " + c.Log + " in seconds over time: " + strings.Join(words, ", ")
	return c
}

// ended is how long before the end of the cut the last figure may lie that counts as its end.
const ended = 3 * time.Second

// draw makes a target's lines. Where nobody knows the lag there is none, and the stretch is
// marked as what it is.
func draw(l *curve, x func(time.Duration) float64, y func(float64) float64) line {
	out := line{Target: l.target, Most: "not cut off"}
	if l.parted {
		out.Most = seconds(l.most)
	}
	var part strings.Builder
	end := func() {
		if part.Len() > 0 {
			out.Paths = append(out.Paths, part.String())
			part.Reset()
		}
	}
	hole := spacing(l.points) * 4
	for i, p := range l.points {
		if i > 0 && p.At-l.points[i-1].At > hole {
			end() // it was the home itself, or was not asked
		}
		if p.Seconds == nil {
			end()
			if i+1 < len(l.points) {
				out.Gaps = append(out.Gaps, band{x(p.At), x(l.points[i+1].At) - x(p.At)})
			}
			continue
		}
		verb := "L"
		if part.Len() == 0 {
			verb = "M"
		}
		fmt.Fprintf(&part, "%s%.1f %.1f", verb, x(p.At), y(*p.Seconds))
	}
	end()
	return out
}

// spacing is the usual time between two points.
func spacing(points []Point) time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(points); i++ {
		gaps = append(gaps, points[i].At-points[i-1].At)
	}
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}

// nice is the next of 1, 2 and 5 times a power of ten.
func nice(v float64) float64 {
	if v <= 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if v <= f*power {
			return f * power
		}
	}
	return 10 * power
}
