package link

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"domicile/regions"
)

// Fabrics is which fabric is which peer's, over restarts. A fabric id is no secret, so any
// peer can say any: an id is a region's once a link with it was up, which takes its
// certificate and its address in the manifest. It is safe for concurrent use; a nil one knows
// nothing.
type Fabrics struct {
	path string
	log  *slog.Logger

	mu sync.Mutex
	of map[string]string // region → fabric

	writing sync.Mutex // one at a time
}

const maxFabrics = 1 << 20 // bytes of the file

// OpenFabrics reads the file; none is nothing known. A damaged one is put aside: what was in it
// is learned again as links come up.
func OpenFabrics(path string, log *slog.Logger) (*Fabrics, error) {
	f := &Fabrics{path: path, log: log, of: map[string]string{}}
	in, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, maxFabrics))
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(data, &f.of) != nil || f.of == nil {
		f.of = map[string]string{}
		log.Error("the file of the peers' fabrics is damaged and put aside: whose fabric is whose is learned again",
			"aside", path+".damaged", "err", os.Rename(path, path+".damaged"))
	}
	return f, nil
}

// owner is the region whose fabric that is; "": it is nobody's yet.
func (f *Fabrics) owner(fabric string) string {
	if f == nil {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for region, of := range f.of {
		if of == fabric {
			return region
		}
	}
	return ""
}

// bound notes the fabric of a region with which the link is up; an earlier one of it is
// nobody's then. It reports whether that is news, to be kept.
func (f *Fabrics) bound(region, fabric string) bool {
	if f == nil || fabric == "" {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	news := f.of[region] != fabric
	f.of[region] = fabric
	return news
}

// keep writes the file.
func (f *Fabrics) keep() {
	f.writing.Lock()
	defer f.writing.Unlock()
	f.mu.Lock()
	data, err := json.Marshal(f.of)
	f.mu.Unlock()
	if err == nil {
		err = regions.WriteWhole(f.path, data)
	}
	if err != nil {
		f.log.Error("whose fabric is whose can't be written: after a start it is learned again", "err", err)
	}
}
