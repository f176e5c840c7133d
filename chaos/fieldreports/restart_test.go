package fieldreports

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"domicile/chaos/lab"
	"domicile/regions"
)

// B40: a region comes back with an older copy of its data. Its copies elsewhere are
// ahead of it: they alarm, wait for no sequence to come round again, take nothing new
// for what they have, and keep what they have; other logs flow.
func TestB40_AnOlderCopyOfTheDataIsNotBelieved(t *testing.T) {
	d := start(t, lab.Options{})
	ctx := t.Context()
	eu := d.lab.Region("eu-west")
	old := t.TempDir()
	d.burst("eu-west", "first", "orders", "global", 30)
	d.converge()
	d.must(eu.Stop(ctx))
	d.must(os.CopyFS(old, os.DirFS(eu.Data())))
	d.must(eu.Start(ctx))
	d.must(d.lab.Linked(ctx))
	d.burst("eu-west", "second", "orders", "global", 30)
	d.converge()
	d.must(eu.Stop(ctx))
	d.must(os.RemoveAll(eu.Data()))
	d.must(os.CopyFS(eu.Data(), os.DirFS(old)))
	d.must(eu.Start(ctx))
	d.must(d.lab.Linked(ctx))
	d.burst("eu-west", "third", "orders", "global", 50) // past the copies' ends again
	for _, target := range []string{"us-east", "ap-south"} {
		d.poll("the home alarms", func() error {
			l, err := d.lag("eu-west", "orders@eu-west", target)
			if err == nil && l.GetState() != string(regions.LagCursorAhead) {
				err = fmt.Errorf("%s %s", l.GetState(), l.GetCause())
			}
			return err
		})
	}
	d.burst("us-east", "others", "orders", "global", 10)
	d.poll("other logs flow", func() error { return d.reached("orders@us-east", "us-east", "eu-west") })
	d.hush()
	d.must(d.lab.Stop(context.WithoutCancel(ctx)))
	shelves, err := lab.Shelves(ctx, d.lab.Federation, "us-east", d.lab.Region("us-east").Data())
	d.must(err)
	for _, s := range shelves {
		if s.Log != "orders@eu-west" {
			continue
		}
		if len(s.Items) != 60 || s.End != 60 {
			t.Fatalf("the copy holds %d records up to %d, want the 60 that were acknowledged before", len(s.Items), s.End)
		}
		for n, item := range s.Items {
			want := "first-"
			if n >= 30 {
				want = "second-"
			}
			if !strings.HasPrefix(item.ID, want) {
				t.Errorf("sequence %d is %s, want one of the %s", item.Sequence, item.ID, want)
			}
		}
	}
}
