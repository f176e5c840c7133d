package council

import (
	"context"
	"crypto/sha256"
	"encoding/json"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/identity"
	"domicile/regions/placement"
)

// Identity is who this region is, and whose word it takes. *identity.Identity is one.
type Identity interface {
	identity.Signer
	identity.Trust
}

// proof is a region's word that it sends a command. It goes with the command from voter to
// voter, so that the leader need not believe the one that brings it. It holds for one
// authority and one command; that is done once, by its id and the log's epoch, and an
// alteration, which leaves the epoch as it is, for one version of the log.
type proof struct {
	Authority string
	Version   uint64 `json:",omitempty"` // of the log, as the sender has it
	identity.Signed
}

// digest is what is signed. The first line keeps a signature from meaning anything else.
func (p *proof) digest(command []byte) []byte {
	text, err := json.Marshal(struct {
		Authority string
		Version   uint64
		Command   []byte
	}{p.Authority, p.Version, command})
	if err != nil {
		panic("council: " + err.Error()) // only a text, a number and bytes
	}
	sum := sha256.Sum256(append([]byte("domicile placement command 1\n"), text...))
	return sum[:]
}

// prove signs a command, unless its sender has no say in the log by what is known here: an
// honest region never asks for what only a liar would. That something is late or early the
// leader says, which knows more.
func prove(by identity.Signer, s *placement.State, c *placement.Command, command []byte) (*proof, error) {
	p := &proof{Authority: s.Authority()}
	if l, ok := s.Log(c.Log); ok {
		p.Version = l.Version
	}
	err := s.May(*c, p.Version)
	if code := api.CodeOf(err); code == api.PermissionDenied || code == api.NotReady {
		return nil, err
	}
	p.Signed, err = identity.SignWith(by, p.digest(command))
	return p, err
}

// refuse counts what no correct node says.
func (v *Voter) refuse(peer string, why regions.Refusal, err error) error {
	if peer != v.mark.Region {
		v.cfg.Refused.Add(peer, regions.LaneAuthority, why)
	}
	return err
}

// verify checks that a command was sent by the region that it names. peer brought it.
func (v *Voter) verify(c *placement.Command, command []byte, p *proof, peer string) error {
	denied := func(field, hint string) error {
		return &api.Error{Code: api.PermissionDenied, Op: "place log", Region: peer, Field: field, Value: c.Region, Hint: hint}
	}
	switch {
	case c.Region == "":
		return v.refuse(peer, regions.NotTheirs, denied("region", "a command names the region that sends it"))
	case p == nil:
		return v.unsigned(c, peer)
	case p.Authority != v.mark.Authority:
		return &api.Error{Code: api.NotReady, Op: "place log", Region: c.Region, Field: "authority",
			Hint: "the sender goes by another authority, or has not heard of this one yet"}
	}
	if _, err := p.Verify(v.cfg.Identity, p.digest(command), c.Region, identity.Region); err != nil {
		return v.refuse(peer, regions.NotTheirs, denied("proof", "it is not signed by that region: "+err.Error()))
	}
	return nil
}

// unsigned refuses a command without proof. Programs before this one send none, so that alone
// is no lie; to ask for what is another's is one.
func (v *Voter) unsigned(c *placement.Command, peer string) error {
	var lie error
	v.machine.read(func(s *placement.State) { lie = s.May(*c, 0) })
	if c.Region == peer && api.CodeOf(lie) == api.PermissionDenied {
		return v.refuse(peer, regions.NotTheirs, lie)
	}
	return &api.Error{Code: api.VersionMismatch, Op: "place log", Region: peer, Field: "proof", Value: c.Region,
		Hint: "nothing proves that this region sent the command: its program, or that of the voter which brought it, " +
			"is older than the authority's; start the newer one there"}
}

// permit is the leader's judgement of a verified command: whose log it is, and what this
// node's own files say of it.
func (v *Voter) permit(c *placement.Command, p *proof) error {
	var l placement.Log
	var done bool
	var err error
	v.machine.read(func(s *placement.State) {
		l, _ = s.Log(c.Log)
		_, done = s.Answered(c.ID)
		err = s.May(*c, p.Version)
	})
	switch {
	case api.CodeOf(err) == api.PermissionDenied && v.raft.VerifyLeader().Error() != nil:
		return noLeader() // another one leads, and what was decided since may have the sender right
	case api.CodeOf(err) == api.PermissionDenied:
		return v.refuse(c.Region, regions.NotTheirs, err)
	case err != nil:
		return err
	case done || v.cfg.MayPlace == nil: // its sender asks for the answer
		return nil
	}
	if err = v.cfg.MayPlace(*c, l); api.CodeOf(err) == api.PermissionDenied {
		return v.refuse(c.Region, regions.NotAllowed, err)
	}
	return err
}

// offer is propose for what a region sent, at the leader. One that does not know yet all that
// was decided before it judges nobody: the sender may know more.
func (v *Voter) offer(ctx context.Context, c *placement.Command, command []byte, p *proof) (r placement.Result, sent bool, err error) {
	if !v.renewals.isOpen() {
		return r, false, noLeader()
	}
	if err := v.permit(c, p); err != nil {
		return r, false, err
	}
	return v.propose(ctx, command)
}
