package fabric

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"domicile/api"
)

// introduction is what a node tells a sibling before its broker has a store.
type introduction struct {
	From   string   `json:"from"`
	Store  string   `json:"store"`
	Joined bool     `json:"joined"`           // it took part with this store before
	Lacks  []string `json:"lacks,omitempty"`  // folders that it had and has no longer
	Rejoin bool     `json:"rejoin,omitempty"` // it asks to be filled by its siblings
	Settle bool     `json:"settle,omitempty"` // both have proved that they can: its store is the node's from now on
}

// acquaintance is a sibling's answer.
type acquaintance struct {
	Store  string             `json:"store"` // of who answers
	Joined bool               `json:"joined"`
	Known  string             `json:"known"`            // the store by which it knows who asks; "": none
	Other  bool               `json:"other,omitempty"`  // who asks took part before, with a store that is not known here
	Has    []string           `json:"has,omitempty"`    // of what is lacking
	Spoilt bool               `json:"spoilt,omitempty"` // some of it is damaged on the disk of who answers
	Groups map[string]replica `json:"groups,omitempty"` // how its replicas stand, when asked to fill another's
	Word   promise            `json:"word"`
}

const proveWithin = 2 * time.Second // at pace 1

func introductionSubject(node string) string { return "_DI." + node }

// receive answers the introductions that come in on a connection.
func (f *Fabric) receive(c *nats.Conn) error {
	_, err := c.Subscribe(introductionSubject(f.cfg.Cluster.Node), func(msg *nats.Msg) {
		var in introduction
		if json.Unmarshal(msg.Data, &in) != nil || in.Store == "" || f.members.peers[in.From] == nil {
			return
		}
		f.spawn(func() {
			a, err := f.acquaint(in)
			if err != nil {
				f.cfg.Logger.Error("a sibling was not made acquainted", "node", in.From, "error", err)
				return
			}
			if b, err := json.Marshal(a); err == nil {
				_ = msg.Respond(b)
			}
		})
	})
	return err
}

// acquaint remembers a store that introduces itself for the first time, and says what is
// known of it. A node that took part in the region knows that all three once met: a store
// it never met stands in the place of another.
func (f *Fabric) acquaint(in introduction) (acquaintance, error) {
	id := f.identity()
	known := id.Siblings[in.From]
	other := known == "" && id.Joined && !in.Joined
	// Who has not joined has voted for nothing, and may be told anything.
	if in.Settle && in.Store != known || known == "" && !other || !id.Joined && known != in.Store {
		if err := f.changeIdentity(func(id *identity) { id.Siblings[in.From] = in.Store }); err != nil {
			return acquaintance{}, err
		}
		if known != "" {
			f.cfg.Logger.Warn("a node of the region takes part with another store from now on", "node", in.From)
		}
		known, other = in.Store, false
	}
	a := acquaintance{Store: id.Store, Joined: id.Joined, Known: known, Other: other, Word: f.members.promises.get()}
	for _, name := range in.Lacks {
		if f.hasFolder(name) {
			a.Has = append(a.Has, name)
			a.Spoilt = a.Spoilt || f.isSpoilt(name)
		}
	}
	if in.Rejoin && id.Joined {
		ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Pace.Of(proveWithin))
		defer cancel()
		a.Groups = f.standing(ctx, in.From)
	}
	return a, nil
}

// introduce tells a sibling who this node is.
func (f *Fabric) introduce(ctx context.Context, c *nats.Conn, node string, in introduction) (a acquaintance, err error) {
	in.From, in.Store, in.Joined = f.cfg.Cluster.Node, f.identity().Store, f.identity().Joined
	b, err := json.Marshal(in)
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(silentFor+proveWithin))
	defer cancel()
	reply, err := c.RequestWithContext(ctx, introductionSubject(node), b)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(reply.Data, &a)
}

// stranger: a node that pings is known here by another store. One that took part before
// stores had names is known from now on.
func (f *Fabric) stranger(node, store string) bool {
	id := f.identity()
	if id.Siblings[node] == "" && id.Joined && f.members.peers[node] != nil {
		f.spawn(func() {
			if _, err := f.acquaint(introduction{From: node, Store: store, Joined: true}); err != nil {
				f.cfg.Logger.Warn("a sibling's store was not remembered", "node", node, "error", err)
			}
		})
	}
	return f.knownOther(node, store)
}

// knownOther: a node is known here by another store than the one it names. What such a one
// says counts for nothing: it is an old directory that came back.
func (f *Fabric) knownOther(node, store string) bool {
	known := f.identity().Siblings[node]
	return known != "" && store != "" && known != store
}

// expelled ends a node that a sibling knows by another store: it was replaced while it was
// away, and what it votes now is out of date.
func (f *Fabric) expelled(by string) {
	if f.fail("node "+by+" knows this node by another data directory, which took its place: this one must not be used any more", false) {
		f.spawn(f.stopBroker)
	}
}

func (f *Fabric) replaced(field, value, hint string) error {
	return &api.Error{Code: api.ConfigInvalid, Op: "open store", Region: f.cfg.Region, Field: field, Value: value, Hint: hint}
}
