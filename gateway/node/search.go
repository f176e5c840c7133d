package node

import (
	"context"
	"time"

	"domicile/api"
	"domicile/chaos/canary"
	"domicile/gateway/drill"
)

// searchFiles looks for texts in the files of the data folder, below everything that this
// node knows of them: what must not be there is seen wherever it is.
func (n *Node) searchFiles(ctx context.Context, texts []string, since time.Time) (drill.Found, error) {
	set := &canary.Set{}
	for _, t := range texts {
		set.Add(t, "drill")
	}
	r, err := canary.ScanSince(ctx, n.cfg.Data, set, since)
	if err != nil {
		return drill.Found{}, &api.Error{Code: api.StorageFailed, Op: "search store", Region: n.cfg.Region, Field: "data", Value: n.cfg.Data, Err: err, Hint: "a file that cannot be read is not a clean one: see that the folder can be read"}
	}
	out := drill.Found{Files: uint64(r.Files), Older: uint64(r.Older), Bytes: uint64(r.Bytes)}
	for i := range texts {
		out.Marks = append(out.Marks, uint64(r.Found(i)))
	}
	return out, nil
}
