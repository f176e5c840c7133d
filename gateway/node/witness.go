package node

import (
	"context"
	"errors"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/gateway/admin"
	"domicile/gateway/door"
	"domicile/regions"
	"domicile/regions/fabric"
)

// Witness is a node in no region: it votes on who owns the logs that may move, keeps what
// was decided, and answers operators who ask about that. It has no store, no policy and no
// door, no region has a link with it, and no record ever reaches it. Start it once, and Close
// it once Start has returned; the other methods are for one that was started.
type Witness struct {
	n     *Node
	pages *admin.Pages
}

// NewWitness checks the configuration against the manifest. Nothing is opened before Start.
func NewWitness(c Config, f *regions.Federation, s Seams) (*Witness, error) {
	if !c.Witness(f) {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "check node config", Field: "region", Value: c.Region, Hint: "federation.yaml has no witness of this name under authority"}
	}
	n, err := newNode(c, f, s)
	if err != nil {
		return nil, err
	}
	n.seats = func() (fabric.Seat, <-chan struct{}) {
		return fabric.Seat{Reason: "this is a witness, which holds no log"}, nil
	}
	return &Witness{n: n}, nil
}

// Start opens the voter and what operators see of it. ctx bounds the start alone.
func (w *Witness) Start(ctx context.Context) error {
	n := w.n
	n.life, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	n.open, n.shut = context.WithCancel(n.life)
	if err := (steps{
		{"certificate", n.openIdentity},
		{"data", func(context.Context) error { return regions.MakeFolder(n.cfg.Data) }},
		{"placement", n.openPlacer},
		{"pages", w.openPages},
		{"voter", w.openVoter},
		{"desk", w.openDesk},
	}).run(ctx); err != nil {
		closing, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer done()
		return errors.Join(err, n.Close(closing))
	}
	w.pages.Start()
	n.desk.Start()
	n.logger.Info("serving as a witness", "link", n.Link(), "admin", n.Admin(), "health", n.Metrics())
	return nil
}

// openPages opens the pages of metrics and health.
func (w *Witness) openPages(ctx context.Context) (err error) {
	if w.n.pages, err = w.n.openPages(ctx); err != nil {
		return err
	}
	n := w.n
	w.pages = admin.NewPages(n.pages, admin.PagesConfig{Unready: w.unready, Authority: n.authorityState, Certificates: n.certificates, Refused: n.refused.Totals, Clock: n.seams.Clock, Logger: n.logger})
	w.n.onClose("pages", w.pages.Close)
	return nil
}

// unready is why this witness is no help to the regions now; "": it is.
func (w *Witness) unready() string {
	switch s := w.n.authorityState(); {
	case s.GetTrouble() != "":
		return s.GetTrouble()
	case s.GetLeader() == "":
		return "the voters have no leader that this witness hears"
	}
	return ""
}

func (w *Witness) openVoter(ctx context.Context) error { return w.n.openCouncil(ctx, w.n.onClose) }

// openDesk lets operators ask who votes, and change it.
func (w *Witness) openDesk(ctx context.Context) (err error) {
	n := w.n
	n.placings = admin.NewPlacements(admin.PlacementConfig{
		Region: n.cfg.Region, Federation: n.federation, Clock: n.seams.Clock, Authority: n.authorityState, Change: n.changeAuthority,
		Widen: func(context.Context, *pb.WidenTermsRequest) (*pb.GovernResponse, error) {
			return nil, n.notHere("widen terms")
		},
	})
	if n.desk, err = n.openOne(ctx, "listen.admin", n.cfg.Listen.Admin, door.Config{Placement: n.placings}); err == nil {
		n.onClose("operators' door", n.desk.Close)
	}
	return err
}

// Reload says that nothing of a witness changes while it runs.
func (w *Witness) Reload(context.Context) error {
	return &api.Error{Code: api.ConfigInvalid, Op: "reload", Region: w.n.cfg.Region, Hint: "a witness reads its files at its start: start it again"}
}

// Close ends the voter, and waits for it at the longest until ctx ends.
func (w *Witness) Close(ctx context.Context) error { return w.n.Close(ctx) }

// Metrics is where /metrics, /healthz and /readyz are, host:port, once started.
func (w *Witness) Metrics() string { return w.n.Metrics() }

// Admin is where operators connect, host:port, once started.
func (w *Witness) Admin() string { return w.n.Admin() }
