package fabric

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
	"domicile/regions"
)

// The control stream of a quorum region holds what its nodes must agree on: who the
// region is, who holds the seat, which logs it was ever given. Its name can be no log's:
// streamName never makes "_co".
const (
	controlStream = "_control"
	subjectWho    = "s.who"
	subjectSeat   = "s.seat"
	subjectLog    = "s.log." // and the log's stream
	controlBytes  = 64 << 20
)

// who is the region's identity as all its nodes share it.
type who struct {
	Fabric  string `json:"fabric"`
	HashKey string `json:"hash_key"`
}

// seatRecord is one taking of the seat. That it is committed is the proof of it.
type seatRecord struct {
	Term uint64 `json:"term"`
	Node string `json:"node"`
}

// openControl finds the control stream, or makes it when the region is new.
func (f *Fabric) openControl(ctx context.Context) (jetstream.Stream, error) {
	b, err := f.running()
	if err != nil {
		return nil, err
	}
	s, err := b.js.Stream(ctx, controlStream)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return s, err
	}
	if f.ID() != "" {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "open region", Field: "logs", Value: controlStream,
			Hint: "the region's nodes no longer hold its control stream: restore their data directories from a backup; it is never made anew"}
	}
	return b.js.CreateStream(ctx, jetstream.StreamConfig{Name: controlStream, Subjects: []string{"s.>"},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		MaxBytes: controlBytes, MaxMsgsPerSubject: 8, MaxMsgs: -1, MaxMsgSize: -1, MaxConsumers: -1,
		Replicas: regions.QuorumNodes, Duplicates: duplicateWindow,
		Metadata: map[string]string{metaFormat: fmt.Sprint(formatVersion), metaKind: "control"}})
}

// readControl is the last record of a subject, false if there is none.
func readControl(ctx context.Context, s jetstream.Stream, subject string, v any) (bool, error) {
	m, err := s.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(m.Data, v); err != nil {
		return true, fmt.Errorf("%w: %s: %w", errGarbled, subject, err)
	}
	return true, nil
}

// appendControl appends a record that expects its place, and returns once it is committed.
func (f *Fabric) appendControl(ctx context.Context, subject string, v any, expect jetstream.PublishOpt) (uint64, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	a, err := f.broker.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: b}, expect, jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, err
	}
	return a.Sequence, nil
}

// errGarbled is of a record of the control stream that is not what a node wrote.
var errGarbled = errors.New("a record of the region's control stream is unreadable")

// settleIdentity makes the region's id and hash key once, and holds this node's mark
// against them ever after.
func (f *Fabric) settleIdentity(ctx context.Context, s jetstream.Stream) error {
	if f.settled.Load() {
		return nil
	}
	var w who
	found, err := readControl(ctx, s, subjectWho, &w)
	if id := f.identity(); errors.Is(err, errGarbled) && id.Fabric != "" {
		f.cfg.Logger.Error("the region's identity is taken from this node's own mark", "error", err)
		w, err = who{id.Fabric, id.HashKey}, nil
	}
	if err != nil {
		return err
	}
	if !found {
		if w.Fabric, w.HashKey, err = newKeys(); err != nil {
			return err
		}
		if _, err := f.appendControl(ctx, subjectWho, w, jetstream.WithExpectLastSequencePerSubject(0)); err != nil {
			return err // when another node was first, the next look finds its word
		}
	}
	return f.adoptIdentity(w)
}

func (f *Fabric) adoptIdentity(w who) error {
	key, err := hex.DecodeString(w.HashKey)
	if err != nil || len(key) != hashKeySize || w.Fabric == "" {
		return refuse("hash_key", "", "the region's identity in its control stream is damaged: restore the nodes from a backup", err)
	}
	switch id := f.identity(); {
	case id.Fabric == "":
		if err := f.changeIdentity(func(id *identity) { id.Fabric, id.HashKey = w.Fabric, w.HashKey }); err != nil {
			return err
		}
	case id.Fabric != w.Fabric || id.HashKey != w.HashKey:
		return refuse("fabric", w.Fabric, "this data directory is of another region's node, though of the same name: give the node its own directory back", nil)
	}
	f.mu.Lock()
	f.hash = newHasher(key)
	f.mu.Unlock()
	f.settled.Store(true)
	return nil
}

// enlist enters a log in the region's list. It expects the entry that this node knows; a
// node that lost the seat meanwhile changes nothing.
func (f *Fabric) enlist(stream string, e logEntry) error {
	if f.cfg.Cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	f.mu.Lock()
	at := f.listed[stream]
	f.mu.Unlock()
	if at.entry == e {
		return nil
	}
	seq, err := f.appendControl(ctx, subjectLog+stream, e, jetstream.WithExpectLastSequencePerSubject(at.sequence))
	if err != nil {
		// It may be there all the same. The seat goes; who takes it next reads the list anew.
		f.yield()
		return &api.Error{Code: api.NotReady, Op: "change the region's list of logs", Region: f.cfg.Region, Field: "log", Value: e.Log,
			RetryAfter: f.cfg.Pace.Of(time.Second), Hint: "the region's nodes did not agree in time, or another one holds the seat: try again", Err: err}
	}
	f.mu.Lock()
	f.listed[stream] = listedLog{seq, e}
	f.mu.Unlock()
	return nil
}

// listedLog is an entry of the region's list, and its place in the control stream.
type listedLog struct {
	sequence uint64
	entry    logEntry
}

// readList takes the region's list over as this node's own.
func (f *Fabric) readList(ctx context.Context, s jetstream.Stream) error {
	f.mu.Lock()
	was := maps.Clone(f.known)
	f.mu.Unlock()
	all := map[string]listedLog{}
	for next := uint64(1); ; {
		m, err := s.GetMsg(ctx, next, jetstream.WithGetMsgSubject(subjectLog+">"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return err
		}
		at := listedLog{sequence: m.Sequence}
		stream := strings.TrimPrefix(m.Subject, subjectLog)
		if err := json.Unmarshal(m.Data, &at.entry); err != nil {
			// That one log stays shut: whether it was deleted, or how often it was made, is not known.
			var had bool
			at.entry, had = was[stream]
			f.shutLog(stream, f.damagedLog(at.entry.Log, "its entry in the region's list of logs is unreadable: restore the nodes from a backup", err))
			if !had {
				next = m.Sequence + 1
				continue
			}
		}
		all[stream] = at
		next = m.Sequence + 1
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed, f.known = all, map[string]logEntry{}
	for stream, at := range all {
		f.known[stream] = at.entry
	}
	return writeJSON(f.path(logsFile), f.known)
}
