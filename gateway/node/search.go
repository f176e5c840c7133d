package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"domicile/api"
	"domicile/chaos/canary"
	"domicile/gateway/drill"
)

// searchFiles looks for texts in the files of the data folder, and in those that the process
// writes its log to, below everything that this node knows of them: what must not be there
// is seen wherever it is.
func (n *Node) searchFiles(ctx context.Context, texts []string, since time.Time) (drill.Found, error) {
	set := &canary.Set{}
	for _, t := range texts {
		set.Add(t, "drill")
	}
	r, err := canary.ScanSince(ctx, n.cfg.Data, set, since)
	if err != nil {
		return drill.Found{}, n.unsearched(n.cfg.Data, err)
	}
	out := drill.Found{Files: uint64(r.Files), Older: uint64(r.Older), Bytes: uint64(r.Bytes), Marks: make([]uint64, len(texts))}
	add := func(r *canary.Report) {
		for i := range texts {
			out.Marks[i] += uint64(r.Found(i))
		}
	}
	add(r)
	files, beyond := outputs(os.Stdout, os.Stderr)
	out.Beyond = beyond
	for _, file := range files {
		r, err := canary.Scan(ctx, file, set)
		if err != nil {
			return drill.Found{}, n.unsearched(file, err)
		}
		out.Outputs, out.Bytes = out.Outputs+uint64(r.Files), out.Bytes+uint64(r.Bytes)
		add(r)
	}
	return out, nil
}

func (n *Node) unsearched(path string, err error) error {
	return &api.Error{Code: api.StorageFailed, Op: "search store", Region: n.cfg.Region, Field: "data", Value: path, Err: err, Hint: "a file that cannot be read is not a clean one: see that it can be read"}
}

// outputs are the files behind the process's standard output and error, where its log goes,
// and what of the two can't be read back: a terminal, a pipe or a journal.
func outputs(stdout, stderr *os.File) (files, beyond []string) {
	for i, f := range []*os.File{stdout, stderr} {
		what := []string{"standard output", "standard error"}[i]
		info, err := f.Stat()
		switch {
		case err == nil && info.Mode().IsRegular():
			path, err := filepath.EvalSymlinks(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
			if err != nil {
				beyond = append(beyond, what+": its file is not there any more")
			} else if len(files) == 0 || files[0] != path {
				files = append(files, path)
			}
		case err == nil && isNull(info):
		default:
			beyond = append(beyond, what+": it is no file that can be read back")
		}
	}
	return files, beyond
}

// isNull reports whether what is written there is gone.
func isNull(info os.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(null, info)
}
