package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Metric is one line of a metrics page.
type Metric struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// metricsLimit bounds a metrics page, in bytes.
const metricsLimit = 8 << 20

// Page reads the region's metrics page, as a monitoring system would.
func (r *Region) Page(ctx context.Context) ([]byte, error) {
	n := r.Node()
	if n == nil {
		return nil, fmt.Errorf("%s is not running", r.Name)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Metrics()+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := r.lab.web.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics of %s: %s", r.Name, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, metricsLimit))
}

// Metrics is the metrics page, line by line.
func (r *Region) Metrics(ctx context.Context) ([]Metric, error) {
	page, err := r.Page(ctx)
	if err != nil {
		return nil, err
	}
	return ParseMetrics(bytes.NewReader(page))
}

// ParseMetrics reads a page in the text format of Prometheus.
func ParseMetrics(r io.Reader) ([]Metric, error) {
	var metrics []Metric
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		m, err := parseMetric(line)
		if err != nil {
			return nil, err
		}
		metrics = append(metrics, m)
	}
	return metrics, lines.Err()
}

func parseMetric(line string) (Metric, error) {
	m := Metric{Labels: map[string]string{}}
	head, rest := line, ""
	if i := strings.IndexAny(line, "{ "); i >= 0 {
		head, rest = line[:i], line[i:]
	}
	m.Name = head
	if strings.HasPrefix(rest, "{") {
		var err error
		if rest, err = m.parseLabels(rest[1:]); err != nil {
			return m, fmt.Errorf("metric %s: %w", m.Name, err)
		}
	}
	value, _, _ := strings.Cut(strings.TrimSpace(rest), " ") // a time may follow
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return m, fmt.Errorf("metric %s: value: %w", m.Name, err)
	}
	m.Value = v
	return m, nil
}

func (m *Metric) parseLabels(s string) (string, error) {
	for {
		s = strings.TrimLeft(s, ", ")
		if rest, ok := strings.CutPrefix(s, "}"); ok {
			return rest, nil
		}
		name, rest, ok := strings.Cut(s, "=")
		quoted, err := strconv.QuotedPrefix(rest)
		if !ok || err != nil {
			return "", fmt.Errorf("labels %q: want name=\"value\"", s)
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return "", err
		}
		m.Labels[strings.TrimSpace(name)] = value
		s = rest[len(quoted):]
	}
}
