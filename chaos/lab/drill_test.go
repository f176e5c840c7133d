package lab_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/deploy"
	"domicile/regions/link"
)

// drilled are operators' clients of the example federation, in which drills are permitted.
type drilled struct {
	t     *testing.T
	lab   *lab.Lab
	desks map[string]*client.Client
}

func openDrilled(t *testing.T) *drilled {
	d := &drilled{t: t, desks: map[string]*client.Client{}}
	d.lab = open(t, lab.Options{Manifest: slices.Concat(deploy.FederationYAML, []byte("\ndrills: {max_for: 1m}\n"))})
	for _, r := range d.lab.Regions() {
		d.desks[r.Name] = desk(t, d.lab, r.Name)
	}
	return d
}

const drillLease = 2 * time.Second

// spec isolates eu-west.
func (d *drilled) spec() *pb.DrillSpec {
	return &pb.DrillSpec{Isolate: "eu-west", Peers: []string{"ap-south", "us-east"}, Planes: []string{"control", "data", "council"},
		Direction: "both", Fault: "blackhole", LeaseNano: int64(drillLease), ForNano: int64(30 * time.Second)}
}

func (d *drilled) arm(t *testing.T, region, id string, s *pb.DrillSpec) (*pb.DrillState, error) {
	t.Helper()
	return d.desks[region].ArmDrill(t.Context(), &pb.ArmDrillRequest{Id: id, Spec: s, Reason: "test"})
}

// begin arms and cuts at every region.
func (d *drilled) begin(t *testing.T, id string) {
	t.Helper()
	for region := range d.desks {
		if _, err := d.arm(t, region, id, d.spec()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range d.desks {
		if s, err := c.CutDrill(t.Context(), id); err != nil || s.GetPhase() != "cut" {
			t.Fatalf("%v %v", s, err)
		}
	}
}

// ended waits until a region holds nothing of the drill, and says how it ended.
func (d *drilled) ended(t *testing.T, region, id string) string {
	t.Helper()
	how := ""
	within(t, region+" heals", func() error {
		s, err := desk(t, d.lab, region).DrillStatus(t.Context())
		if err != nil || s.GetId() != "" || len(s.GetCuts()) > 0 {
			return fmt.Errorf("%v %v", s, err)
		}
		if how = "restart"; s.GetLast() != nil {
			how = s.GetLast().GetHow()
		}
		return nil
	})
	return how
}

// TestR14i_ADrillIsALease: what operators cut through their door heals when nobody renews
// it, when they say so and when the node restarts, and says meanwhile whose it is.
func TestR14i_ADrillIsALease(t *testing.T) {
	d := openDrilled(t)
	t.Run("refusals", d.refusals)
	t.Run("lapse", d.lapse)
	t.Run("renew and heal", d.renewAndHeal)
	t.Run("restart", d.restart)
}

func (d *drilled) refusals(t *testing.T) {
	long, odd, other := d.spec(), d.spec(), d.spec()
	long.ForNano = int64(2 * time.Minute)
	odd.Fault = "slow"
	other.Peers = []string{"us-east"}
	for name, c := range map[string]struct {
		region string
		spec   *pb.DrillSpec
		code   api.Code
		says   string
	}{
		"too long":      {"eu-west", long, api.PermissionDenied, "at most 1m"},
		"unknown fault": {"eu-west", odd, api.BadRequest, "cut or blackhole"},
		"no part in it": {"ap-south", other, api.BadRequest, "neither isolated nor one of the peers"},
	} {
		if _, err := d.arm(t, c.region, "drill-r", c.spec); api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.desks["eu-west"].CutDrill(t.Context(), "drill-r"); api.CodeOf(err) != api.Conflict {
		t.Errorf("cut what was not armed: %v", err)
	}
	if err := d.lab.CutLink("us-east", "ap-south", link.BlackHole, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := d.arm(t, "us-east", "drill-r", d.spec()); api.CodeOf(err) != api.Conflict || !strings.Contains(err.Error(), "holds the link with ap-south") {
		t.Errorf("beside another fault: %v", err)
	}
	d.lab.Heal()
}

// lapse: the controller is gone after the cut.
func (d *drilled) lapse(t *testing.T) {
	d.begin(t, "drill-1")
	began := time.Now()
	if _, err := d.arm(t, "us-east", "drill-2", d.spec()); api.CodeOf(err) != api.Conflict {
		t.Errorf("a second drill: %v", err)
	}
	if ack, err := publishTo(t, d.lab, "eu-west", "orders", "during-drill"); err != nil || ack.Drill != "drill-1" {
		t.Errorf("an ack during the drill: %+v %v", ack, err)
	}
	s, err := d.desks["eu-west"].Status(t.Context())
	if err != nil || s.GetDrill() != "drill-1" || !strings.Contains(strings.Join(s.GetWarnings(), "\n"), "drill drill-1 cuts links") {
		t.Errorf("status: %v %v", s, err)
	}
	page, err := d.lab.Region("us-east").Metrics(t.Context())
	if err != nil || !slices.ContainsFunc(page, func(m lab.Metric) bool { return m.Name == "domicile_drill_active" && m.Labels["drill"] == "drill-1" }) {
		t.Errorf("no metric of the drill: %v", err)
	}
	for region := range d.desks {
		if how := d.ended(t, region, "drill-1"); how != "lapsed" {
			t.Errorf("%s: %s", region, how)
		}
	}
	if took := time.Since(began); took > 3*(drillLease+time.Second) {
		t.Errorf("healed after %s", took)
	}
	if err := d.lab.Linked(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ack, err := publishTo(t, d.lab, "eu-west", "orders", "after-drill"); err != nil || ack.Drill != "" {
		t.Errorf("an ack after the drill: %+v %v", ack, err)
	}
}

func (d *drilled) renewAndHeal(t *testing.T) {
	d.begin(t, "drill-3")
	end := time.Now().Add(drillLease * 3 / 2)
	for time.Now().Before(end) {
		for region, c := range d.desks {
			if _, err := c.RenewDrill(t.Context(), "drill-3"); err != nil {
				t.Fatalf("%s: %v", region, err)
			}
		}
		if err := lab.Pass(t.Context(), drillLease/8); err != nil {
			t.Fatal(err)
		}
	}
	var refused *api.Error
	within(t, "a refusal that names the drill", func() error {
		r := orderOf("eu", "resident-1")
		c, err := d.lab.Region("us-east").Door(1)
		if err != nil {
			return err
		}
		defer c.Close()
		for _, each := range d.desks {
			if _, err := each.RenewDrill(t.Context(), "drill-3"); err != nil {
				return err
			}
		}
		_, err = c.Publish(t.Context(), &r)
		refused = nil
		errors.As(err, &refused)
		if refused == nil || refused.Code != api.HomeUnreachable {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	if refused.Drill != "drill-3" {
		t.Errorf("refused with %v", refused)
	}
	for region, c := range d.desks {
		if s, err := c.HealDrill(t.Context(), "drill-3"); err != nil || s.GetId() != "" || s.GetLast().GetHow() != "healed" {
			t.Errorf("%s: %v %v", region, s, err)
		}
	}
	if err := d.lab.Linked(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// restart: one of the nodes forgets, and the rest is ended by the controller or the lease.
func (d *drilled) restart(t *testing.T) {
	d.begin(t, "drill-4")
	if err := d.lab.Region("us-east").Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if how := d.ended(t, "us-east", "drill-4"); how != "restart" {
		t.Error(how)
	}
	if _, err := desk(t, d.lab, "us-east").RenewDrill(t.Context(), "drill-4"); api.CodeOf(err) != api.Conflict {
		t.Errorf("renewed where nothing is held: %v", err)
	}
	for _, region := range []string{"eu-west", "ap-south"} {
		d.ended(t, region, "drill-4")
	}
}
