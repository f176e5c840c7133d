package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"domicile/regions"
)

const (
	fileVersion = 1
	nameLayout  = "2006-01-02T15"
	suffix      = ".json"
)

// hourFile is an hour on disk.
type hourFile struct {
	Version   int               `json:"version"`
	Hour      time.Time         `json:"hour"`
	CoveredMS int64             `json:"covered_ms"`
	Uncounted uint64            `json:"uncounted,omitempty"`
	Asked     map[string]uint64 `json:"asked"`
}

func hourPath(dir string, start time.Time) string {
	return filepath.Join(dir, start.UTC().Format(nameLayout)+suffix)
}

func writeHour(dir string, h *Hour) error {
	text, err := json.Marshal(hourFile{fileVersion, h.Start, h.Covered.Milliseconds(), h.Uncounted, h.Asked})
	if err != nil {
		return err
	}
	return regions.WriteWhole(hourPath(dir, h.Start), text)
}

// readHour reads one hour; what is not whole or claims more than an hour is an error.
func readHour(dir string, start time.Time) (*Hour, error) {
	text, err := os.ReadFile(hourPath(dir, start))
	if err != nil {
		return nil, err
	}
	return ParseHour(text, start)
}

// ParseHour reads the file of the hour that begins at start.
func ParseHour(text []byte, start time.Time) (*Hour, error) {
	var f hourFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	covered := time.Duration(f.CoveredMS) * time.Millisecond
	switch {
	case f.Version != fileVersion:
		return nil, fmt.Errorf("version %d of the file is not known here", f.Version)
	case !f.Hour.Equal(start):
		return nil, errors.New("the file is of another hour")
	case f.CoveredMS < 0 || f.CoveredMS > time.Hour.Milliseconds() || len(f.Asked) > MaxQuestions:
		return nil, errors.New("the file claims more than an hour holds")
	}
	if f.Asked == nil {
		f.Asked = map[string]uint64{}
	}
	return &Hour{Start: start.UTC(), Covered: covered, Uncounted: f.Uncounted, Asked: f.Asked}, nil
}

// stored is an hour's file.
type stored struct {
	start time.Time
	path  string
	bytes int64
}

// listHours lists the hours on disk, the oldest first.
func listHours(dir string) ([]stored, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the counts of questions: %w", err)
	}
	var out []stored
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		start, err := time.Parse(nameLayout, name)
		if !ok || err != nil {
			continue
		}
		if info, err := e.Info(); err == nil {
			out = append(out, stored{start, filepath.Join(dir, e.Name()), info.Size()})
		}
	}
	slices.SortFunc(out, func(a, b stored) int { return a.start.Compare(b.start) })
	return out, nil
}

// sweep removes what is too old, unless the clock is in doubt, and the oldest beyond MaxBytes.
func (b *Book) sweep(now time.Time) {
	hours, err := listHours(b.cfg.Dir)
	if err != nil {
		return // the next hour tries again
	}
	var total int64
	for _, h := range hours {
		total += h.bytes
	}
	doubt := b.cfg.Doubt != nil && b.cfg.Doubt()
	for _, h := range hours {
		if (doubt || now.Sub(h.start) <= Keep+time.Hour) && total <= MaxBytes {
			return
		}
		if err := os.Remove(h.path); err != nil {
			b.cfg.Logger.Warn("an old hour of counted questions cannot be removed", "err", err)
			return
		}
		total -= h.bytes
	}
}
