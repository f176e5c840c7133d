package fabric

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
)

// CutWire breaks the writers' connection, as a lost connection would.
func (f *Fabric) CutWire() {
	f.wireMu.Lock()
	defer f.wireMu.Unlock()
	if f.wired != nil {
		f.wired.shut()
	}
}

// ForeignTakeOver appends an OPEN marker as another writer would.
func (f *Fabric) ForeignTakeOver(ctx context.Context, id api.LogID, p api.Cursor, term uint64) error {
	stream, err := streamName(id)
	if err != nil {
		return err
	}
	b := appendPosition(nil, position{Incarnation: p.Incarnation, Epoch: p.Epoch, Term: term, Sequence: p.Sequence})
	value := string(b[len(headerPosition)+2 : len(b)-2])
	_, err = f.broker.js.PublishMsg(ctx, &nats.Msg{Subject: "c." + stream,
		Header: nats.Header{headerControl: {controlOpen}, headerPosition: {value}}})
	return err
}

// JetStream is the broker's own interface, for comparisons.
func (f *Fabric) JetStream() jetstream.JetStream { return f.broker.js }

// StreamName is the broker's name of a log.
func StreamName(id api.LogID) string {
	name, _ := streamName(id)
	return name
}

// DeleteStream takes a log's data away behind the store's back.
func (f *Fabric) DeleteStream(ctx context.Context, id api.LogID) error {
	return f.broker.js.DeleteStream(ctx, StreamName(id))
}

// StopBroker takes the broker away, as it is while it is started again.
func (f *Fabric) StopBroker() { f.stopBroker() }

// Fail fences the store, Restart does what the end of a passing failure does, and Waits
// says whether it still has word of a log that was given back.
func (f *Fabric) Fail(reason string, passes bool) { f.fail(reason, passes) }
func (f *Fabric) Restart() error                  { return f.restart(time.Now()) }
func (f *Fabric) Waits() bool                     { return len(f.emptied) > 0 }

// Spoilt lists the streams that are damaged on this node's disk.
func (f *Fabric) Spoilt() []string { s, _ := f.spoilt(); return s }

// FailStore is the broker's word that its store could not write.
func (f *Fabric) FailStore(why string) { f.failStore(why) }

// MisplaceListed forgets where in the control stream the region's list has a log.
func (f *Fabric) MisplaceListed(id api.LogID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.listed[StreamName(id)]
	at.sequence += 1000
	f.listed[StreamName(id)] = at
}

// KeepIDs sets how many ids of each log the index keeps however old they are.
func (f *Fabric) KeepIDs(n int) { f.indexes.least = n }

// Spoil takes a record of a log out of the new store and puts one like it in its place.
func (m *Move) Spoil(t testing.TB, log string) {
	for _, p := range m.logs {
		if p.from.cfg.ID.String() != log {
			continue
		}
		last, err := p.to.admin.GetLastMsgForSubject(context.Background(), p.to.data)
		if err == nil {
			err = p.to.admin.DeleteMsg(context.Background(), last.Sequence)
		}
		if err == nil {
			last.Header.Set(headerKey, "another")
			last.Header.Del("Nats-Expected-Last-Sequence")
			_, err = m.fresh.broker.js.PublishMsg(context.Background(), &nats.Msg{Subject: p.to.data, Header: last.Header, Data: last.Data})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// DropMarkers deletes a log's ownership markers behind the store's back.
func (f *Fabric) DropMarkers(ctx context.Context, id api.LogID) error {
	s, err := f.broker.js.Stream(ctx, StreamName(id))
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject("o."+StreamName(id)))
}

// MoveLeader has another node lead a log's stream.
func (f *Fabric) MoveLeader(ctx context.Context, id api.LogID) {
	f.handOver(ctx, StreamName(id), f.members.heir())
}
