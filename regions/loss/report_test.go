package loss

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"domicile/api"
	"domicile/regions"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// at is noon and some seconds; "" is the zero time.
func at(t *testing.T, s string) time.Time {
	if s == "" {
		return time.Time{}
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return noon.Add(time.Duration(n * float64(time.Second)))
}

func move(cut uint64) Move {
	return Move{Federation: "shop", Log: "catalog.updates@home", Incarnation: "i", Op: "op-1", Proof: "accept", Cut: cut,
		Old: Side{"eu-west", api.StaticEpoch("eu-west")}, New: Side{"us-east", api.Epoch{Term: 1, Counter: 2, Issuer: "q"}}}
}

func hash(sequence uint64) (h regions.TailHash) {
	return regions.TailKey{}.Hash(fmt.Sprint(sequence))
}

// script is one story of testdata/report: what was told before the cut, the report, what
// the old home had, the second report.
type script struct {
	t     *testing.T
	first Report
}

func (s *script) arg(d *datadriven.TestData, name string) (v string) {
	d.MaybeScanArgs(s.t, name, &v)
	return v
}

func (s *script) number(d *datadriven.TestData, name string) uint64 {
	n, _ := strconv.ParseUint(s.arg(d, name), 10, 64)
	return n
}

// span reads "7" or "7-9".
func (s *script) span(text string) (from, to uint64) {
	a, b, both := strings.Cut(text, "-")
	from, _ = strconv.ParseUint(a, 10, 64)
	if to = from; both {
		to, _ = strconv.ParseUint(b, 10, 64)
	}
	return from, to
}

// cut reads lines "record 7-9 seconds" and "withheld 10-12", one entry for each record.
func (s *script) cut(d *datadriven.TestData) string {
	in := CutInput{Move: move(s.number(d, "cut")), By: "us-east", Now: noon.Add(time.Minute), Head: s.number(d, "head"),
		SafeTime: at(s.t, s.arg(d, "safe")), Stopped: at(s.t, s.arg(d, "stopped")), Heard: at(s.t, s.arg(d, "heard")), Closed: at(s.t, s.arg(d, "closed"))}
	if below := s.arg(d, "below"); below != "unknown" { // kept/damaged
		in.Below = &Holes{}
		_, _ = fmt.Sscanf(below, "%d/%d", &in.Below.Kept, &in.Below.Damaged) // none: nothing is missing
	}
	for _, line := range strings.Fields(strings.ReplaceAll(strings.TrimSpace(d.Input), " ", "|")) {
		f := strings.Split(line, "|")
		from, to := s.span(f[1])
		if f[0] != "record" {
			in.Entries = append(in.Entries, regions.TailEntry{From: from, Sequence: to, Kind: regions.GapKind(f[0])})
			continue
		}
		for n := from; n <= to; n++ {
			in.Entries = append(in.Entries, regions.TailEntry{From: n, Sequence: n, ID: hash(n), Time: at(s.t, f[2]), Bytes: 100})
		}
	}
	s.first = Cut(in)
	return s.first.Markdown()
}

// back reads lines "7-9 seconds fate", what the old home has.
func (s *script) back(d *datadriven.TestData) string {
	in := TruthInput{First: s.first, By: "eu-west", Now: noon.Add(time.Hour)}
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		f := strings.SplitN(line, " ", 3)
		if len(f) < 3 {
			continue
		}
		from, to := s.span(f[0])
		for n := from; n <= to; n++ {
			h := hash(n)
			in.Records = append(in.Records, Found{Record: Record{Sequence: n, Hash: hex.EncodeToString(h[:]), Time: at(s.t, f[1]), Bytes: 100}, Fate: Fate(f[2])})
		}
	}
	if n := len(in.Records); n > 0 {
		in.Tail = Tail{From: in.Records[0].Sequence, To: in.Records[n-1].Sequence, Records: uint64(n), Bytes: int64(100 * n)}
		in.Tail.Count = in.Tail.To - in.Tail.From + 1
	}
	r := Compare(in)
	_, text, _ := strings.Cut(r.Markdown(), "\n## What the old home has")
	text, _, _ = strings.Cut(text, "\n## The records")
	return "What the old home has" + text + fmt.Sprintf("\nall claims hold: %v\n", r.Truth.Holds())
}

// TestR14f_ReportsOfWhatWasLeftBehind runs testdata/report.
func TestR14f_ReportsOfWhatWasLeftBehind(t *testing.T) {
	datadriven.Walk(t, "testdata/report", func(t *testing.T, path string) {
		s := &script{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "cut":
				return s.cut(d)
			case "back":
				return s.back(d)
			}
			t.Fatalf("%s: what is %q", d.Pos, d.Cmd)
			return ""
		})
	})
}

// Whatever of a tail was told before the cut, in whatever parts: what the report says is
// true of what the old home has, each sequence is accounted for once, and a report that was
// altered is found out.
func TestR14f_ReportIsTrueOfAnyTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cut := rapid.Uint64Range(0, 20).Draw(t, "cut")
		end := cut + rapid.Uint64Range(0, 40).Draw(t, "tail")
		head := rapid.Uint64Range(0, end).Draw(t, "head")
		in := CutInput{Move: move(cut), By: "us-east", Now: noon, Head: head, SafeTime: noon, Heard: noon}
		truth := TruthInput{By: "eu-west", Now: noon, Tail: Tail{Count: end - cut}}
		for n := cut + 1; n <= end; n++ {
			e := regions.TailEntry{From: n, Sequence: n, ID: hash(n), Time: noon.Add(time.Duration(n) * time.Second), Bytes: uint32(n)}
			h := hash(n)
			truth.Records = append(truth.Records, Found{Record: Record{n, hex.EncodeToString(h[:]), e.Time, e.Bytes}, Fate: Open})
			if rapid.IntRange(0, 4).Draw(t, "withheld") == 0 {
				e.Kind = regions.Withheld
			}
			if n <= head && rapid.Bool().Draw(t, "told") {
				in.Entries = append(in.Entries, e)
			}
		}
		truth.First = Cut(in)
		r := truth.First
		counted := uint64(len(r.Missing)) + Count(r.Kept) + Count(r.Unknown)
		if want := max(head, cut) - cut; counted != want {
			t.Fatalf("%d sequences are accounted for, of %d: %+v", counted, want, r)
		}
		if after := Compare(truth); !after.Truth.Holds() || after.Truth.Lost != 0 {
			t.Fatalf("%+v", after.Truth)
		}
		if len(r.Missing) == 0 {
			return
		}
		truth.First.Missing = append([]Record(nil), r.Missing...)
		spoil := &truth.First.Missing[rapid.IntRange(0, len(r.Missing)-1).Draw(t, "spoilt")]
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			spoil.Hash = "0000000000000000"
		case 1:
			spoil.Bytes++
		case 2:
			spoil.Time = spoil.Time.Add(time.Nanosecond)
		case 3:
			spoil.Sequence = end + 1
		}
		if after := Compare(truth); after.Truth.Holds() {
			t.Fatalf("not found out: %+v", spoil)
		}
	})
}
