package gossip

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

func TestR14h_HintsSayWhatToLookAtAndNoMore(t *testing.T) {
	now := time.Unix(1000, 0)
	ours := Word{Manifest: "m1", Authority: "a", Generation: 2, Version: 7}
	gateways := map[string][]string{"eu-west": {""}, "us-east": {"a", "b"}, "ap-south": {""}}
	for _, c := range []struct {
		name string
		word Word
		age  time.Duration
		want string // "": no hint
	}{
		{"the same", Word{"a.us-east", "m1", "a", 2, 7}, time.Minute, ""},
		{"older", Word{"a.us-east", "m1", "a", 2, 6}, time.Minute, ""},
		{"newer and just heard", Word{"a.us-east", "m1", "a", 2, 8}, time.Second, ""},
		{"newer", Word{"a.us-east", "m1", "a", 2, 8}, time.Minute, "newer placement than this node has is known in us-east"},
		{"a later generation", Word{"a.us-east", "m1", "a", 3, 1}, time.Minute, "newer placement"},
		{"another founding", Word{"a.us-east", "m1", "b", 9, 99}, time.Minute, ""},
		{"no founding", Word{"a.us-east", "m1", "", 9, 99}, time.Minute, ""},
		{"another manifest", Word{"b.us-east", "m2", "a", 2, 7}, 0, "is not that of us-east"},
		{"a gateway that is not named", Word{"c.us-east", "m1", "a", 2, 7}, 0, `does not name gateway "c" of us-east`},
	} {
		_, region := split(c.word.Name)
		got := strings.Join(hints(ours, map[string]said{region: {c.word, now.Add(-c.age)}}, gateways, now, patience), "; ")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// B18 (c): whatever names come, those that may be members are bounded, and the manifest's are
// always among them.
func TestB18c_InventedNamesAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	r := newRoster("eu-west", map[string][]string{"eu-west": {""}, "us-east": {"a", "b"}}, time.Minute, func() time.Time { return now })
	say := func(name, where string) error {
		return r.NotifyAlive(&memberlist.Node{Name: name, Addr: addressOf(where), Port: port})
	}
	taken := 0
	for i := range 1000 {
		if say(fmt.Sprintf("g%d.us-east", i), "us-east") == nil {
			taken++
		}
	}
	if taken != strangersPerRegion {
		t.Errorf("%d invented names were taken", taken)
	}
	for name, where := range map[string]string{"x.mars": "mars", "a.us-east": "eu-west", "mars": "us-east", "": "us-east", "us-east.eu-west.mars": "us-east"} {
		if say(name, where) == nil {
			t.Errorf("%q at %s is taken", name, where)
		}
	}
	for _, name := range []string{"a.us-east", "b.us-east"} {
		if err := say(name, "us-east"); err != nil {
			t.Error(err)
		}
	}
	now = now.Add(2 * time.Minute)
	if err := say("c.us-east", "us-east"); err != nil {
		t.Errorf("after the others are forgotten: %v", err)
	}
}

func TestAddressesAreNoNetworks(t *testing.T) {
	private := net.IPNet{IP: net.ParseIP("fd00::"), Mask: net.CIDRMask(8, 128)}
	var seen []string
	for _, region := range []string{"eu-west", "us-east", "ap-south"} {
		ip := addressOf(region)
		if !private.Contains(ip) || slices.Contains(seen, ip.String()) {
			t.Errorf("%s: %s", region, ip)
		}
		seen = append(seen, ip.String())
	}
}

// A word is read whole or not at all, whatever comes.
func FuzzReadWord(f *testing.F) {
	var b bytes.Buffer
	if err := writeWord(&b, Word{Name: "a.us-east", Manifest: "m", Authority: "a", Generation: 1, Version: 2}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{'})
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := readWord(bytes.NewReader(data))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeWord(&again, w); err != nil {
			t.Fatal(err)
		}
		back, err := readWord(&again)
		if err == nil && back != w || err != nil && again.Len() <= maxWord {
			t.Errorf("%+v came back as %+v: %v", w, back, err)
		}
	})
}
