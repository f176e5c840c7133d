package council_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"domicile/regions/placement"
)

// rawVoter speaks the voters' protocol with a voter's certificate, and says what it likes.
type rawVoter struct {
	w        *world
	from, to string
	lines    *testLines
	closed   chan struct{}
}

func (l rawVoter) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.w.t.Context(), patient)
	defer cancel()
	c, err := l.lines.Dial(ctx, l.to)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patient))
	text, err := json.Marshal(map[string]any{"For": "vote", "Authority": l.w.seats[l.to].Status().Authority, "Generation": 1, "Reads": 1})
	if err == nil {
		_, err = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	}
	var size uint32
	if err == nil {
		err = binary.Read(c, binary.BigEndian, &size)
	}
	if err == nil {
		_, err = io.CopyN(io.Discard, c, int64(size))
	}
	return c, err
}

func (l rawVoter) Accept() (net.Conn, error) { <-l.closed; return nil, net.ErrClosed }
func (l rawVoter) Close() error              { return nil }
func (l rawVoter) Addr() net.Addr            { return &net.UnixAddr{Name: l.from} }

// A7: one entry, call or snapshot of a voter that was broken into ended the process of every
// other one, and again at each start. Now it is refused, and the others go on deciding.
func TestFA7_AVoterThatLiesEndsNoProcess(t *testing.T) {
	w := founding(t, "ap-south", "eu-west", "us-east")
	w.stop("us-east")
	l := rawVoter{w, "us-east", "eu-west", w.line("us-east", false), make(chan struct{})}
	speaks := raft.NewNetworkTransport(l, 1, patient, io.Discard)
	t.Cleanup(func() { close(l.closed); _ = speaks.Close() })
	const term = 1 << 20
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("us-east"), Addr: []byte("us-east")}
	entries := func(of ...*raft.Log) *raft.AppendEntriesRequest {
		return &raft.AppendEntriesRequest{RPCHeader: header, Term: term, Entries: of, LeaderCommitIndex: 1}
	}
	entry := func(i uint64, kind raft.LogType, data string) *raft.Log {
		return &raft.Log{Index: i, Term: term, Type: kind, Data: []byte(data)}
	}
	for name, call := range map[string]*raft.AppendEntriesRequest{
		"who votes, as garbage":   entries(entry(1, raft.LogConfiguration, "\xc1\xff garbage")),
		"nobody votes":            entries(entry(1, raft.LogConfiguration, string(raft.EncodeConfiguration(raft.Configuration{})))),
		"an old kind of entry":    entries(entry(1, raft.LogRemovePeerDeprecated, "\xc1")),
		"a kind that is none":     entries(entry(1, 99, "x")),
		"no entry":                entries(nil),
		"a hole in the log":       entries(entry(1, raft.LogNoop, ""), entry(1<<40, raft.LogNoop, "")),
		"a term that is the last": {RPCHeader: header, Term: 1<<64 - 1},
	} {
		var answer raft.AppendEntriesResponse
		if err := speaks.AppendEntries("eu-west", "eu-west", call, &answer); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v, %+v", name, err, answer)
		}
	}
	for name, call := range map[string]*raft.InstallSnapshotRequest{
		"old format":  {RPCHeader: header, SnapshotVersion: 0, Term: term, Peers: []byte{0xc1}},
		"garbage":     {RPCHeader: header, SnapshotVersion: 1, Term: term, Configuration: []byte{0xc1}},
		"beyond size": {RPCHeader: header, SnapshotVersion: 1, Term: term, Size: 1 << 50},
	} {
		var answer raft.InstallSnapshotResponse
		if err := speaks.InstallSnapshot("eu-west", "eu-west", call, &answer, nothing{}); err == nil {
			t.Errorf("snapshot %s: %+v", name, answer)
		}
	}
	w.must(w.leader(), declared("log-1", "eu-west", movable(placement.FenceAfter)))
	if !slices.Contains([]string{"ap-south", "eu-west"}, w.leader()) {
		t.Error(w.leader())
	}
}

// nothing has nothing.
type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, io.EOF }
