package node

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/council"
	"domicile/regions/identity"
	"domicile/regions/link"
)

// Founding is what the first voter of a region is made by, on a node that does not run.
type Founding struct {
	Authority string // as the first region's founding was named; "": this is the first
	Alone     bool   // it is believed of voters that do not answer that they never heard of this region's
	Actor     string
	Reason    string
	DryRun    bool // everything is looked at, nothing is made
}

// Found makes the region's voter, after it has asked the other voters of the manifest: a
// voter that is made again has forgotten what it voted for, so it is refused if one of them
// knows of anything that was decided, or, unless Founding.Alone says otherwise, cannot be
// asked. It returns the founding's whole name and the other regions that vote.
func Found(ctx context.Context, c Config, f *regions.Federation, o Founding) (name string, others []string, err error) {
	voters := f.Voters()
	if !slices.Contains(voters, c.Region) {
		return "", nil, &api.Error{Code: api.ConfigInvalid, Op: "found authority", Region: c.Region, Field: "authority.voters", Value: strings.Join(voters, ","),
			Hint: "federation.yaml does not have this region vote: name it there, in every region's file alike"}
	}
	others = slices.DeleteFunc(slices.Clone(voters), func(v string) bool { return v == c.Region })
	words, silent := greetFrom(ctx, c, f, others)
	if err := o.refusal(c.Region, words, silent); err != nil {
		return "", nil, err
	}
	if o.Authority == "" {
		o.Authority = rand.Text()
	}
	b := council.Birth{Dir: CouncilDir(c.Data), Region: c.Region, Authority: o.Authority, Voters: voters, Actor: o.Actor, Reason: o.Reason}
	if o.DryRun {
		return council.Name(o.Authority, voters), others, b.Check()
	}
	return council.Name(o.Authority, voters), others, council.Create(b)
}

// refusal is why no voter is made, by what the others say.
func (o *Founding) refusal(region string, words map[string]council.Word, silent map[string]error) error {
	for _, other := range slices.Sorted(maps.Keys(words)) {
		if w := words[other]; w.Generation > 0 {
			return &api.Error{Code: api.PlacementRefused, Op: "found authority", Region: region, Field: "authority", Value: w.Authority,
				Hint: fmt.Sprintf("%s knows what that authority decided, in generation %d: a voter that is made now has forgotten what this region voted for. Start the node, then: domicile control voters remove %s at another region, if it votes, and domicile control voters add %s here", other, w.Generation, region, region)}
		}
	}
	if o.Authority == "" || o.Alone || len(silent) == 0 {
		return nil
	}
	var why []string
	for _, other := range slices.Sorted(maps.Keys(silent)) {
		why = append(why, other+": "+silent[other].Error())
	}
	return &api.Error{Code: api.PlacementRefused, Op: "found authority", Region: region, Field: "alone",
		Hint: "nobody can say whether this region voted before, since some of the voters do not answer; if it never had a voter of this authority, say --alone. " + strings.Join(why, "; ")}
}

// greetFrom asks other regions' voters who they are, from a node that does not run.
func greetFrom(ctx context.Context, c Config, f *regions.Federation, others []string) (map[string]council.Word, map[string]error) {
	clock := regions.NewSteadyClock()
	id, err := identity.Load(identity.Files{Cert: c.TLS.Certificate, Key: c.TLS.Key, CA: c.TLS.CA}, clock)
	if err == nil {
		var mesh *link.Mesh
		if mesh, err = link.New(link.Config{Self: c.Region, Peers: f.Addresses(c.Region), Witnesses: f.Witnesses(c.Region), Identity: id, CouncilOnly: true, Clock: clock, Logger: slog.New(slog.DiscardHandler)}); err == nil {
			defer func() { _ = mesh.Close(ctx) }() // it only dialed
			return council.GreetAll(ctx, mesh.Council(), others)
		}
	}
	silent := map[string]error{}
	for _, other := range others {
		silent[other] = err
	}
	return nil, silent
}
