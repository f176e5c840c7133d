package failover_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"domicile/api"
	"domicile/gateway/failover"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// counted is a log that counts the items it gives out.
type counted struct {
	regions.Log
	given int
	fails bool
}

type counting struct {
	regions.Reader
	of *counted
}

func (c *counted) Reader(ctx context.Context, after uint64) (regions.Reader, error) {
	r, err := c.Log.Reader(ctx, after)
	return counting{r, c}, err
}

func (c counting) Next(ctx context.Context, l regions.ReadLimit) ([]regions.Item, error) {
	if c.of.fails {
		return nil, errors.New("the disk does not answer")
	}
	items, err := c.Reader.Next(ctx, l)
	c.of.given += len(items)
	return items, err
}

func epochOf(n int) api.Epoch {
	if n == 1 {
		return api.StaticEpoch("here")
	}
	return api.Epoch{Term: 1, Counter: uint64(n), Issuer: "q"}
}

// itemOf is the record at a sequence of an epoch, of one residency.
func itemOf(epoch, sequence int, residency string) regions.Item {
	return regions.Item{Sequence: uint64(sequence), Epoch: epochOf(epoch), Term: 1, Time: time.Unix(1e9, int64(sequence)).UTC(), Record: api.Record{
		ID: fmt.Sprintf("id-%d", sequence), Body: fmt.Appendf(nil, "body %d", sequence), Tags: []api.Tag{{Name: "residency", Value: residency}}}}
}

func itemsOf(epoch, from, to int, residency string) (items []regions.Item) {
	for i := from; i <= to; i++ {
		items = append(items, itemOf(epoch, i, residency))
	}
	return items
}

func apply(t *testing.T, l regions.CopyLog, items ...regions.Item) {
	t.Helper()
	for part := range slices.Chunk(items, 500) {
		if _, err := l.Apply(t.Context(), "inc", part); err != nil {
			t.Fatal(err)
		}
	}
}

func tags(t *testing.T, s *failover.Stock, l regions.Log, want ...string) {
	t.Helper()
	got, err := s.Tags(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range want {
		want[i] = "residency=" + w
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log holds %v, want %v", got, want)
	}
}

// TestR14e_EachRecordIsReadOnce: what a move asks of a log again and again costs what came
// since, and the item that shows that the log did not go back. What could not be read is not
// passed over.
func TestR14e_EachRecordIsReadOnce(t *testing.T) {
	l := fabrictest.Copy(t, fabrictest.Open(t), "orders@here")
	c, s := &counted{Log: l}, &failover.Stock{}
	apply(t, l, itemsOf(1, 1, 2500, "eu")...)
	for range 4 {
		if _, err := s.Warm(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	tags(t, s, c, "eu")
	apply(t, l, itemOf(1, 2501, "us"))
	c.fails = true
	if _, err := s.Tags(t.Context(), c); err == nil {
		t.Error("a log that can't be read is judged")
	}
	c.fails = false
	tags(t, s, c, "eu", "us")
	tags(t, s, c, "eu", "us")
	s.Retain(func(id api.LogID) bool { return id == c.ID() })
	tags(t, s, c, "eu", "us")
	if c.given > 2501+7 {
		t.Errorf("%d items were read of 2501", c.given)
	}
	s.Retain(func(api.LogID) bool { return false })
	tags(t, s, c, "eu", "us")
	if c.given < 2*2501 {
		t.Errorf("%d items were read; what was forgotten has to be read anew", c.given)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Tags(ctx, c); err == nil {
		t.Error("a reading that ran out of time is an answer")
	}
}

// TestR14g_ALogThatWentBackIsReadAnew: sequences beyond the end of an epoch are given a
// second time. What they were the first time is void, and what they are now is judged.
func TestR14g_ALogThatWentBackIsReadAnew(t *testing.T) {
	f := fabrictest.Open(t)
	l := fabrictest.Copy(t, f, "orders@here")
	s, away := &failover.Stock{}, &failover.Stock{}
	apply(t, l, itemsOf(1, 1, 5, "eu")...)
	apply(t, l, itemsOf(1, 6, 10, "us")...)
	tags(t, s, l, "eu", "us")
	tags(t, away, l, "eu", "us")
	if err := f.Learn(t.Context(), l.ID(), regions.History{{Epoch: epochOf(1), End: 5}, {Epoch: epochOf(2), Open: true}}); err != nil {
		t.Fatal(err)
	}
	tags(t, s, l, "eu")
	apply(t, l, itemsOf(2, 6, 8, "in")...)
	apply(t, l, itemsOf(2, 9, 10, "eu")...)
	tags(t, s, l, "eu", "in")
	tags(t, away, l, "eu", "in") // it did not look while the log was shorter
	if err := f.CloseLog(t.Context(), l.ID()); err != nil {
		t.Fatal(err)
	}
	again, err := f.Copy(t.Context(), fabric.LogConfig{ID: l.ID(), MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{Log: again}
	tags(t, s, c, "eu", "in")
	if c.given > 1 {
		t.Errorf("a log that was opened anew was read anew: %d items", c.given)
	}
}

// TestR14e_ACopyIsHeldAgainstItsHome: a copy of the same records matches, whatever retention
// took of either; one with another record, or without one, does not.
func TestR14e_ACopyIsHeldAgainstItsHome(t *testing.T) {
	const n = 5000
	all := itemsOf(1, 1, n, "eu")
	other := slices.Clone(all)
	other[4200].Record.Body = []byte("something else")
	without := append(slices.Clone(all[:4199]), regions.Item{Sequence: 4200, Epoch: epochOf(1), Gap: &regions.Gap{Kind: regions.Withheld, From: 4200, To: 4200}})
	without = append(without, all[4200:]...)
	endless := append(slices.Clone(all[:n-1]), regions.Item{Sequence: n, Epoch: epochOf(1), Gap: &regions.Gap{Kind: regions.Withheld, From: n, To: n}})
	late := append([]regions.Item{{Sequence: 900, Epoch: epochOf(1), Gap: &regions.Gap{Kind: regions.Expired, From: 1, To: 900}}}, all[900:]...)
	f := fabrictest.Open(t)
	s := &failover.Stock{}
	copyOf := func(name string, items []regions.Item) regions.CopyLog {
		l := fabrictest.Copy(t, f, name+"@here")
		apply(t, l, items...)
		return l
	}
	home := copyOf("home", all)
	whole, err := s.Sum(t.Context(), home)
	if err != nil || whole == "" {
		t.Fatal(whole, err)
	}
	began, changed := copyOf("began", late), copyOf("changed", other)
	part, err := s.Sum(t.Context(), began)
	if err != nil || part == "" {
		t.Fatal(part, err)
	}
	for _, c := range []struct {
		log  regions.Log
		sum  string
		want failover.Match
	}{
		{copyOf("same", all), whole, failover.Same}, {home, part, failover.Same},
		{changed, whole, failover.Different}, {changed, part, failover.Different},
		{copyOf("without", without), whole, failover.Different}, {copyOf("endless", endless), part, failover.Different},
		{copyOf("short", all[:4999]), whole, failover.Different},
		{began, whole, failover.NotCompared}, {home, "", failover.NotCompared}, {home, "nonsense", failover.NotCompared},
	} {
		got, err := s.Matches(t.Context(), c.log, c.sum)
		if err != nil || got != c.want {
			t.Errorf("%s beside %s is %q, want %q: %v", c.log.ID(), c.sum, got, c.want, err)
		}
	}
}

// TestR14e_TagsAreBounded: a log with more different tags than are kept is not judged, however
// often it is asked, and no more are kept for it; once retention has taken some of them it is.
func TestR14e_TagsAreBounded(t *testing.T) {
	const kept = 10_000
	items := make([]regions.Item, kept+1)
	for i := range items {
		items[i] = itemOf(1, i+1, fmt.Sprint(i))
	}
	f := fabrictest.Open(t)
	l := fabrictest.Copy(t, f, "orders@here")
	apply(t, l, items...)
	s := &failover.Stock{}
	for range 3 {
		if tags, err := s.Tags(t.Context(), l); api.CodeOf(err) != api.Overloaded {
			t.Fatalf("%d tags, %v", len(tags), err)
		}
		if read, err := s.Warm(t.Context(), l); !read || api.CodeOf(err) != api.Overloaded {
			t.Fatal(read, err)
		}
	}
	if _, err := f.Purge(t.Context(), l.ID(), 10); err != nil {
		t.Fatal(err)
	}
	if tags, err := s.Tags(t.Context(), l); err != nil || len(tags) != kept-9 {
		t.Errorf("%d tags, %v", len(tags), err)
	}
}
