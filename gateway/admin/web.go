package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	pb "domicile/api/domicile/v1"
	"domicile/regions"
)

// web serves the HTTP pages.
type web struct {
	listener net.Listener
	server   *http.Server
	logger   *slog.Logger
	serving  sync.WaitGroup
}

func newWeb(l net.Listener, handler http.Handler, logger *slog.Logger) *web {
	return &web{listener: l, logger: logger, server: &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}}
}

func (w *web) start() {
	w.serving.Go(func() {
		if err := w.server.Serve(w.listener); !errors.Is(err, http.ErrServerClosed) {
			w.logger.Error("the metrics page stopped", "err", err)
		}
	})
}

func (w *web) close(ctx context.Context) error {
	err := w.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, w.server.Close())
	}
	_ = w.listener.Close() // open still if it was never served
	w.serving.Wait()
	return err
}

// Pages are /metrics, /healthz and /readyz of a node without a region. Safe for concurrent use.
type Pages struct{ web *web }

// PagesConfig is what a Pages works with; all of it is required.
type PagesConfig struct {
	Unready      func() string // why the node is no use now; "": it is
	Authority    func() *pb.AuthorityState
	Certificates func() []Certificate
	Refused      func() []regions.PeerRefused
	Clock        regions.Clock
	Logger       *slog.Logger
}

// NewPages takes over the listener.
func NewPages(l net.Listener, c PagesConfig) *Pages {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&witness{c.Authority, c.Certificates, c.Refused, c.Clock})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, c.Unready()) })
	return &Pages{newWeb(l, mux, c.Logger)}
}

// Start serves in the background until Close.
func (p *Pages) Start() { p.web.start() }

// Close stops serving; requests in flight may end, until ctx does.
func (p *Pages) Close(ctx context.Context) error { return p.web.close(ctx) }

// Handler serves /metrics, /healthz (this process lives) and /readyz (this region
// takes records of its own).
func (a *Admin) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answer(w, a.ready(r.Context())) })
	return mux
}

func answer(w http.ResponseWriter, problem string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if problem != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, problem+"\n")
		return
	}
	io.WriteString(w, "ok\n")
}
