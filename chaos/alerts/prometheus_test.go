package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"domicile/chaos/lab"
	"domicile/chaos/ports"
	"domicile/regions/testenv"
)

const rules = "../../deploy/prometheus"

// tool finds a program of Prometheus, or skips the test.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		testenv.Missing(t, name+" is not installed (Debian: apt-get install prometheus)")
	}
	return path
}

// server is a Prometheus that scrapes the lab.
type server struct {
	*testing.T
	address string
	began   time.Time
	web     http.Client
}

var waits = regexp.MustCompile(`(?m)^(\s+for:) .*$`)

// watch starts a Prometheus on the lab's nodes with the rules as they are, but for what
// they wait for: a drill has no minutes. looks is where the metrics of looks for leaks are
// scraped; limits are further changes of text.
func watch(t *testing.T, l *lab.Lab, looks string, limits ...string) *server {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(rules, "alerts.yaml"))
	must(t, err)
	quick := waits.ReplaceAllString(strings.NewReplacer(limits...).Replace(string(text)), "$1 1s")
	must(t, os.WriteFile(filepath.Join(dir, "alerts.yaml"), []byte(quick), 0o600))
	config := "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [alerts.yaml]\nscrape_configs:\n  - job_name: domicile\n    static_configs:\n"
	for _, r := range l.Regions() {
		config += fmt.Sprintf("      - {targets: [%q], labels: {region: %s}}\n", r.Node().Metrics(), r.Name)
	}
	config += fmt.Sprintf("  - job_name: node\n    static_configs: [{targets: [%q]}]\n", looks)
	must(t, os.WriteFile(filepath.Join(dir, "prometheus.yaml"), []byte(config), 0o600))
	held, err := ports.Listen()
	must(t, err)
	s := &server{T: t, address: held.Addr().String(), began: time.Now(), web: http.Client{Timeout: 10 * time.Second}}
	must(t, held.Close())
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	cmd := exec.Command(tool(t, "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+s.address)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		s.web.CloseIdleConnections()
		_ = log.Close()
		if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s", said)
		}
	})
	s.until("scraped", func() error {
		if n := len(s.ask(fmt.Sprintf("up{job=%q} == 1", "domicile"))); n != len(l.Regions()) {
			return fmt.Errorf("%d of the nodes are scraped", n)
		}
		return nil
	})
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *server) until(what string, ask func() error) {
	s.Helper()
	if err := lab.Poll(s.Context(), 90*time.Second, ask); err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

// answer is what Prometheus answers to a query.
type answer struct {
	Status, Error string
	Data          struct {
		Result []struct{ Metric map[string]string }
	}
}

func (s *server) get(ctx context.Context, path string, q url.Values) (a answer) {
	s.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+path+"?"+q.Encode(), nil)
	must(s.T, err)
	answered, err := s.web.Do(r)
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer answered.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answered.Body, 8<<20))
	must(s.T, err)
	if err := json.Unmarshal(text, &a); err != nil {
		return answer{Error: err.Error()}
	}
	return a
}

// ask lists the labels of what a query finds now.
func (s *server) ask(query string) (found []map[string]string) {
	s.Helper()
	for _, r := range s.get(s.Context(), "/api/v1/query", url.Values{"query": {query}}).Data.Result {
		found = append(found, r.Metric)
	}
	return found
}

// over counts the series that a query finds in the time since the server was started.
func (s *server) over(query string) (int, error) {
	s.Helper()
	q := url.Values{"query": {query}, "step": {"1"}}
	q.Set("start", fmt.Sprint(s.began.Unix()))
	q.Set("end", fmt.Sprint(time.Now().Unix()))
	a := s.get(s.Context(), "/api/v1/query_range", q)
	if a.Status != "success" {
		return 0, fmt.Errorf("%s: %s", query, a.Error)
	}
	return len(a.Data.Result), nil
}

// firing names the alerts that fire now.
func (s *server) firing() map[string]bool {
	s.Helper()
	names := map[string]bool{}
	for _, labels := range s.ask(`ALERTS{alertstate="firing"}`) {
		names[labels["alertname"]] = true
	}
	return names
}

// fires waits until all of the alerts have fired.
func (s *server) fires(names ...string) {
	s.Helper()
	s.until("alerts", func() error {
		var missing []string
		for _, name := range names {
			n, err := s.over(fmt.Sprintf("ALERTS{alertname=%q, alertstate=%q}", name, "firing"))
			if err != nil {
				return err
			}
			if n == 0 {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%v do not fire; %v do", missing, s.firing())
		}
		return nil
	})
}
