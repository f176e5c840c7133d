package node_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/link"
)

// slowDisk is a disk whose syncs wait while it is held.
type slowDisk struct {
	mu      sync.Mutex
	armed   string        // slot of a log whose next record makes syncs wait
	held    chan struct{} // nil: syncs pass
	waiting chan struct{} // told when one waits
}

func (d *slowDisk) arm(slot string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = slot
}

// written holds the round that will sync what was just written, and no earlier one.
func (d *slowDisk) written(log api.LogID, _ uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if log.Slot == d.armed {
		d.armed, d.held = "", make(chan struct{})
	}
}

func (d *slowDisk) sync(dir *os.File) error {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	if held != nil {
		select {
		case d.waiting <- struct{}{}:
		default:
		}
		<-held
	}
	return fabric.Syncfs(dir)
}

// pass lets the sync that waits go on; if more, those after it wait again.
func (d *slowDisk) pass(more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held == nil {
		return
	}
	close(d.held)
	if d.held = nil; more {
		d.held = make(chan struct{})
	}
}

// TestR14b_AJudgementUnderWayAtTheFlipIsNotStored holds one order at each place where an
// order may be while two regions flip: the first is being written to the other region's
// disk, the second has arrived there, judged by the old policy, and waits its turn. The
// first is stored before activate returns. The second is not stored after it, since the
// other region takes no judgement of the old policy any more; it is judged anew and stays.
func TestR14b_AJudgementUnderWayAtTheFlipIsNotStored(t *testing.T) {
	disk := &slowDisk{waiting: make(chan struct{}, 1)}
	x := openSignedAs(t, lab.Options{Pace: 6, Seams: func(region string, s *node.Seams) { // no link gives up meanwhile
		if region == "us-east" {
			s.Hooks.Fabric.Sync, s.Hooks.Fabric.Written = disk.sync, disk.written
		}
	}})
	x.activated("eu-west", x.policy(1, false))
	x.mustPublish("eu-west", "a", "global", "eu-west-a-0")
	x.mustPublish("eu-west", "a", "us", "there-already")
	x.eventually("the flow runs", func() bool { return x.foreign("us-east", "eu-west") == 1 })

	disk.arm("eu-west")
	t.Cleanup(func() { disk.pass(false) }) // before the regions stop
	x.mustPublish("eu-west", "b", "global", "eu-west-b-1")
	<-disk.waiting
	under := x.underWay()
	x.mustPublish("eu-west", "b", "global", "eu-west-b-2")
	x.eventually("the second is sent", func() bool { return x.underWay() > under })
	for range 3 { // what was sent before these has arrived: they are answered without the disk
		x.mustPublish("eu-west", "a", "us", "there-already")
	}
	// From here on us-east hears of the policy, and not that its origin gave the batch up.
	gates := x.Region("us-east").Node().Gates()
	cut, err := gates.Cut("eu-west", []link.Plane{link.Data}, []regions.Direction{regions.In}, link.BlackHole, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := x.activate("eu-west", x.policy(2, true))
		done <- err
	}()
	x.eventually("us-east has flipped", func() bool { return x.state("us-east").GetSerial() == 2 })
	if x.confirmed() {
		t.Error("us-east has confirmed while an order of the old policy is being written")
	}
	disk.pass(true) // what is written from here on waits until activate has returned
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !x.confirmed() {
		t.Fatal("us-east has not confirmed")
	}
	disk.pass(false)
	gates.Heal(cut)
	x.mustPublish("eu-west", "a", "global", "eu-west-a-3")
	x.eventually("the flow goes on", func() bool { return x.ids("us-east")["eu-west-a-3"] })
	if there := x.ids("us-east"); !there["eu-west-b-1"] || there["eu-west-b-2"] {
		t.Errorf("us-east holds %v", there)
	}
	if log, err := os.ReadFile(filepath.Join(x.Region("us-east").Dir, "node.log")); err != nil || !bytes.Contains(log, []byte(`"state":"POLICY_SKEW"`)) {
		t.Errorf("no batch was refused for its policy, so nothing is shown: %v", err)
	}
}

func (x *signedLab) mustPublish(region, class, residency, id string) {
	x.Helper()
	if err := x.publish(region, class, residency, id); err != nil {
		x.Fatal(err)
	}
}

// underWay is how many bytes eu-west has sent to us-east that are not confirmed.
func (x *signedLab) underWay() uint64 {
	s, _ := x.Region("eu-west").Node().LinkTo("us-east")
	return s.BytesOut
}

func (x *signedLab) confirmed() bool {
	x.Helper()
	fences := x.state("eu-west").GetFences()
	return len(fences) == 1 && fences[0].GetConfirmed()
}
