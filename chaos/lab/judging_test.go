package lab_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/regions/placement"
)

// verdict writes a policy that lets orders rest everywhere that have one of the classes. Of
// another class it knows nothing: where a stored one may rest, nobody can say.
func verdict(dir string, serial int, classes string) error {
	catalog := fmt.Sprintf(`serial: %d
dimensions: {residency: [eu, us, global], class: [order, secret]}
principal_classes: [app, operator]
topics: {orders: {allow: [{residency: [global], class: [%s]}], packages: [orders]}}
`, serial, classes)
	const rules = `package residency.rules.orders

permit contains {"rule": "everywhere", "text": "everywhere", "regions": data.federation.regions}
`
	return errors.Join(os.MkdirAll(filepath.Join(dir, "rules"), 0o700), os.WriteFile(filepath.Join(dir, "catalog.yaml"), []byte(catalog), 0o600),
		os.WriteFile(filepath.Join(dir, "rules", "orders.rego"), []byte(rules), 0o600))
}

// judged is a federation whose regions each have a policy of their own, and whose moves can
// be held before an act.
type judged struct {
	*moved
	dir    string
	serial int
	stops  *stopAt
}

const known, unknown = "order, secret", "order"

func judging(t *testing.T) *judged {
	j := &judged{dir: t.TempDir(), serial: 1, stops: &stopAt{}}
	for _, r := range []string{"eu-west", "eu-central", "us-east"} {
		if err := verdict(filepath.Join(j.dir, r), 1, known); err != nil {
			t.Fatal(err)
		}
	}
	j.moved = moving(t, "", lab.Options{Seams: j.stops.seams, Config: func(region string, c *node.Config) { c.Policies = filepath.Join(j.dir, region) }})
	return j
}

// says puts another policy in force in one region.
func (j *judged) says(region, classes string) {
	j.Helper()
	j.serial++
	if err := verdict(filepath.Join(j.dir, region), j.serial, classes); err != nil {
		j.Fatal(err)
	}
	if n := j.node(region); n != nil {
		if err := n.Reload(j.Context()); err != nil {
			j.Fatal(err)
		}
	}
}

// held begins a move to us-east and lets one act come due, and not be done before let.
func (j *judged) held(op, region, act string) (let func()) {
	j.Helper()
	j.until("the log may be moved", func() error {
		l := j.at("eu-central")
		if len(l.Terms.Allowed) != 3 || l.Status != placement.Active {
			return fmt.Errorf("%s, allowed in %v", l.Status, l.Terms.Allowed)
		}
		return nil
	})
	due := j.stops.set(region, act)
	j.move("eu-central", op, "us-east")
	select {
	case <-due:
	case <-j.Context().Done():
		j.Fatalf("%s in %s was never due", act, region)
	}
	return j.stops.release
}

// secret publishes an order of the class that not every policy knows.
func (j *judged) secret(region string) {
	j.Helper()
	r := orderOf("global", "a secret")
	r.Tags[0].Value = "secret"
	if _, err := door(j.T, j.Lab, region, 0).Publish(j.Context(), &r); err != nil {
		j.Fatal(err)
	}
}

// keptShut waits until us-east says that its policy keeps the log shut.
func (j *judged) keptShut() {
	j.Helper()
	j.until("the log is kept shut", func() error {
		if l := j.at("us-east"); l.Home != "us-east" || l.Status != placement.Opening || l.Refused != api.HomeOutsideBoundary {
			return fmt.Errorf("%s %s %q", l.Home, l.Status, l.Refused)
		}
		return nil
	})
}

// TestR14e_BothEndsJudgeWhatIsMoved: whatever comes into force, or comes in, while a log
// moves is judged by home and target, each by its own policy, before it is decided and
// before it opens. What the home forbids, or what the target does not have, ends the move;
// what the new home forbids keeps the log shut until it does no more.
func TestR14e_BothEndsJudgeWhatIsMoved(t *testing.T) {
	t.Parallel()
	j := judging(t)
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	j.publish(ctx, &producers, "eu-west", "w")
	j.more(10)
	taken := func(epochs int) placement.Ended {
		t.Helper()
		l := j.settled("eu-west", "eu-west", "us-east", "eu-central")
		if len(l.History) != epochs || l.History[epochs-1].How != placement.ByAbort {
			t.Fatalf("the epochs ended as %+v", l.History)
		}
		return l.History[epochs-1]
	}

	// What comes in last is withheld from the target, which must not take over without it.
	j.says("us-east", unknown)
	let := j.held("last", "eu-west", "fence")
	j.secret("eu-west")
	let()
	taken(1)
	j.says("us-east", known)

	// The home's own policy, before it ends its epoch, and once more when it has.
	for i, act := range []string{"fence", "prove"} {
		let := j.held("home-"+act, "eu-west", act)
		j.says("eu-west", unknown)
		let()
		taken(2 + i)
		j.says("eu-west", known)
		j.more(10)
	}

	// Nobody forbids anything any more. The copy still has not what was withheld.
	j.held("all agree", "us-east", "caughtup")()
	taken(4)
	stop()
	producers.Wait()
}

// TestR14e_ANewHomeOpensByThePolicyOfTheMoment: another policy comes into force after the
// move was decided, before the log is opened and after it was.
func TestR14e_ANewHomeOpensByThePolicyOfTheMoment(t *testing.T) {
	t.Parallel()
	j := judging(t)
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	j.publish(ctx, &producers, "eu-west", "w")
	j.more(10)
	j.secret("eu-west")
	for _, act := range []string{"become", "opened"} {
		let := j.held("before-"+act, "us-east", act)
		j.says("us-east", unknown)
		let()
		j.keptShut()
		if act == "become" {
			j.says("us-east", known)
		} else { // what was judged in another run does not count
			if err := j.Region("us-east").Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			j.says("us-east", known)
			if err := j.Region("us-east").Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		j.settled("us-east", "eu-west", "us-east", "eu-central")
		j.more(10)
		if act == "become" {
			j.move("eu-central", "back", "eu-west")
			j.settled("eu-west", "eu-west", "us-east", "eu-central")
		}
	}
	stop()
	producers.Wait()
	j.whole("us-east", nil)
}
