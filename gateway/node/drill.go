package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"domicile/api"
	"domicile/gateway/drill"
	"domicile/gateway/nft"
	"domicile/regions/approval"
	"domicile/regions/link"
)

// openDrills makes what operators cut links with. What it holds ends with the node.
func (n *Node) openDrills(context.Context) error {
	past, err := drillsOf(filepath.Join(n.cfg.Data, actsFile), n.seams.Clock.Now().Add(-approval.MaxLife))
	if err != nil {
		return err
	}
	n.gates = link.NewGates(n.seams.Boot, func(peer string) bool {
		return n.federation.Addresses(n.cfg.Region)[peer] != nil || n.federation.Witnesses(n.cfg.Region)[peer] != nil
	})
	n.onClose("gates", func(context.Context) error { n.gates.Close(); return nil })
	filter := nft.New(nft.Config{Federation: n.federation, Self: n.cfg.Region, Node: n.cfg.Node, Open: n.gates.Open, Boot: n.seams.Boot, Logger: n.logger, Run: n.seams.PacketFilter})
	if n.federation.Drills() != nil {
		filter.Sweep()
	}
	n.drills = drill.New(drill.Config{
		Self: n.cfg.Region, Federation: n.federation, Gates: n.gates, Filter: filter, Audit: n.auditDrill, Files: n.searchFiles, Used: past.used, Proof: past.proof, Measured: past.measured, Proven: n.auditProof,
		Verifier: &approval.Verifier{Federation: n.federation.Name(), Trust: n.identity, Rules: n.operators(), Clock: (*ends)(n)},
		Clock:    n.seams.Clock, Boot: n.seams.Boot, Logger: n.logger,
	})
	n.onClose("drills", func(context.Context) error { n.drills.Release(); return nil })
	return nil
}

// pastDrills is what the audit says of drills.
type pastDrills struct {
	used     map[string]time.Time // armed here, and when
	proof    drill.Proof          // the last that has passed
	measured map[string]drill.Measured
}

// drillsOf reads in the audit which drills were armed here since an instant, so that a
// restart does not make a consent count twice, which was the last that has passed, and what
// moves such drills have measured.
func drillsOf(path string, since time.Time) (past pastDrills, err error) {
	past.used, past.measured = map[string]time.Time{}, map[string]drill.Measured{}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return past, nil
	}
	if err == nil {
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, maxAct)
		for lines.Scan() {
			var a act
			switch torn := json.Unmarshal(lines.Bytes(), &a) != nil; {
			case torn: // it began nothing
			case a.Act == drillArmed && !a.At.Before(since):
				past.used[a.Plan] = a.At
			case a.Act == drillPassed:
				past.proof = drill.Proof{ID: a.Plan, By: a.Who, Chain: a.Chain, At: a.At}
				for _, m := range a.Moves {
					m.Drill, m.At = a.Plan, a.At
					past.measured[m.Topic] = m
				}
			}
		}
		err = lines.Err()
	}
	if err != nil {
		return pastDrills{}, &api.Error{Code: api.StorageFailed, Op: "read audit", Field: "data", Value: path, Err: err, Hint: "it says which drills were armed here: see that the disk can be read"}
	}
	return past, nil
}

// Acts of drills in the audit.
const drillArmed, drillPassed = "drill", "drill-passed"

// maxAct bounds a line of the audit, in bytes: a purge names each log that it was done to.
const maxAct = 16 << 20

// auditDrill notes in this region's audit that a drill was armed here.
func (n *Node) auditDrill(ctx context.Context, id, reason string) error {
	_, err := n.begin(ctx, act{Act: drillArmed, Reason: reason, Plan: id})
	return err
}

// auditProof notes in this region's audit that a drill has passed.
func (n *Node) auditProof(ctx context.Context, id, chain string, moves []drill.Measured) error {
	_, err := n.begin(ctx, act{Act: drillPassed, Plan: id, Chain: chain, Moves: moves})
	return err
}
