package ledger

import (
	"context"
	"fmt"
	"time"

	"domicile/regions"
)

// Item is one record as it is stored in one region.
type Item struct {
	Region    string    `json:"region"` // whose disk
	Log       string    `json:"log"`
	Sequence  uint64    `json:"sequence"`
	ID        string    `json:"id"`
	Key       string    `json:"key,omitempty"`
	Hash      string    `json:"hash"`
	Size      int       `json:"size"`
	Residency string    `json:"residency,omitempty"`
	Epoch     string    `json:"epoch,omitempty"`
	Term      uint64    `json:"term,omitempty"`
	Revision  string    `json:"revision,omitempty"` // that admitted it at its home
	Ingest    time.Time `json:"ingest,omitzero"`
}

// Shelf is one log as it is stored in one region, from its first sequence to its end.
type Shelf struct {
	Region string
	Log    string
	Home   bool   // the region is the log's home; else this is its copy
	End    uint64 // the last sequence accounted for
	Items  []Item // in the order of the log
	Gaps   []regions.Gap
	Ledger regions.Ledger // of a copy: what its cursor says became of every sequence
}

// readLimit is how much of a log is read at once.
var readLimit = regions.ReadLimit{Records: 512, Bytes: 1 << 20}

// ReadShelf reads a whole log as it is stored in region, below policy and doors.
func ReadShelf(ctx context.Context, region string, log regions.Log) (*Shelf, error) {
	reader, err := log.Reader(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	s := &Shelf{Region: region, Log: log.ID().String()}
	end := log.Head().Sequence
	if c, ok := log.(regions.CopyLog); ok {
		cursor := c.Cursor()
		end, s.Ledger = cursor.Sequence, cursor.Ledger
	} else {
		s.Home = true
	}
	for s.End < end {
		items, err := reader.Next(ctx, readLimit)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return nil, fmt.Errorf("it ends at %d, its head is %d", s.End, end)
		}
		for i := range items {
			s.add(&items[i])
		}
	}
	return s, nil
}

func (s *Shelf) add(i *regions.Item) {
	s.End = i.Sequence
	if i.Gap != nil {
		s.Gaps = append(s.Gaps, *i.Gap)
		return
	}
	r := &i.Record
	s.Items = append(s.Items, Item{
		Region: s.Region, Log: s.Log, Sequence: i.Sequence, ID: r.ID, Key: r.Key, Hash: Hash(r.Body), Size: r.Size(),
		Residency: r.Tag(regions.ResidencyTag), Epoch: i.Epoch.String(), Term: i.Term, Revision: i.Revision, Ingest: i.Time,
	})
}

// GapAt is the gap that stands in place of a sequence; false: there is none.
func (s *Shelf) GapAt(sequence uint64) (regions.Gap, bool) {
	for _, g := range s.Gaps {
		if g.From <= sequence && sequence <= g.To {
			return g, true
		}
	}
	return regions.Gap{}, false
}

// Items lists the records of several shelves.
func Items(shelves []Shelf) []Item {
	var items []Item
	for i := range shelves {
		items = append(items, shelves[i].Items...)
	}
	return items
}
