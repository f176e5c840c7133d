package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/regions/link"
	"domicile/regions/placement"
)

// pairWith is the manifest of two regions with a log that moves between them, and whose home
// stops when it is cut off from the authority.
func pairWith(witness string) []byte {
	return fmt.Appendf(nil, `version: 1
federation: example
regions:
  eu-west: {link: "127.0.0.1:7401"}
  us-east: {link: "127.0.0.1:7402"}
boundaries: {eu: [eu-west], us: [us-east]}
authority:
  voters: [eu-west, us-east]
%s
topics:
  orders: {writes: home, home: eu-west, mirror: [all], failover: {mode: manual, targets: [us-east], rpo: 5s, rto: 2m, fence_after: 20s},
    on_home_loss: {producers: refuse, consumers: {mode: read_copy, max_staleness: 1h}, owner: o, text: t}}
`, witness)
}

// TestR14e_TwoRegionsAndAWitness: the link between two regions is cut, and the home goes on
// by way of the witness. Voters are restarted one by one, and the log never stops for it. The
// home is lost, and the other region and the witness decide that the log goes on there. No
// record ever came near the witness.
func TestR14e_TwoRegionsAndAWitness(t *testing.T) {
	t.Parallel()
	m := moving(t, "", lab.Options{Manifest: pairWith(`  witness: {arbiter: {link: "127.0.0.1:7409"}}`)})
	m.leads("us-east") // so that the home hears no leader when the link is cut
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	m.publish(ctx, &producers, "eu-west", "canary")
	m.more(20)
	goesOn := func(what string) {
		t.Helper()
		since := time.Now()
		m.until(what, func() error {
			if last, _ := m.acksOf("eu-west"); last.Sub(since) < quick.Of(30*time.Second) {
				return fmt.Errorf("acknowledged until %s later; refused: %v", last.Sub(since), m.refused())
			}
			return nil
		})
		t.Logf("%s; refused so far: %v", what, m.refused())
	}
	m.until("the lease is fresh", func() error {
		if left, _ := m.node("eu-west").Placer().Left(m.id); left < 15*time.Second {
			return fmt.Errorf("%s of it are left", left)
		}
		return nil
	})
	if err := m.CutLink("eu-west", "us-east", link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	goesOn("with the link cut, beyond the lease")
	m.Heal()
	if err := errors.Join(m.Witness().Stop(t.Context()), m.Witness().Start(t.Context()), m.Region("us-east").Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	goesOn("after the other voters were restarted")
	stop()
	producers.Wait()
	m.whole("eu-west", nil)

	if err := m.Region("eu-west").Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.until("us-east and the witness decide", func() error {
		if s := m.authority("us-east"); s.GetLeader() == "" || s.GetLeader() == "eu-west" || !s.GetReached() {
			return fmt.Errorf("%v", s)
		}
		return nil
	})
	m.move("us-east", "lost", "us-east", leased)
	m.settled("us-east", "us-east")
	ctx, stop = context.WithCancel(t.Context())
	defer stop()
	m.publish(ctx, &producers, "us-east", "canary-2")
	m.more(20)
	if err := m.Region("eu-west").Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.settled("us-east", "us-east", "eu-west")
	stop()
	producers.Wait()
	m.whole("us-east", nil)
	m.witnessIsBlind("canary")
}

// leads has a region's voter lead, by restarting whoever does instead.
func (m *moved) leads(region string) {
	m.Helper()
	for {
		leader := ""
		m.until("somebody leads", func() error {
			if leader = m.authority(region).GetLeader(); leader == "" {
				return errors.New("nobody does")
			}
			return nil
		})
		var err error
		switch leader {
		case region:
			return
		case "arbiter":
			err = errors.Join(m.Witness().Stop(m.Context()), m.Witness().Start(m.Context()))
		default:
			err = m.Region(leader).Restart(m.Context())
		}
		if err != nil {
			m.Fatal(err)
		}
	}
}

// witnessIsBlind looks for a word of the records in all that the witness wrote, and asks it
// what it knows of.
func (m *moved) witnessIsBlind(word string) {
	m.Helper()
	err := filepath.WalkDir(filepath.Dir(m.Witness().Data()), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(word)) {
			m.Errorf("%s holds %q", path, word)
		}
		return err
	})
	if err != nil {
		m.Error(err)
	}
	c, err := m.Witness().Desk()
	if err != nil {
		m.Fatal(err)
	}
	defer c.Close()
	r, err := c.Placements(m.Context(), "", "")
	if s := r.GetAuthority(); err != nil || s.GetRole() != "voter" || len(s.GetVoting()) != 3 || s.GetTrouble() != "" || len(r.GetLogs()) > 0 {
		m.Errorf("the witness says %v: %v", r, err)
	}
	if _, err := c.Status(m.Context()); err == nil {
		m.Error("the witness says how it stores records")
	}
}

// TestR14e_TwoRegionsAlone: without a third voice a log that fences itself stops when the two
// are cut off from each other, nobody can take it over, and it goes on when they are not.
func TestR14e_TwoRegionsAlone(t *testing.T) {
	t.Parallel()
	m := moving(t, "", lab.Options{Manifest: pairWith("")})
	m.until("it takes records", func() error { _, err := publishTo(t, m.Lab, "eu-west", "orders", "first"); return err })
	if err := m.CutLink("eu-west", "us-east", link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	m.until("its home stops", func() error {
		if _, err := publishTo(t, m.Lab, "eu-west", "orders", "second"); api.CodeOf(err) != api.Fenced {
			return fmt.Errorf("told %v", err)
		}
		return nil
	})
	l := m.at("us-east")
	c := placement.Command{Verb: placement.Begin, ID: "alone", Log: l.Incarnation, Expect: l.Epoch, Region: "us-east", Actor: "anna", Reason: "a test", Plan: "p",
		Move: &placement.Move{Kind: placement.Forced, Target: "us-east", TargetDigest: l.Terms.Digest}}
	leased(&c)
	short, cancel := context.WithTimeout(t.Context(), quick.Of(10*time.Second))
	defer cancel()
	if _, err := m.node("us-east").Placer().Submit(short, c); api.CodeOf(err) != api.AuthorityUnreachable {
		t.Errorf("one of two took the log: %v", err)
	}
	m.Heal()
	m.until("it goes on", func() error { _, err := publishTo(t, m.Lab, "eu-west", "orders", "third"); return err })
	m.move("us-east", "planned", "us-east")
	m.settled("us-east", "us-east", "eu-west")
	m.until("it takes records there", func() error { _, err := publishTo(t, m.Lab, "eu-west", "orders", "fourth"); return err })
}
