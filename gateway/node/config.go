package node

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"domicile/api"
	"domicile/gateway/door"
	"domicile/policy/bundle"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/strict"
)

// Config is node.yaml: what is particular to this machine. Relative paths are
// relative to the file.
type Config struct {
	Region     string       `yaml:"region"`     // which region of the manifest this node is
	Node       string       `yaml:"node"`       // quorum region: which of its gateways; empty: solo
	Cluster    Cluster      `yaml:"cluster"`    // quorum region: the way to the region's other nodes
	Federation string       `yaml:"federation"` // path of federation.yaml
	Data       string       `yaml:"data"`       // directory on the disk that acks speak of
	MaxStore   regions.Size `yaml:"max_store"`  // upper bound of what the node stores there
	Policies   string       `yaml:"policies"`   // directory of the policy
	Policy     bundle.Trust `yaml:"policy"`     // whose signatures a policy needs; empty: the directory is loaded
	Listen     Listen       `yaml:"listen"`
	TLS        TLS          `yaml:"tls"`
	// Principals says what a client certificate stands for; place none is no place.
	Principals []door.PrincipalRule `yaml:"principals"`
	// Operators gives operators the roles in which they act and approve.
	Operators approval.Rules `yaml:"operators"`
	// DevClass is the class of the principal dev under --dev.
	DevClass string  `yaml:"dev_class"`
	Clock    Checked `yaml:"clock"` // a person's word for the machine's clock
	Log      Log     `yaml:"log"`
}

// Listen holds the node's addresses, host:port. Port 0 picks a free one.
type Listen struct {
	Door    string `yaml:"door"`    // producers and consumers, gRPC
	Link    string `yaml:"link"`    // other regions, gRPC
	Admin   string `yaml:"admin"`   // operators, gRPC
	Metrics string `yaml:"metrics"` // /metrics, /healthz, /readyz: HTTP on loopback, HTTPS with certificates elsewhere
}

// Cluster is how the three nodes of a quorum region reach each other.
type Cluster struct {
	Listen  string            `yaml:"listen"`  // host:port for the region's other nodes
	Members map[string]string `yaml:"members"` // every gateway of the region, this one included: its host:port for the others
}

// TLS holds the paths of the node's certificate files, PEM.
type TLS struct {
	CA          string `yaml:"ca"`
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
}

// Log says how the node writes its own log lines, to standard error.
type Log struct {
	Level string `yaml:"level"` // debug, info, warn, error
	JSON  bool   `yaml:"json"`
}

// NewConfig returns a configuration with every default set.
func NewConfig() Config {
	return Config{
		Federation: "federation.yaml", Data: "data", MaxStore: 16 << 30, Policies: "policies",
		Listen:   Listen{Door: "127.0.0.1:7400", Link: "127.0.0.1:7401", Admin: "127.0.0.1:7402", Metrics: "127.0.0.1:7403"},
		DevClass: "app",
		Log:      Log{Level: "info"},
	}
}

// LoadConfig reads and checks node.yaml.
func LoadConfig(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, &api.Error{Code: api.ConfigInvalid, Op: "read node config", Err: err, Hint: "domicile init DIR writes one"}
	}
	c := NewConfig()
	if err := strict.Decode(path, data, &c); err != nil {
		return Config{}, err
	}
	dir := filepath.Dir(path)
	for _, p := range []*string{&c.Federation, &c.Data, &c.Policies, &c.TLS.CA, &c.TLS.Certificate, &c.TLS.Key} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	return c, nil
}

// Validate checks the configuration against the manifest. Files are not opened.
func (c *Config) Validate(f *regions.Federation, dev bool) error {
	bad := func(field, value, hint string) error {
		return &api.Error{Code: api.ConfigInvalid, Op: "check node config", Field: field, Value: value, Hint: hint}
	}
	region, ok := f.Region(c.Region)
	if !ok && !c.Witness(f) {
		hint := fmt.Sprintf("the manifest has %v", f.Regions())
		if near := strict.Nearest(c.Region, f.Regions()); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		return bad("region", c.Region, hint)
	}
	if err := c.checkCluster(region); ok && err != nil {
		return err
	}
	if c.MaxStore < 64<<20 {
		return bad("max_store", c.MaxStore.String(), "at least 64MiB")
	}
	for field, address := range map[string]string{"listen.door": c.Listen.Door, "listen.link": c.Listen.Link, "listen.admin": c.Listen.Admin, "listen.metrics": c.Listen.Metrics} {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return bad(field, address, "write host:port")
		}
		if dev && field != "listen.link" && !loopback(host) {
			return bad(field, address, "--dev serves without certificates and is for loopback addresses only")
		}
	}
	if err := c.Policy.Check(); err != nil {
		return err
	}
	if err := door.CheckRules(c.Principals, f); err != nil {
		return err
	}
	if err := c.Operators.Check(); err != nil {
		return err
	}
	if err := c.Clock.check(); err != nil {
		return err
	}
	if _, err := c.Log.level(); err != nil {
		return bad("log.level", c.Log.Level, "debug, info, warn or error")
	}
	return nil
}

// Witness reports whether the configuration is the manifest's witness's, and no region's.
func (c *Config) Witness(f *regions.Federation) bool {
	w, ok := f.Witness()
	return ok && w.Name == c.Region
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (l Log) level() (slog.Level, error) {
	var level slog.Level
	if l.Level == "" {
		return slog.LevelInfo, nil
	}
	err := level.UnmarshalText([]byte(l.Level))
	return level, err
}

// Logger is the logger that the configuration asks for.
func (l Log) Logger() *slog.Logger {
	level, _ := l.level()
	options := &slog.HandlerOptions{Level: level}
	if l.JSON {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}
