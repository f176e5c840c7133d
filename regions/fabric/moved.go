package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// While a store moves, and for ever after in the old one, the mode in the identity is
// one of these: no binary, of this version or an earlier one, opens a store of a mode it
// does not know.
const (
	modeArriving = "arriving" // records of another store are being taken over into it
	modeRetired  = "retired"  // its records were taken over by another store
)

// moveMark is the identity's word on a move.
type moveMark struct {
	Mode   string    `json:"mode"`   // the store's own: what it is again, or was
	Fabric string    `json:"fabric"` // id of the other store
	Dirs   []string  `json:"dirs"`   // where that lay
	At     time.Time `json:"at"`
	// Ends holds, by stream, what the old store held when the move began.
	Ends map[string]streamEnds `json:"ends,omitempty"`
}

type streamEnds struct{ First, Last uint64 }

// own is the mode that the store has, had or will have of its own.
func (id *identity) own() string {
	if id.Move != nil {
		return id.Move.Mode
	}
	return id.Mode
}

// checkMove refuses a store that a move has taken out of use, unless it is the move
// itself that opens it.
func (id *identity) checkMove(cfg *Config) error {
	m := id.Move
	switch {
	case id.Mode == modeRetired && m != nil:
		return refuse("mode", id.Mode, fmt.Sprintf("on %s this store was moved to %s, which holds all of it and what came since: "+
			"start the region's node on that; nothing reads this directory any more", m.At.Format(time.DateTime+"Z"), strings.Join(m.Dirs, ", ")), nil)
	case id.Mode == modeArriving && m != nil && cfg.arrival == nil:
		return refuse("mode", id.Mode, fmt.Sprintf("the move of the store at %s into this directory was not finished: run the same command again, "+
			"or remove this directory to give the move up", strings.Join(m.Dirs, ", ")), nil)
	case cfg.arrival == nil:
		return nil
	case id.Mode != modeArriving || m == nil:
		return refuse("dir", cfg.Dir, "the directory holds a store already: a store is moved into an empty or absent directory", nil)
	case m.Fabric != cfg.arrival.Fabric:
		return refuse("dir", cfg.Dir, "another store's move into this directory was not finished: remove the directory first", nil)
	case !sameEnds(m.Ends, cfg.arrival.Ends):
		return refuse("dir", cfg.Dir, "the old store was in use after its move into this directory began: remove this directory and begin again", nil)
	}
	return nil
}

// arrive marks a new identity as the target of a move, if it is one.
func (id *identity) arrive(m *moveMark) {
	if m != nil {
		move := *m
		move.Mode = id.Mode
		id.Mode, id.Move = modeArriving, &move
	}
}

func sameEnds(a, b map[string]streamEnds) bool {
	if len(a) != len(b) {
		return false
	}
	for stream, ends := range a {
		if b[stream] != ends {
			return false
		}
	}
	return true
}

// remark replaces the identity in dir by what change makes of it.
func remark(dir string, change func(*identity)) error {
	path := filepath.Join(dir, identityFile)
	var id identity
	if err := readJSON(path, &id); err != nil {
		return err
	}
	change(&id)
	return writeJSON(path, &id)
}

// retire marks the store in dir as moved to another.
func retire(dir, to string, dirs []string, at time.Time) error {
	return remark(dir, func(id *identity) {
		id.Move = &moveMark{Mode: id.own(), Fabric: to, Dirs: dirs, At: at}
		id.Mode = modeRetired
	})
}

// arrived gives a store that was moved here whole its own mode. It is done when it was.
func arrived(dir string) error {
	return remark(dir, func(id *identity) {
		if id.Mode == modeArriving {
			id.Mode, id.Move = id.own(), nil
		}
	})
}

// retiredTo is the mark of a store that was retired; nil: it was not, or is none.
func retiredTo(dir string) (*moveMark, error) {
	var id identity
	err := readJSON(filepath.Join(dir, identityFile), &id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, refuse("dir", dir, "there is no store in this directory", nil)
	case err != nil:
		return nil, refuse("identity", dir, "the mark is unreadable: restore it from a backup; without it the store's region is not known", err)
	case id.Mode != modeRetired:
		return nil, nil
	}
	return id.Move, nil
}

// belongsTo reports whether every directory holds a node of the fabric.
func belongsTo(fabric string, dirs []string) bool {
	return !slices.ContainsFunc(dirs, func(dir string) bool {
		var id identity
		return readJSON(filepath.Join(dir, identityFile), &id) != nil || id.Fabric != fabric
	})
}

// absolute names directories so that they are found from anywhere on this machine.
func absolute(dirs []string) ([]string, error) {
	out := make([]string, len(dirs))
	for i, dir := range dirs {
		var err error
		if out[i], err = filepath.Abs(dir); err != nil {
			return nil, err
		}
	}
	return out, nil
}
