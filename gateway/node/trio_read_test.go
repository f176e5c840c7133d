package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
)

// insistOn publishes at a door until the record is acknowledged.
func (r *trio) insistOn(name string, rec api.Record) {
	r.t.Helper()
	c := dial(r.t, r.configs[name].Listen.Door)
	if err := lab.Poll(r.t.Context(), patience, func() error { _, err := c.Publish(r.t.Context(), &rec); return err }); err != nil {
		r.t.Fatalf("at %s: %v", name, err)
	}
}

// RA4: every door of a region reads what every other does, in the same order and from
// the same positions, also records as large as they may be; and a read that does not
// follow ends.
func TestRA4_ReadsAtEveryDoor(t *testing.T) {
	t.Parallel()
	r := newTrio(t)
	r.run(names[:]...)
	holder := r.holder()
	const n = 40
	for i := range n {
		rec := euOrder(fmt.Sprint("id-", i))
		if i%10 == 9 {
			rec.Body = []byte(strings.Repeat("x", api.MaxBody))
		}
		r.insistOn(names[i%3], rec)
	}
	var want []string
	for _, name := range append([]string{holder}, r.others(holder)...) {
		c := dial(t, r.configs[name].Listen.Door)
		var got []string
		var middle string
		collect := func(b *pb.ReadResponse) error {
			for _, x := range b.GetRecords() {
				got = append(got, fmt.Sprintf("%d %s %d", x.GetSequence(), x.GetRecord().GetId(), len(x.GetRecord().GetBody())))
			}
			if len(got) < n/2 {
				middle = b.GetPosition()
			}
			if len(b.GetLogs()) != 1 || b.GetLogs()[0].GetState() != "HOME" || !b.GetLogs()[0].GetStalenessKnown() {
				t.Errorf("at %s: the state of the log is %v", name, b.GetLogs())
			}
			return nil
		}
		if err := lab.Poll(t.Context(), patience, func() error {
			got = nil
			return c.Read(t.Context(), &pb.ReadRequest{Topic: "orders", MaxRecords: 7}, collect)
		}); err != nil {
			t.Fatalf("at %s: %v", name, err)
		}
		if name == holder {
			want = got
		}
		if len(got) != n || !slices.Equal(got, want) {
			t.Errorf("at %s: %v\nat the holder: %v", name, got, want)
		}
		got = nil
		if err := c.Read(t.Context(), &pb.ReadRequest{Topic: "orders", From: &pb.ReadRequest_Position{Position: middle}}, collect); err != nil ||
			len(got) == 0 || !slices.Equal(got, want[n-len(got):]) {
			t.Errorf("at %s, from a position: %v %v", name, got, err)
		}
		if err := c.Read(t.Context(), &pb.ReadRequest{Topic: "nothing"}, collect); api.CodeOf(err) != api.UnknownTopic {
			t.Errorf("at %s: %v", name, err)
		}
	}
}

// RA4: a reader at a door without the seat goes on when the holder is gone. No record is
// left out, and none comes twice.
func TestRA4_AReaderGoesOnAtTheNextHolder(t *testing.T) {
	t.Parallel()
	r := newTrio(t)
	r.run(names[:]...)
	holder := r.holder()
	door := r.others(holder)[0]
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var got []string
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	reader, err := client.New(client.Config{Addresses: []string{r.configs[door].Listen.Door}})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	group.Go(func() {
		q := &pb.ReadRequest{Topic: "orders", Follow: true}
		for ctx.Err() == nil { // a busy machine may take longer than the client's patience
			err := reader.Read(ctx, q, func(b *pb.ReadResponse) error {
				mu.Lock()
				defer mu.Unlock()
				for _, x := range b.GetRecords() {
					got = append(got, x.GetRecord().GetId())
				}
				q.From = &pb.ReadRequest_Position{Position: b.GetPosition()}
				return nil
			})
			if ctx.Err() == nil && !api.CodeOf(err).Retryable() {
				t.Errorf("the reader ended: %v", err)
				return
			}
		}
	})
	var want []string
	publish := func(n int) {
		for range n {
			id := fmt.Sprint("id-", len(want))
			r.insistOn(door, euOrder(id))
			want = append(want, id)
		}
	}
	publish(10)
	r.halt(holder)
	publish(10)
	r.run(holder)
	if next := r.holder(); next != door {
		r.halt(next)
	}
	publish(10)
	if err := lab.Poll(t.Context(), patience, func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(got) < len(want) {
			return fmt.Errorf("%d of %d records were read", len(got), len(want))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(got, want) {
		t.Errorf("read %v\nwant %v", got, want)
	}
}
