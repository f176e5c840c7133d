package fabric_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"domicile/regions/fabric/fabrictest"
)

// RA1: an old directory comes back while the region is cut off from it, so that it takes part
// without being asked. It knows a sibling by a store that was replaced since: its word, that
// this one is the stranger, counts for nothing, and it is the one to go.
func TestRA1_OldDirectoryExpelsNobody(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	stored := d.append(0, 50)
	seatTo(t, r, "a")
	eventually(t, "c has met the region", func() bool { return r.Node("c").ID() != "" })
	if err := r.Close("c"); err != nil {
		t.Log(err)
	}
	changeMark(t, filepath.Join(r.Configs["c"].Dir, "identity.json"), func(mark map[string]any) {
		mark["store"] = "of-old"
		mark["siblings"].(map[string]any)["a"] = "of-old-too"
	})
	r.Cut("c")
	r.Start("c")
	r.Heal("c")
	eventually(t, "the old directory is told", func() bool {
		h := r.Node("c").Health()
		return h.Failed && strings.Contains(h.Reason, "another data directory")
	})
	stored = append(stored, d.append(50, 100)...)
	checkLog(t, d.log(), stored)
	for _, node := range []string{"a", "b"} {
		if h := r.Node(node).Health(); h.Failed {
			t.Errorf("node %s: %s", node, h.Reason)
		}
	}
}

// changeMark changes a mark of a store that is closed.
func changeMark(t *testing.T, path string, change func(map[string]any)) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mark := map[string]any{}
	if err := json.Unmarshal(b, &mark); err != nil {
		t.Fatal(err)
	}
	change(mark)
	if b, err = json.Marshal(mark); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
