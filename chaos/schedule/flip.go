package schedule

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"domicile/chaos/field"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
)

// reloadWithin bounds one node's answer to a reload: on a busy machine compiling takes
// seconds, and one that is given up begins anew.
const reloadWithin = time.Minute

// serialLine is where a catalogue says how new it is.
var serialLine = regexp.MustCompile(`(?m)^serial: \d+$`)

// flip puts a newer policy into the directory that all nodes read and has the regions
// activate it one after the other, in the step's order. It does not wait for nodes that
// are down or paused: they get it as soon as they answer.
func (r *run) flip(ctx context.Context, s Step) error {
	r.serial++
	serial := r.serial
	if err := r.newPolicy(serial); err != nil {
		return err
	}
	for _, region := range s.Regions {
		r.after.Go(func() { r.activate(ctx, region, serial) })
		if err := lab.Pass(ctx, s.For/time.Duration(len(s.Regions))); err != nil {
			return err
		}
	}
	return nil
}

// newPolicy raises the serial. Whoever reads the catalogue meanwhile reads the old one or
// the new one.
func (r *run) newPolicy(serial int) error {
	path := filepath.Join(r.field.Policies(), "catalog.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	next := filepath.Join(filepath.Dir(r.field.Policies()), "catalog.next")
	if err := os.WriteFile(next, serialLine.ReplaceAll(text, fmt.Appendf(nil, "serial: %d", serial)), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// activate has every node of a region activate what is in the directory, and notes when
// all have.
func (r *run) activate(ctx context.Context, region string, serial int) {
	nodes := r.field.Of(region)
	errs := make(chan error, len(nodes))
	for _, n := range nodes {
		go func() { errs <- lab.Poll(ctx, startWithin, func() error { return reload(ctx, n) }) }()
	}
	var all error
	for range nodes {
		all = errors.Join(all, <-errs)
	}
	if all != nil {
		r.finding(fmt.Errorf("%s does not activate a policy: %w", region, all))
		return
	}
	r.book.Step(ledger.Step{Kind: ledger.PolicyFlip, Phase: ledger.Point, Region: region, Value: fmt.Sprint(serial)})
}

// reload has one node activate what is in the directory.
func reload(ctx context.Context, n *field.Node) error {
	desk, err := n.Desk()
	if err != nil {
		return err
	}
	defer desk.Close()
	asking, cancel := context.WithTimeout(ctx, reloadWithin)
	defer cancel()
	_, err = desk.Reload(asking)
	return err
}
