package fabric_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"domicile/api"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// The ages of a log whose power is cut: what the store holds when it is started.
var ages = []struct {
	name   string
	seeded int  // records of an earlier run
	body   int  // bytes of each record
	stops  int  // clean stops
	old    bool // the broker's indexes are those that its ticker wrote while all was empty
}{
	{name: "never written", body: 300},
	{name: "empty at a clean stop", body: 300, stops: 2},
	{name: "indexes of an empty store", seeded: 300, body: 300, old: true},
	{name: "one block", seeded: 300, body: 300, stops: 1},
	{name: "many blocks", seeded: 2600, body: 4096, stops: 1},
}

// C0: the power goes at a random moment, for logs of every age, on two file systems, on a disk
// whose cache loses what was not flushed; in every second round the log's last block ends in
// zeros besides. All that was acknowledged is there. DOMICILE_LONG: 20 rounds of each.
func TestFC0_PowerCutAtEveryAgeLosesNothingAcked(t *testing.T) {
	needRoot(t, "unshare", "mkfs.ext4", "mkfs.xfs", "mount", "umount", "cp")
	withoutDetector(t)
	inNamespace(t, func(t *testing.T) {
		rounds, lost, total := 1, 0, 0
		if os.Getenv("DOMICILE_LONG") != "" {
			rounds = 20
		}
		for _, kind := range []string{"ext4", "xfs"} {
			for i := range ages {
				d := newCachedDisk(t, kind)
				d.seed(t, i)
				for round := range rounds {
					total++
					if n := d.round(t, i, round); n > 0 {
						lost++
						t.Errorf("%s, %s, round %d: %d acknowledged records are lost", kind, ages[i].name, round, n)
					}
				}
				d.remove(t)
			}
		}
		t.Logf("%d rounds, %d with a loss", total, lost)
	})
}

// cachedDisk is a file system in a file that lies on a file system in a file: what the inner
// one did not flush is in the outer one's memory alone, and not in its file.
type cachedDisk struct{ work string }

func (d *cachedDisk) path(name string) string { return filepath.Join(d.work, name) }

// newCachedDisk makes the file "base".
func newCachedDisk(t *testing.T, kind string) *cachedDisk {
	d := &cachedDisk{t.TempDir()}
	for _, name := range []string{"outer", "live"} {
		must(t, "mkdir", d.path(name))
	}
	must(t, "truncate", "-s", "512M", d.path("base"))
	must(t, "mkfs.ext4", "-q", "-F", d.path("base"))
	must(t, "mount", "-o", "loop", d.path("base"), d.path("outer"))
	must(t, "truncate", "-s", "320M", d.path("outer/inner"))
	must(t, "mkfs."+kind, "-q", d.path("outer/inner"))
	must(t, "umount", d.path("outer"))
	return d
}

// with has do run while the disk in the file named is mounted at "live".
func (d *cachedDisk) with(t *testing.T, file string, do func(dir string)) {
	must(t, "mount", "-o", "loop,commit=300", d.path(file), d.path("outer"))
	must(t, "mount", "-o", "loop", d.path("outer/inner"), d.path("live"))
	defer func() {
		must(t, "umount", d.path("live"))
		must(t, "umount", d.path("outer"))
	}()
	do(d.path("live/data"))
}

// seed brings the store to its age.
func (d *cachedDisk) seed(t *testing.T, age int) {
	a := ages[age]
	d.with(t, "base", func(dir string) {
		must(t, "mkdir", dir)
		if a.stops+a.seeded == 0 {
			return
		}
		kept := filepath.Join(d.work, "kept")
		for i := range max(a.stops, 1) {
			f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
			l := fabrictest.Home(t, f, "orders@here")
			if i == 0 {
				allStored(t, appendRecords(t, l, 0, a.seeded, func(i int) api.Record { return childRecord(i, a.body) }))
			}
			if a.old {
				must(t, "cp", "-r", dir, kept) // as a kill leaves it
			}
			closeNow(t, f)
		}
		if a.old {
			must(t, "rm", "-r", dir)
			must(t, "cp", "-r", kept, dir)
			emptyIndexes(t, dir, 0)
		}
	})
}

// round cuts the power once and says how many acknowledged records are gone.
func (d *cachedDisk) round(t *testing.T, age, round int) (lost int) {
	a := ages[age]
	must(t, "cp", "--sparse=always", d.path("base"), d.path("disk"))
	var c *child
	d.with(t, "disk", func(dir string) {
		c = startChild(t, nil, childDir+"="+dir, childWindow+"=50", fmt.Sprintf("%s=%d", childBody, a.body), fmt.Sprintf("%s=%d", childBytes, 64<<20))
		c.waitAcks(t, 1+rand.IntN(400))
		_ = c.cmd.Process.Signal(syscall.SIGSTOP)
		must(t, "cp", "--sparse=always", d.path("disk"), d.path("after"))
		c.kill()
	})
	for i := range a.seeded {
		c.acked[i] = uint64(i + 1)
	}
	d.with(t, "after", func(dir string) {
		if round%2 == 1 {
			files := blockFiles(t, dir, mustID(t, "orders@here"))
			last := files[0]
			for _, f := range files {
				if len(f) > len(last) || len(f) == len(last) && f > last {
					last = f
				}
			}
			zeroTail(t, last, 1+rand.IntN(4096))
		}
		f := fabrictest.Open(t, func(cfg *fabric.Config) { cfg.Dir = dir })
		l := fabrictest.Home(t, f, "orders@here")
		have := map[uint64]string{}
		for _, it := range fabrictest.ReadAll(t, l, 0) {
			have[it.Sequence] = it.Record.ID
		}
		for i, at := range c.acked {
			if have[at] != record(i).ID {
				lost++
			}
		}
		closeNow(t, f)
	})
	return lost
}

func (d *cachedDisk) remove(t *testing.T) {
	if out, err := exec.Command("sh", "-c", "rm -rf "+d.work+"/*").CombinedOutput(); err != nil {
		t.Logf("%v: %s", err, out)
	}
}
