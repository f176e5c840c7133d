package council

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// Another voter may lie about what was decided; that is beyond raft. But nothing that it sends
// may end this process: raft panics, and at each start again, at entries and configurations
// that it cannot read, and at holes in its log.
const (
	maxEntries    = 1 << 10
	maxConfig     = 16 << 10                              // bytes of who votes
	maxUnanswered = placement.MaxFounding + 64*maxRequest // bytes: a batch of entries, of which one is a founding
	furthestTerm  = 1 << 40                               // an election a second reaches it in 30,000 years
	furthestLog   = 1 << 48

	furthestGeneration = 1 << 20 // people found each of them
)

// checkedLines gives raft only what a voter may send.
type checkedLines struct {
	*raft.NetworkTransport
	voter *Voter
	rpcs  chan raft.RPC
}

func (v *Voter) checked(lines *raft.NetworkTransport) *checkedLines {
	return &checkedLines{lines, v, make(chan raft.RPC)}
}

// Consumer gives out the calls that were checked.
func (c *checkedLines) Consumer() <-chan raft.RPC { return c.rpcs }

// SetHeartbeatHandler has heartbeats, which go by the other calls, checked too.
func (c *checkedLines) SetHeartbeatHandler(take func(raft.RPC)) {
	c.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) {
		if c.admits(rpc) {
			take(rpc)
		}
	})
}

// run checks the calls of other voters until the voter is closed.
func (c *checkedLines) run() {
	for {
		select {
		case rpc := <-c.NetworkTransport.Consumer():
			if !c.admits(rpc) {
				continue
			}
			select {
			case c.rpcs <- rpc:
			case <-c.voter.ctx.Done():
				return
			}
		case <-c.voter.ctx.Done():
			return
		}
	}
}

// admits refuses a call that no voter sends. It can't say whose it is: the protocol has told
// the calls from their connections by then.
func (c *checkedLines) admits(rpc raft.RPC) bool {
	err := checkCall(rpc.Command)
	if err != nil {
		c.voter.cfg.Refused.Add(unknownPeer, regions.LaneAuthority, regions.Malformed)
		rpc.Respond(nil, err)
	}
	return err == nil
}

const unknownPeer = "unknown"

func badCall(what string) error { return fmt.Errorf("%w: %s", errMalformed, what) }

func checkCall(command any) error {
	switch c := command.(type) {
	case *raft.AppendEntriesRequest:
		return checkEntries(c)
	case *raft.RequestVoteRequest:
		return bounded(c.Term, c.LastLogTerm, c.LastLogIndex)
	case *raft.RequestPreVoteRequest:
		return bounded(c.Term, c.LastLogTerm, c.LastLogIndex)
	case *raft.InstallSnapshotRequest:
		if c.SnapshotVersion != raft.SnapshotVersionMax || c.Size < 0 || c.Size > placement.MaxFounding {
			return badCall("a snapshot")
		}
		return errors.Join(bounded(c.Term, c.LastLogTerm, c.LastLogIndex), bounded(c.Term, 0, c.ConfigurationIndex), checkVoters(c.Configuration))
	case *raft.TimeoutNowRequest:
		return nil
	}
	return badCall("a call")
}

// bounded refuses a term or an index after which there is hardly another one.
func bounded(term, before, index uint64) error {
	if term > furthestTerm || before > term || index > furthestLog {
		return badCall(fmt.Sprintf("term %d after %d, index %d", term, before, index))
	}
	return nil
}

func checkEntries(c *raft.AppendEntriesRequest) error {
	if len(c.Entries) > maxEntries {
		return badCall("too many entries")
	}
	if err := bounded(c.Term, c.PrevLogTerm, c.PrevLogEntry); err != nil {
		return err
	}
	for i, e := range c.Entries {
		switch {
		case e == nil || e.Index != c.PrevLogEntry+1+uint64(i) || e.Term == 0 || e.Term > c.Term || len(e.Data) > placement.MaxFounding:
			return badCall("an entry")
		case e.Type == raft.LogCommand, e.Type == raft.LogNoop, e.Type == raft.LogBarrier:
		case e.Type == raft.LogConfiguration:
			if err := checkVoters(e.Data); err != nil {
				return err
			}
		default:
			return badCall("a kind of entry")
		}
	}
	return nil
}

// checkVoters reads who votes where a panic of the library harms nobody.
func checkVoters(data []byte) (err error) {
	defer func() {
		if recover() != nil {
			err = badCall("who votes")
		}
	}()
	if len(data) > maxConfig {
		return badCall("who votes")
	}
	voters := 0
	for _, s := range raft.DecodeConfiguration(data).Servers {
		id, address := string(s.ID), string(s.Address)
		if id == "" || address == "" || api.Printable(id, 128) != id || api.Printable(address, 256) != address {
			return badCall("a voter")
		}
		if s.Suffrage == raft.Voter {
			voters++
		}
	}
	if voters == 0 {
		return badCall("nobody votes")
	}
	return nil
}
