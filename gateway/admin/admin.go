package admin

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/regions"
	"domicile/regions/placement"
)

// Config is what an Admin works with. Everything is required but Ask and Listener.
type Config struct {
	Region     string
	Version    string
	Federation *regions.Federation
	Placement  regions.Placement
	Sources    Sources
	// Explain and Reload belong to the policy's room.
	Explain func(context.Context, *pb.ExplainRequest) (*pb.ExplainResponse, error)
	Reload  func(context.Context) (*pb.ReloadResponse, error)
	// PolicyTable and Traffic hand over, part by part, what the policy in force answers
	// and what was asked of it.
	PolicyTable func(context.Context, func(*pb.PolicyTableResponse) error) error
	Traffic     func(context.Context, *pb.TrafficRequest, func(*pb.TrafficResponse) error) error
	// ActivatePolicy and PolicyStatus too.
	ActivatePolicy func(context.Context, *pb.ActivatePolicyRequest) (*pb.ActivatePolicyResponse, error)
	PolicyStatus   func(context.Context) (*pb.PolicyStatusResponse, error)
	// ReloadManifest, Delete and Purge change what topics there are and what they hold.
	ReloadManifest func(context.Context, *pb.ReloadManifestRequest) (*pb.ReloadManifestResponse, error)
	Delete, Purge  func(context.Context, *pb.TopicActRequest) (*pb.TopicActResponse, error)
	// Verify reads logs from the disk and hands over what it found, log by log.
	Verify func(context.Context, *pb.VerifyTopicRequest, func(*pb.VerifyTopicResponse) error) error
	// Ask asks another node of the region, which answers with Answer; nil in a region of
	// one.
	Ask func(ctx context.Context, node string, q *pb.AskOver) (*pb.AskAnswer, error)

	// Authority is this node's part in the placement authority; nil: it is not told of.
	Authority func() *pb.AuthorityState
	// Placed and Lease are as in PlacementConfig; Placed nil: the metrics say nothing of them.
	Placed func() map[api.LogID]placement.Log
	Lease  func(api.LogID) (left time.Duration, ok bool)

	Listener net.Listener // of /metrics, /healthz and /readyz; nil: none
	Clock    regions.Clock
	Logger   *slog.Logger
}

// Admin is AdminService, the counters of the gateway and the metrics page. It is
// safe for concurrent use.
type Admin struct {
	pb.UnimplementedAdminServiceServer
	*Metrics
	config  Config
	started time.Time
	web     *web // nil: no listener

	links    probe[[]regions.LinkStatus]
	lags     probe[[]regions.Lag]
	holdings probe[map[string]LogFigures]
	policy   probe[Policy]
	storage  probe[Storage]
	certs    probe[[]Certificate]
	warnings probe[[]string]
}

// New takes over the listener. Sources are not asked before Start.
func New(c Config) *Admin {
	a := &Admin{config: c, started: c.Clock.Now(), Metrics: newMetrics()}
	s := &a.config.Sources
	a.links.ask, a.lags.ask, a.policy.ask, a.storage.ask, a.certs.ask = s.Links, s.Lags, s.Policy, s.Storage, s.Certificates
	a.holdings.ask = a.figures
	a.warnings.ask = s.Warnings
	a.registry.MustRegister(&collector{admin: a})
	if c.Listener != nil {
		a.web = newWeb(c.Listener, a.Handler(), c.Logger)
	}
	return a
}

// Mirror is where a mirror counts: a mirror.Metrics.
func (a *Admin) Mirror() *Metrics { return a.Metrics }

// Start serves HTTP in the background until Close.
func (a *Admin) Start() {
	if a.web != nil {
		a.web.start()
	}
}

// Close stops serving HTTP; requests in flight may end, until ctx does.
func (a *Admin) Close(ctx context.Context) error {
	if a.web == nil {
		return nil
	}
	return a.web.close(ctx)
}

func (a *Admin) figures() map[string]LogFigures {
	figures := map[string]LogFigures{}
	for _, h := range a.config.Sources.Holdings() {
		figures[h.Log.ID().String()] = LogFigures{Head: h.Log.Head(), Home: h.Home, Sync: h.Sync}
	}
	return figures
}

// What View.Silent may name, as far as somebody looks for it there.
const (
	silentLinks  = "links"
	silentLags   = "lags"
	silentLogs   = "logs"
	silentPolicy = "policy"
)

// view gathers everything that this node knows at once, within askTimeout.
func (a *Admin) view(ctx context.Context) View { return a.viewFrom(ctx, a.config.Sources.Seat()) }

func (a *Admin) viewFrom(ctx context.Context, seat Seat) View {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c := &a.config
	v := View{Region: c.Region, Version: c.Version, Federation: c.Federation.Snapshot(), Placement: c.Placement,
		Now: c.Clock.Now(), Started: a.started, Seat: seat, ClockStep: c.Sources.ClockStep(), Resident: a.resident()}
	if c.Sources.Clock != nil {
		v.Clock = c.Sources.Clock()
	}
	if c.Sources.Drill != nil {
		v.Drill = c.Sources.Drill()
	}
	var silent [7]string
	var group sync.WaitGroup
	if v.Seat.Open {
		group.Go(func() { v.Links = orSilent(ctx, &a.links, &silent[0], silentLinks) })
		group.Go(func() { v.Lags = orSilent(ctx, &a.lags, &silent[1], silentLags) })
		group.Go(func() { v.Holdings = orSilent(ctx, &a.holdings, &silent[2], silentLogs) })
	} else {
		for _, peer := range v.Federation.Peers(c.Region) {
			v.Links = append(v.Links, regions.LinkStatus{Peer: peer})
		}
	}
	group.Go(func() { v.Policy = orSilent(ctx, &a.policy, &silent[3], silentPolicy) })
	group.Go(func() {
		if s := orSilent(ctx, &a.storage, &silent[4], "storage"); silent[4] == "" {
			v.Storage = &s
		}
	})
	group.Go(func() { v.Certificates = orSilent(ctx, &a.certs, &silent[5], "certificates") })
	group.Go(func() { v.Warnings = orSilent(ctx, &a.warnings, &silent[6], "warnings") })
	group.Wait()
	if c.Sources.Gossip != nil {
		if g, ok := c.Sources.Gossip(); ok {
			v.Gossip = &g
		}
	}
	if c.Sources.Refused != nil {
		v.Refused = c.Sources.Refused()
	}
	for _, name := range silent {
		if name != "" {
			v.Silent = append(v.Silent, name)
		}
	}
	return v
}

func orSilent[T any](ctx context.Context, p *probe[T], silent *string, name string) T {
	v, ok := p.get(ctx)
	if !ok {
		*silent = name
	}
	return v
}

// resident finds the topics that may carry records of a boundary. While no policy says
// what a topic carries, it may.
func (a *Admin) resident() map[string]bool {
	resident := map[string]bool{}
	for _, topic := range a.config.Federation.Topics() {
		combinations := a.config.Sources.Combinations(topic)
		resident[topic] = len(combinations) == 0
		for _, text := range combinations {
			tags, err := api.ParseTagString(text)
			r := api.Record{Tags: tags}
			if err != nil || r.Tag(regions.ResidencyTag) != regions.GlobalResidency {
				resident[topic] = true
			}
		}
	}
	return resident
}

// ready is "" when this region can take records of its own, and this node holds all that it
// should, else why not: once a node is ready, another of its region may be stopped. Links
// play no part: a region works while every other one is out of reach.
func (a *Admin) ready(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var problems []string
	if seat := a.config.Sources.Seat(); !seat.Open && !seat.Hands {
		problems = append(problems, seat.Reason)
	} else if seat.belowQuorum() {
		problems = append(problems, "below quorum")
	} else if lacks := seat.lacks(); lacks != "" {
		problems = append(problems, "this node may lack records of the region: "+lacks)
	}
	if p, ok := a.policy.get(ctx); !ok || !p.Active {
		problems = append(problems, "no policy is active")
	}
	if s, ok := a.storage.get(ctx); !ok {
		problems = append(problems, "storage does not answer")
	} else if !s.Healthy {
		problems = append(problems, "storage: "+s.Reason)
	} else if s.Full != "" {
		problems = append(problems, "storage: "+s.Full)
	}
	return strings.Join(problems, "; ")
}
