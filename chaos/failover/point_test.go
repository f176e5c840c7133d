package failover

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"domicile/api"
	"domicile/gateway/node"
)

// point is where a region's process is to die, or to stand still: an act of its mover that is
// due, "act flip", or a step of its store that was done, "step fenced". What is asked for
// stands in a file beside the region's node.yaml, so that it can be asked while it runs.
type point struct{ file, reached string }

func pointOf(config string) point {
	dir := filepath.Dir(config)
	return point{filepath.Join(dir, "die-at"), filepath.Join(dir, "stands-at")}
}

// standing asks for a process that stands still at the point instead of dying.
const standing = "stand at "

func (p point) ask(where string) error { return os.WriteFile(p.file, []byte(where), 0o600) }

func (p point) forget() error { return errors.Join(os.Remove(p.file), os.RemoveAll(p.reached)) }

// at is called by the process that has come to a point.
func (p point) at(where string) error {
	asked, err := os.ReadFile(p.file)
	switch {
	case err != nil: // nothing is asked for
		return nil
	case string(asked) == standing+where:
		return errors.Join(os.WriteFile(p.reached, nil, 0o600), &api.Error{Code: api.NotReady, Op: "stand still", Hint: "by the test"})
	case string(asked) != where:
		return nil
	}
	if err := errors.Join(os.Remove(p.file), syscall.Kill(os.Getpid(), syscall.SIGKILL)); err != nil {
		return err
	}
	select {} // until the signal is there
}

func (p point) hooks() (h node.Hooks) {
	h.Move = func(_ api.LogID, act string) error { return p.at("act " + act) }
	h.Fabric.Step = func(step string) { _ = p.at("step " + step) }
	return h
}
