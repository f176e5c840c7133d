package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"domicile/api"
	"domicile/policy/bundle"
	"domicile/regions"
)

// keptBundles is how many signed policies a region keeps: what one may go back to.
const keptBundles = 8

// shelf is where a region keeps signed policies, in its data directory: the exact bytes of
// each that was active, and a mark of the last. Once the mark is there no directory is
// loaded any more. Guarded by who loads policies; reading needs nothing.
type shelf struct {
	dir  string
	step func(string) // told of each step once it is done; nil: nobody is
}

// mark says which policy is active, and that only signed ones count.
type mark struct {
	Serial   int64     `json:"serial"`
	Digest   string    `json:"digest"`
	At       time.Time `json:"at"`
	Narrowed bool      `json:"narrowed,omitempty"` // it went back to an earlier one and allows nothing that the one before refused: one signature was enough
}

func (s shelf) path(serial int64) string {
	return filepath.Join(s.dir, strconv.FormatInt(serial, 10)+".bundle")
}

func (s shelf) marked() string { return filepath.Join(s.dir, "signed.json") }

// mark reads the mark; nil: no signed policy was ever active here.
func (s shelf) mark() (*mark, error) {
	text, err := os.ReadFile(s.marked())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var m mark
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err == nil && (m.Serial < 1 || m.Digest == "") {
		err = errors.New("it names no policy")
	}
	if err != nil {
		return nil, s.damaged(s.marked(), err)
	}
	return &m, nil
}

func (s shelf) damaged(path string, err error) error {
	return &api.Error{Code: api.PolicyError, Op: "read kept policy", Field: "data", Value: path, Err: err,
		Hint: "no policy is active, and records are refused, until a signed one of the present or a higher serial is activated: domicile policy activate"}
}

// get is a kept bundle and its exact bytes.
func (s shelf) get(serial int64) (*bundle.Bundle, []byte, error) {
	data, err := os.ReadFile(s.path(serial))
	if err != nil {
		return nil, nil, s.damaged(s.path(serial), err)
	}
	b, err := bundle.Read(data)
	if err == nil && b.Manifest.Serial != serial {
		err = fmt.Errorf("it has serial %d", b.Manifest.Serial)
	}
	if err != nil {
		return nil, nil, s.damaged(s.path(serial), err)
	}
	return b, data, nil
}

// put keeps a bundle, on disk when it returns. It is not active by that.
func (s shelf) put(serial int64, data []byte) error {
	err := regions.MakeFolder(s.dir)
	if err == nil {
		err = regions.WriteWhole(s.path(serial), data)
	}
	return s.done("kept", err)
}

// activate marks a kept bundle as the active one, and forgets those of long ago.
func (s shelf) activate(m mark) error {
	text, err := json.Marshal(m)
	if err == nil {
		err = regions.WriteWhole(s.marked(), text)
	}
	if err = s.done("marked", err); err != nil {
		return err
	}
	serials := s.serials()
	for _, old := range serials[:max(0, len(serials)-keptBundles)] {
		_ = os.Remove(s.path(old)) // it is one more, no harm
	}
	return nil
}

func (s shelf) done(step string, err error) error {
	if err == nil {
		if s.step != nil {
			s.step(step)
		}
		return nil
	}
	return &api.Error{Code: api.StorageFailed, Op: "keep policy", Field: "data", Value: s.dir, Err: err,
		Hint: "a policy that can't be kept is not activated: see that the disk has room and can be written"}
}

// serials lists what is kept, in order.
func (s shelf) serials() []int64 {
	entries, _ := os.ReadDir(s.dir)
	var out []int64
	for _, e := range entries {
		text, ok := strings.CutSuffix(e.Name(), ".bundle")
		if n, err := strconv.ParseInt(text, 10, 64); ok && err == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}
