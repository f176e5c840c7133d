package alerts

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api/client"
	pb "domicile/api/domicile/v1"
)

// looks is the page that a node exporter makes of what domicile drill canary leaves.
type looks struct {
	address string
	page    atomic.Pointer[string]
}

// lookForLeaks serves the page after a clean look.
func lookForLeaks(t *testing.T) *looks {
	t.Helper()
	l := &looks{}
	now := time.Now().Unix()
	l.tell(t, map[string]int64{"canaryEnded": now, "canaryClean": now, "canaryOutside": 0})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, *l.page.Load()) }))
	t.Cleanup(s.Close)
	l.address = strings.TrimPrefix(s.URL, "http://")
	return l
}

// leaked is the page of a look, a day after the last clean one, that found marks.
func (l *looks) leaked(t *testing.T) {
	t.Helper()
	now := time.Now().Unix()
	l.tell(t, map[string]int64{"canaryEnded": now, "canaryClean": now - 24*3600, "canaryOutside": 3})
}

// tell takes the names from the command that writes them.
func (l *looks) tell(t *testing.T, values map[string]int64) {
	t.Helper()
	source, err := os.ReadFile("../../cmd/domicile/drill_canary.go")
	must(t, err)
	var page strings.Builder
	for constant, value := range values {
		name := regexp.MustCompile(constant + `\s+= "(domicile_\w+)"`).FindSubmatch(source)
		if name == nil {
			t.Fatalf("%s is not among the metrics of drill canary", constant)
		}
		fmt.Fprintf(&page, "%s %d\n", name[1], value)
	}
	said := page.String()
	l.page.Store(&said)
}

// isolated is a drill on eu-west that passes and says so.
func (d *drill) isolated() {
	d.Helper()
	spec := &pb.DrillSpec{Isolate: "eu-west", Peers: []string{"ap-south", "us-east"}, Planes: []string{"control", "data", "council"},
		Direction: "both", Fault: "blackhole", LeaseNano: int64(30 * time.Second), ForNano: int64(2 * time.Minute)}
	desks := map[string]*client.Client{}
	for _, r := range d.lab.Regions() {
		desk, err := r.Desk()
		must(d.T, err)
		defer desk.Close()
		_, err = desk.ArmDrill(d.Context(), &pb.ArmDrillRequest{Id: "drill-1", Spec: spec, Reason: "test"})
		must(d.T, err)
		desks[r.Name] = desk
	}
	for _, desk := range desks {
		_, err := desk.CutDrill(d.Context(), "drill-1")
		must(d.T, err)
	}
	d.fires("DomicileDrill")
	for _, desk := range desks {
		_, err := desk.HealDrill(d.Context(), "drill-1")
		must(d.T, err)
		_, err = desk.ProveDrill(d.Context(), &pb.ProveDrillRequest{Id: "drill-1", Chain: strings.Repeat("0", 64), Moves: []*pb.ProvenMove{{Topic: "prices", RtoNano: int64(20 * time.Second)}}})
		must(d.T, err)
	}
	must(d.T, d.lab.Linked(d.Context()))
	d.until("what the drill has proven", func() error {
		for _, name := range []string{"DomicileEvidenceMissing", "DomicileRTOMissing"} {
			if d.firing()[name] {
				return fmt.Errorf("%s still fires", name)
			}
		}
		return nil
	})
}
