package fabric

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"domicile/api"
)

// A node of a quorum region keeps a list of the broker's folders. One that is gone at a
// start would be filled by the siblings without a word, by a replica that votes meanwhile
// as if it had never stored anything.
const foldersFile = "folders.json"

const (
	streamFolder = "stream/" // a stream's data
	votesFolder  = "votes/"  // what the replicas of a stream agreed on
)

// folderPath is where a folder of the list lies.
func (f *Fabric) folderPath(name string) string {
	if stream, ok := strings.CutPrefix(name, streamFolder); ok {
		return f.path(filepath.Join(brokerDir, "jetstream", api.DefaultTenant, "streams", stream))
	}
	return f.path(filepath.Join(brokerDir, "jetstream", "SYS", "_js_", strings.TrimPrefix(name, votesFolder)))
}

func (f *Fabric) hasFolder(name string) bool {
	_, err := os.Stat(f.folderPath(name))
	return err == nil
}

// folders lists what is on disk.
func (f *Fabric) folders() ([]string, error) {
	var out []string
	for _, kind := range []string{streamFolder, votesFolder} {
		entries, err := os.ReadDir(f.folderPath(kind))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() && (kind == votesFolder || !strings.HasPrefix(e.Name(), ".")) {
				out = append(out, kind+e.Name())
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// markFolders renews the list, if it is another one. A folder stays in it until the broker
// says that it needs it no more.
func (f *Fabric) markFolders() error {
	b, err := f.running()
	if f.cfg.Cluster == nil || err != nil || b.js == nil {
		return nil
	}
	have, err := f.folders()
	if err != nil {
		return err
	}
	var was []string
	if err := readJSON(f.path(foldersFile), &was); err != nil && !errors.Is(err, fs.ErrNotExist) {
		was = nil // torn: what is there now is the list
	}
	votes := raftGroups(b.srv)
	for _, name := range was {
		_, voting := votes[strings.TrimPrefix(name, votesFolder)]
		kept := voting || b.srv.JetStreamIsStreamAssigned(api.DefaultTenant, strings.TrimPrefix(name, streamFolder))
		if _, here := slices.BinarySearch(have, name); !here && kept {
			have = append(have, name)
		}
	}
	slices.Sort(have)
	if slices.Equal(have, was) {
		return nil
	}
	return writeJSON(f.path(foldersFile), have)
}

// lacking lists the folders that this node had and has no longer. The control stream's
// belongs to every node that has met the region.
func (f *Fabric) lacking() ([]string, error) {
	var was, out []string
	if err := readJSON(f.path(foldersFile), &was); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.cfg.Logger.Warn("the list of folders is unreadable: what is missing is not known", "error", err)
	}
	if control := streamFolder + controlStream; f.identity().Fabric != "" && !slices.Contains(was, control) {
		was = append(was, control)
	}
	for _, name := range was {
		_, err := os.Stat(f.folderPath(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			out = append(out, name)
		case err != nil:
			return nil, err
		}
	}
	return out, nil
}

// raftGroups is how this node's replicas of all streams stand, by the broker's name of the
// group.
func raftGroups(s *server.Server) map[string]server.RaftzGroup {
	out := map[string]server.RaftzGroup{}
	for _, account := range []string{"SYS", api.DefaultTenant} {
		if status := s.Raftz(&server.RaftzOptions{AccountFilter: account}); status != nil {
			for _, groups := range *status {
				maps.Copy(out, groups)
			}
		}
	}
	return out
}
