package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"domicile/api"
	"domicile/regions"
)

// In a region of three an audit reads each node's own disk: the node with the seat leads
// through the log, and its siblings read the same row of the broker's sequences.

const callVerify = "verify"

// replicaAsk asks a sibling for a row of a log.
type replicaAsk struct {
	Log  string `json:"log"`
	Kind string `json:"kind"`
	Made uint64 `json:"made,omitempty"` // see logEntry; the list of a node without the seat may be old
	From uint64 `json:"from"`           // of the broker's sequences
	To   uint64 `json:"to"`
	// Damaged tells it that its own disk lost records of the log.
	Damaged bool `json:"damaged,omitempty"`
}

// replicaSaid is what its disk holds of it.
type replicaSaid struct {
	Bad []Range `json:"bad,omitempty"` // damaged, missing or deleted
	Sum uint32  `json:"sum"`           // over the places and checksums of the others
}

// verifyHere reads this node's own replica.
func (f *Fabric) verifyHere(ctx context.Context, _ string, body []byte) ([]byte, error) {
	var ask replicaAsk
	bad := func(err error) error {
		return &api.Error{Code: api.BadRequest, Op: "verify", Hint: "the other node asks for what this version can't read", Err: err}
	}
	if err := json.Unmarshal(body, &ask); err != nil {
		return nil, bad(err)
	}
	id, err := api.ParseLogID(ask.Log)
	if err != nil {
		return nil, bad(err)
	}
	stream, err := streamName(id)
	if err != nil {
		return nil, bad(err)
	}
	if ask.Damaged {
		return nil, f.noteSpoilt(anew(stream, ask.Made))
	}
	l := storeOf(f, LogConfig{ID: id}, ask.Kind, stream, ask.Made)
	got, err := l.ownReplica(ctx, ask.From, ask.To)
	lacks := rowsWithout(got, ask.From, ask.To)
	if err == nil && len(lacks) > 0 {
		if !f.reaches(l.stream, ask.To) {
			return nil, &api.Error{Code: api.NotReady, Op: "verify", Topic: id.Topic, Region: f.cfg.Region, RetryAfter: f.cfg.Pace.Of(spareLate),
				Hint: "this node's replica has not come that far yet, which is no damage: verify again once the node lacks nothing"}
		}
		got, err = l.ownReplica(ctx, ask.From, ask.To) // it may have come in meanwhile
		lacks = rowsWithout(got, ask.From, ask.To)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(replicaSaid{Sum: sumOf(got), Bad: lacks})
}

// reaches: this node's replica of a stream has come as far as a broker's sequence.
func (f *Fabric) reaches(stream string, to uint64) bool {
	b, err := f.running()
	if err != nil {
		return false
	}
	all, err := streamsOn(b.srv)
	return err == nil && slices.ContainsFunc(all, func(s server.StreamDetail) bool { return s.Name == stream && s.State.LastSeq >= to })
}

// ownReplica is what this node's replica gives out of a row, and is believed: from the
// broker, and what it steps over from its files.
func (l *store) ownReplica(ctx context.Context, from, to uint64) ([]*message, error) {
	var good []*message
	for at := from; at <= to; {
		got, err := l.f.readFrom(ctx, l, at, readMessages, readBytes)
		if err != nil {
			return nil, err
		}
		if len(got) == 0 {
			break
		}
		for _, m := range got {
			if m.broker <= to && m.control != controlDamaged {
				good = append(good, m)
			}
		}
		at = got[len(got)-1].broker + 1
	}
	for _, h := range rowsWithout(good, from, to) {
		found, err := l.fromBlocks(ctx, h.From, h.To, int(h.To-h.From)+1, 2*burstBytes)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			if m.control != controlDamaged {
				good = append(good, m)
			}
		}
	}
	slices.SortFunc(good, func(a, b *message) int { return int(int64(a.broker) - int64(b.broker)) })
	return good, nil
}

// rowsWithout is the rows of a range of the broker's sequences that are not among messages.
func rowsWithout(got []*message, from, to uint64) []Range {
	rows := holesIn(got, from, to)
	if n := len(got); n > 0 && got[n-1].broker < to {
		rows = append(rows, Range{got[n-1].broker + 1, to})
	}
	return rows
}

// sumOf tells whether two replicas hold the same.
func sumOf(got []*message) (sum uint32) {
	for _, m := range got {
		if m.control == controlDamaged {
			continue
		}
		sum = crc32.Update(sum, castagnoli, strconv.AppendUint(nil, m.broker, 10))
		sum = crc32.Update(sum, castagnoli, []byte(m.sum))
	}
	return sum
}

// auditReplicas holds the siblings' disks against what this node read from from to to.
func (v *Verified) auditReplicas(ctx context.Context, l *store, got []*message, from, to uint64) {
	for i := range v.Replicas {
		r := &v.Replicas[i]
		if r.Stopped != "" {
			continue
		}
		if err := r.auditReplica(ctx, l, got, from, to); err != nil {
			r.Stopped = "node " + r.Node + ": " + plain(err)
		}
	}
}

func (v *Verified) auditReplica(ctx context.Context, l *store, got []*message, from, to uint64) error {
	ask := replicaAsk{Log: l.cfg.ID.String(), Kind: l.kind, Made: l.nth, From: from, To: to}
	var said replicaSaid
	if err := l.askReplica(ctx, v.Node, ask, &said); err != nil {
		return err
	}
	lost := map[uint64]bool{}
	if len(said.Bad) > 0 {
		for _, m := range got {
			if slices.ContainsFunc(said.Bad, func(h Range) bool { return h.From <= m.broker && m.broker <= h.To }) {
				lost[m.broker] = true
			}
		}
	}
	same := slices.DeleteFunc(slices.Clone(got), func(m *message) bool { return lost[m.broker] || m.broker < from || m.broker > to })
	if sumOf(same) != said.Sum {
		return errors.New("its disk holds other records than the node with the seat: start that node with an empty directory and serve --rejoin")
	}
	l.mu.Lock()
	first := l.first // raised before retention takes anything
	l.mu.Unlock()
	for _, m := range got {
		switch {
		case lost[m.broker] && first > 1 && m.position.Sequence < first:
		case m.broker < from || m.broker > to || m.control != "" && m.control != controlGap && !lost[m.broker]:
		case m.control != "" && m.control != controlGap:
			v.Markers++
		case lost[m.broker]:
			v.lose(Range{m.firstSequence(), m.position.Sequence})
		case m.control == "" && m.checked == sumGood:
			v.Records, v.Checked = v.Records+1, v.Checked+1
		case m.control == "":
			v.Records, v.WithoutSum = v.Records+1, v.WithoutSum+1
		}
	}
	return nil
}

func (l *store) askReplica(ctx context.Context, node string, ask replicaAsk, said *replicaSaid) error {
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	answer, err := l.f.Call(ctx, node, callVerify, body)
	if err != nil || said == nil {
		return err
	}
	return json.Unmarshal(answer, said)
}

// tellDamaged lets a node know that its disk lost records, so that it leaves the seat to the
// others and can be filled again.
func (v *Verified) tellDamaged(ctx context.Context, l *store) {
	for i := range v.Replicas {
		r := &v.Replicas[i]
		if r.Damaged+r.Markers == 0 {
			continue
		}
		l.log.Error("records are damaged or missing on a node's disk", "node", r.Node, "sequences", r.Damaged, "markers", r.Markers)
		if err := l.askReplica(ctx, r.Node, replicaAsk{Log: l.cfg.ID.String(), Kind: l.kind, Made: l.nth, Damaged: true}, nil); err != nil {
			r.Stopped = "node " + r.Node + " was not told of its damage: " + plain(err)
		}
	}
}

func (f *Fabric) replicaAudits() []Verified {
	if f.members == nil {
		return nil
	}
	var out []Verified
	for _, node := range slices.Sorted(maps.Keys(f.members.peers)) {
		out = append(out, Verified{Node: node, DamageKnown: true})
	}
	return out
}

// spoiltFile lists the streams of which this node's disk lost records that its siblings have.
const spoiltFile = "damaged.json"

// spoiltFolder is the folder that an entry of that list is of: a stream, or the folder of a group.
func spoiltFolder(name string) string {
	if strings.HasPrefix(name, votesFolder) {
		return name
	}
	return streamFolder + name
}

// noteSpoilt keeps in mind, also over starts, that a log is damaged on this node's disk.
func (f *Fabric) noteSpoilt(stream string) error {
	f.unfit.Store(true)
	f.identifying.Lock()
	defer f.identifying.Unlock()
	all, err := f.spoilt()
	if err != nil || slices.Contains(all, stream) {
		return err
	}
	return writeJSON(f.path(spoiltFile), append(all, stream))
}

func (f *Fabric) spoilt() (streams []string, err error) {
	if err = readJSON(f.path(spoiltFile), &streams); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return streams, err
}

// quarantineDir holds what was set aside of this node's own data. Nothing reads it; it is for
// a person, and never leaves the volume.
const quarantineDir = "quarantine"

// setAside takes damaged folders out of the broker's hands, before it starts and is given
// them anew by the siblings. Of each the last one is kept.
func (f *Fabric) setAside() error {
	streams, err := f.spoilt()
	if err != nil || len(streams) == 0 {
		return err
	}
	if err := regions.MakeFolder(f.path(quarantineDir)); err != nil {
		return err
	}
	for _, stream := range streams {
		from, to := f.folderPath(spoiltFolder(stream)), f.path(quarantineDir+"/"+filepath.Base(stream))
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			continue // set aside by a start that got no further, or deleted with its log
		}
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := os.Rename(from, to); err != nil {
			return err
		}
		f.cfg.Logger.Warn("a damaged log was set aside; its siblings fill it", "stream", stream, "kept", to)
	}
	return os.Remove(f.path(spoiltFile))
}

// isSpoilt: a folder of the list is of a log that is damaged here.
func (f *Fabric) isSpoilt(folder string) bool {
	streams, err := f.spoilt()
	return err != nil || slices.Contains(streams, strings.TrimPrefix(folder, streamFolder))
}
