package fabric

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
)

// The users of the tenant's account. The writers' one may write to the logs and read them; the
// other one may do all, and no record passes it. Their password is made at every start and never
// leaves the process.
const (
	accountUser = "fabric"
	writerUser  = "writer"
)

const maxPayload = 2 << 20 // bytes: the largest record with all its headers

type broker struct {
	srv      *server.Server
	password string
	admin    *nats.Conn // streams are created and asked about here; records never pass it
	talk     *nats.Conn // to the region's other nodes; nil in a solo region
	cluster  bool
	js       jetstream.JetStream
	opts     *server.Options
	shown    credentials // of its siblings
}

// startBroker starts one with room for maxStore bytes; with 0 it has no store at all, and
// only carries words between the region's nodes.
func startBroker(ctx context.Context, cfg *Config, maxStore int64) (*broker, error) {
	secret := make([]byte, 24)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	b := &broker{password: hex.EncodeToString(secret)}
	opts := &server.Options{}
	// Accounts with JetStream have to be in the text: added later they are lost to a
	// clustered server. Every tenant is an account from the first day.
	keeps := "enabled"
	if maxStore == 0 {
		keeps = "disabled"
	}
	text := fmt.Sprintf("accounts { SYS: {}, %s: { jetstream: %s, users: [ {user: %s, password: %q}, "+
		"{user: %s, password: %q, permissions: { publish: [ %s ] } } ] } }\nsystem_account: SYS\n",
		api.DefaultTenant, keeps, accountUser, b.password, writerUser, b.password, writerMay)
	if err := opts.ProcessConfigString(text); err != nil {
		return nil, fmt.Errorf("configure embedded broker: %w", err)
	}
	opts.ServerName = cfg.Region
	b.cluster = cfg.Cluster != nil
	opts.DontListen = true
	opts.NoSigs = true
	opts.NoLog = true
	opts.JetStream = maxStore > 0
	opts.StoreDir = filepath.Join(cfg.Dir, brokerDir)
	opts.JetStreamMaxStore = maxStore
	opts.JetStreamMaxMemory = 1 << 20 // nothing is kept in memory; unset means 75 % of RAM
	opts.SyncAlways = false           // the barrier syncs, see barrier.go
	opts.MaxPayload = maxPayload + callOver
	opts.DisableShortFirstPing = true
	opts.AuthTimeout = connectWithin.Seconds() // two seconds by itself, which a busy machine exceeds
	if cfg.Cluster != nil {
		if err := cfg.Cluster.join(opts, cfg.Region); err != nil {
			return nil, err
		}
		if opts.Cluster.TLSConfig != nil {
			opts.Cluster.TLSConfig = b.shown.keep(opts.Cluster.TLSConfig)
		}
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("make embedded broker: %w", err)
	}
	fatal := make(chan string, 1)
	srv.SetLoggerV2(brokerLog{cfg.Logger.With("part", "broker"), fatal}, false, false, false)
	srv.Start()
	b.srv, b.opts = srv, opts
	if err := b.connect(ctx, cfg.Pace.Of(connectWithin), maxStore > 0, fatal); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

const (
	readyStep     = 100 * time.Millisecond
	connectWithin = 30 * time.Second // at pace 1
)

// ready waits until the broker is up, or says that it will not be.
func (b *broker) ready(ctx context.Context, wait time.Duration, fatal <-chan string) error {
	hint := "see the broker's lines in the log"
	for end := time.Now().Add(wait); time.Now().Before(end); {
		if b.srv.ReadyForConnections(readyStep) {
			return nil
		}
		select {
		case hint = <-fatal:
			end = time.Time{}
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
	}
	return &api.Error{Code: api.StorageFailed, Op: "start embedded broker", Hint: hint}
}

func (b *broker) connect(ctx context.Context, wait time.Duration, stores bool, fatal <-chan string) error {
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	if err := b.ready(ctx, wait, fatal); err != nil {
		return err
	}
	if stores && !b.srv.JetStreamEnabled() {
		return &api.Error{Code: api.StorageFailed, Op: "start embedded broker",
			Hint: "the store could not be opened; see the broker's lines in the log"}
	}
	var err error
	if b.admin, err = b.dial(wait); err != nil {
		return err
	}
	if b.cluster {
		if b.talk, err = b.dial(wait); err != nil {
			return err
		}
	}
	b.js, err = jetstream.New(b.admin)
	return err
}

func (b *broker) dial(wait time.Duration) (*nats.Conn, error) {
	c, err := nats.Connect("", nats.InProcessServer(b.srv), nats.UserInfo(accountUser, b.password),
		nats.Timeout(wait), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.NoCallbacksAfterClientClose())
	if err != nil {
		return nil, fmt.Errorf("connect to embedded broker: %w", err)
	}
	return c, nil
}

func (b *broker) stop() {
	for _, c := range []*nats.Conn{b.admin, b.talk} {
		if c != nil {
			c.Close()
		}
	}
	b.srv.Shutdown()
	b.srv.WaitForShutdown()
}

// unhealthy is the broker's own word on why a stream's store no longer works, "" if it
// does.
func (b *broker) unhealthy(stream string) string {
	if !b.srv.JetStreamEnabled() {
		return storeShut
	}
	if b.cluster {
		return "" // it steps down when its store fails, and is not current while it waits for a quorum
	}
	return storeFault(b.srv.Healthz(&server.HealthzOptions{Account: api.DefaultTenant, Stream: stream}))
}

// deviceFault is the broker's own word on a device that failed when a replica was written, in
// a quorum region; "": there is none. The broker stops such a replica and says nothing of it by
// itself.
func (b *broker) deviceFault() string {
	for _, e := range b.srv.Healthz(&server.HealthzOptions{Account: api.DefaultTenant, Details: true}).Errors {
		if _, why, ok := strings.Cut(e.Error, "write error: "); ok && ofDevice(why) {
			return why
		}
	}
	return ""
}

// storeFault is what the broker's word on its health says of its store; "": nothing bad. It
// gives itself a millisecond to find that it is up, and does not get to its store when the
// machine is too busy for that: it was up when it was connected to, and its store was not
// looked at.
func storeFault(h *server.HealthStatus) string {
	if h.StatusCode == http.StatusOK || strings.HasPrefix(h.Error, "failed to be ready for connections") {
		return ""
	}
	return h.Error
}

// brokerLog carries the broker's lines into slog. Debug and trace lines, which could
// hold payload, are never asked for and dropped.
type brokerLog struct {
	l     *slog.Logger
	fatal chan<- string // takes the first line of a broker that cannot start
}

func (b brokerLog) Noticef(f string, v ...any) { b.l.Debug(fmt.Sprintf(f, v...)) }
func (b brokerLog) Warnf(f string, v ...any) {
	// The password is random and never on disk; the other side's certificate is checked by
	// our own configuration.
	if !strings.HasPrefix(f, "Plaintext passwords") && !strings.HasPrefix(f, "TLS certificate chain and hostname") {
		b.l.Warn(fmt.Sprintf(f, v...))
	}
}
func (b brokerLog) Errorf(f string, v ...any) { b.l.Error(fmt.Sprintf(f, v...)) }
func (b brokerLog) Fatalf(f string, v ...any) {
	b.l.Error(fmt.Sprintf(f, v...), "fatal", true)
	select {
	case b.fatal <- fmt.Sprintf(f, v...):
	default:
	}
}
func (b brokerLog) Debugf(string, ...any) {}
func (b brokerLog) Tracef(string, ...any) {}
