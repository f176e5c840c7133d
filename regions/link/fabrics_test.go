package link

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"domicile/api"
	"domicile/regions"
)

// second adds another peer to the end of a link.
func (c claimed) second(name string) claimed {
	p := newPeerLink(c.mesh, name, []string{"z:1"})
	c.mesh.peers[name] = p
	return claimed{c.TB, p, c.clock}
}

// claims says hello with a fabric and wants this code, "" for accepted.
func (c claimed) claims(fabric string, want api.Code) {
	c.Helper()
	err := c.accept(regions.Hello{Federation: "shop", Region: c.name, FabricID: fabric, BootID: "boot-of-" + c.name, WireVersion: 1, OldestWire: 1})
	if err == nil && want != "" || err != nil && api.CodeOf(err) != want {
		c.Errorf("%s with %s: %v, want %q", c.name, fabric, err, want)
	}
}

// A3: a claim of another region's fabric, which every peer knows, is forgotten with the
// connection that made it.
func TestFA3_AClaimIsForgottenWithItsConnection(t *testing.T) {
	west := newClaimed(t)
	south := west.second("ap-south")
	south.claims("fabric-eu-west", "") // nothing was heard of eu-west in this run
	west.claims("fabric-eu-west", api.PermissionDenied)
	in := &inboundControl{conn: south.accepts("x", Control)}
	boot := "boot-of-ap-south"
	in.conn.run.Store(&boot)
	south.inboundBegun(in)
	south.heard(in, true)
	south.inboundOver(in)
	west.claims("fabric-eu-west", "")
}

// A3: a fabric belongs to the region with which a link was up under it, over a restart of the
// node; whoever else says it is refused and counted, and keeps nobody out.
func TestFA3_AFabricIsBoundToItsRegionOnDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers.json")
	open := func() *Fabrics {
		t.Helper()
		f, err := OpenFabrics(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := open()
	if !f.bound("eu-west", "fabric-eu-west") || f.bound("eu-west", "fabric-eu-west") {
		t.Error("the first sight is news, and the second is none")
	}
	f.keep()

	west := newClaimed(t) // the node has started again
	south := west.second("ap-south")
	west.mesh.cfg.Fabrics = open()
	south.claims("fabric-eu-west", api.PermissionDenied)
	west.claims("fabric-eu-west", "")
	south.claims("fabric-ap-south", "")

	f.bound("eu-west", "fabric-new") // its disk was lost: the old one is free
	f.keep()
	if f := open(); f.owner("fabric-eu-west") != "" || f.owner("fabric-new") != "eu-west" {
		t.Errorf("%v", f.of)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := open(); f.owner("fabric-new") != "" {
		t.Errorf("a damaged file says %v", f.of)
	}
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Error(err)
	}
}
