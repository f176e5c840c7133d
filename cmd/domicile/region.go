package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/fabric"
)

func (a *app) regionCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "region", Short: "Take a region's store to another disk, or to three nodes",
		Long: `Both commands read the whole store into a new one, compare the two record by
record, and only then retire the old one. The region's node is stopped meanwhile;
other regions go on, and their mirrors go on behind the move where they stopped. What
is cut off, by Ctrl-C or by a crash, goes on when the same command is run again.`,
		Example: "  domicile region move -c eu-west/node.yaml --to /mnt/new/data\n" + growExample,
	}
	group.AddCommand(a.regionMove(), a.regionGrow())
	return group
}

func (a *app) regionMove() *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use: "move", Short: "Take the store of a region of one node to another directory",
		Example: "  domicile region move -c eu-west/node.yaml --to /mnt/new/data",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			old, f, err := loadNode(from, false)
			if err != nil {
				return err
			}
			source := storeOf(old, f)
			target := source
			target.Dir = to
			return a.move(cmd.Context(), source, []fabric.Config{target}, func(dirs []string) string {
				return fmt.Sprintf("In %s set data: %s, then: %s serve -c %s", quote(from), quote(dirs[0]), commandHere(), quote(from))
			})
		},
	}
	cmd.Flags().StringVarP(&from, "config", "c", "", "path of the region's node.yaml")
	cmd.Flags().StringVar(&to, "to", "", "empty or absent directory for the new store")
	return needs(cmd, "config", "to")
}

// storeOf is the store that a node's configuration means.
func storeOf(c node.Config, f *regions.Federation) fabric.Config {
	return fabric.Config{Region: c.Region, Federation: f.Name(), Dir: c.Data, MaxStore: int64(c.MaxStore), Logger: c.Log.Logger()}
}

// move carries a store over; next says what the operator does then.
func (a *app) move(ctx context.Context, from fabric.Config, to []fabric.Config, next func(dirs []string) string) (err error) {
	if err := disableCoreDumps(); err != nil {
		return err
	}
	start := a.now()
	m, err := fabric.NewMove(ctx, from, to...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close(context.WithoutCancel(ctx))) }()
	plan := m.Plan()
	if !a.json() {
		a.printPlan(from.Region, plan)
	}
	bar := a.moveBar(plan)
	moved, err := m.Run(ctx, bar.draw)
	bar.end()
	if err != nil {
		return err
	}
	took := a.now().Sub(start)
	if a.json() {
		return a.printJSON(moveReport{plan.From, plan.To, plan.FromDir, plan.Dirs, viewMoved(moved), took.Seconds()})
	}
	return a.printMoved(moved, plan.FromDir, took, next(plan.Dirs))
}

func (a *app) printMoved(moved []fabric.Moved, from string, took time.Duration, next string) error {
	rows := [][]string{{"LOG", "KIND", "RECORDS", "FIRST", "LAST", "SHA-256"}}
	var damaged uint64
	for _, l := range moved {
		rows = append(rows, []string{l.Log.String(), l.Kind, count(l.Records), fmt.Sprint(l.First), fmt.Sprint(l.Last), l.Digest[:16]})
		damaged += l.Damaged
	}
	if len(moved) > 0 {
		table(a.out, "", rows)
	}
	if damaged > 0 {
		fmt.Fprintf(a.out, "%s messages were damaged in the old store and are gaps in the new one too; what is left of them is in %s only.\n", count(damaged), from)
	}
	_, err := fmt.Fprintf(a.out, "Done in %s; both stores were compared record by record. %s is retired: it opens no more.\n%s\n", took.Round(time.Millisecond), from, next)
	return err
}

// moveReport is the JSON of a finished move.
type moveReport struct {
	From    string      `json:"from_fabric,omitempty"` // empty: an earlier run had copied all
	To      string      `json:"to_fabric,omitempty"`
	FromDir string      `json:"from"`
	Dirs    []string    `json:"to"`
	Logs    []movedView `json:"logs"`
	Seconds float64     `json:"seconds"`
}

type movedView struct {
	Log      string `json:"log"`
	Kind     string `json:"kind"`
	Messages uint64 `json:"messages"`
	Records  uint64 `json:"records"`
	Damaged  uint64 `json:"damaged"`
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Digest   string `json:"sha256"`
}

func viewMoved(moved []fabric.Moved) []movedView {
	views := make([]movedView, 0, len(moved))
	for _, l := range moved {
		views = append(views, movedView{l.Log.String(), l.Kind, l.Messages, l.Records, l.Damaged, l.First, l.Last, l.Digest})
	}
	return views
}

func (a *app) printPlan(region string, p fabric.MovePlan) {
	fmt.Fprintf(a.out, "Moving the store of %s\n", region)
	rows := [][]string{{"from", p.FromDir}, {"to", strings.Join(p.Dirs, ", ")}}
	switch {
	case p.Retired:
		rows = append(rows, []string{"state", "all was copied and the old store retired by an earlier run; what is left is to let the new one open"})
	default:
		rows = append(rows, []string{"holds", fmt.Sprintf("%d logs, %s messages, %s MiB", p.Logs, count(p.Messages), count(p.Bytes>>20))})
	}
	if p.Copied > 0 {
		rows = append(rows, []string{"there", count(p.Copied) + " messages, from an earlier run"})
	}
	table(a.out, "  ", rows)
}

// moveBar is the progress line of a move; nil draws nothing.
type moveBar struct {
	progress
	done map[string]uint64 // by log
	all  uint64
}

func (a *app) moveBar(p fabric.MovePlan) *moveBar {
	bar := a.progressBar(int64(p.Messages))
	if bar == nil {
		return nil
	}
	return &moveBar{progress: *bar, done: map[string]uint64{}, all: p.Messages}
}

func (b *moveBar) draw(p fabric.MoveProgress) {
	if b == nil {
		return
	}
	b.done[p.Log.String()] = p.Messages
	var sum uint64
	for _, n := range b.done {
		sum += n
	}
	b.progress.show(func(time.Time) string {
		return barOf(float64(sum)/float64(max(b.all, 1))) + fmt.Sprintf("  %s of %s messages, %s", count(sum), count(b.all), p.Log)
	})
}

func (b *moveBar) end() {
	if b != nil {
		b.progress.end()
	}
}
