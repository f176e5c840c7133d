package fabric

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/clock"
)

// What lies in the data directory: three marks of ours beside the broker's folder.
const (
	brokerDir    = "broker"
	identityFile = "identity.json" // written once
	runFile      = "run.json"      // how the last run ended
	logsFile     = "logs.json"     // every log this store was ever given
	lockFile     = "lock"
)

// formatVersion is the version of the marks and of the stored headers.
//
// 2: every message carries a checksum, and a ledger a seventh figure.
// 3: a log may hold ownership markers, on a subject of their own.
const formatVersion = 3

// The modes of a region, fixed when it is created.
const (
	modeSolo   = "solo"   // one node, acknowledged from its disk alone
	modeQuorum = "quorum" // three nodes, acknowledged from the disks of two
)

const hashKeySize = 32

func (c *Config) mode() string {
	if c.Cluster != nil {
		return modeQuorum
	}
	return modeSolo
}

type identity struct {
	Format     int    `json:"format"`
	Fabric     string `json:"fabric"` // random, the fabric's id; "" until a quorum region's nodes agreed on it
	Region     string `json:"region"`
	Federation string `json:"federation"`
	Mode       string `json:"mode"`
	HashKey    string `json:"hash_key"` // hex; keys the body hashes; "" as Fabric
	// Move is there while the store's records come from another one, or went to one.
	Move *moveMark `json:"move,omitempty"`

	// Of a quorum region: this node, and all of them, sorted.
	Node    string   `json:"node,omitempty"`
	Members []string `json:"members,omitempty"`
	// Store is random, made with a node's directory: by it the siblings tell the directory
	// from an empty one that was put in its place. Siblings holds theirs, by node.
	Store    string            `json:"store,omitempty"`
	Siblings map[string]string `json:"siblings,omitempty"`
	// Joined: the node votes in its region, as both siblings know its store.
	Joined bool `json:"joined,omitempty"`
}

// The states of a run mark.
const (
	runOpen   = "open"   // running, or ended without closing
	runClean  = "clean"  // closed in order
	runFailed = "failed" // a sync failed in the boot named
)

type run struct {
	State string `json:"state"`
	Boot  string `json:"boot"`
	// Clean holds, by stream, the broker's last sequence that is known to be on disk:
	// of a clean close, or, in a failed run, of the last round that went well.
	Clean map[string]uint64 `json:"clean"`
	// Ends holds, by the stream's incarnation, a sequence known to be durable; Closed an
	// instant, in nanoseconds since 1970, that no closed instant has passed.
	Ends   map[string]uint64 `json:"ends,omitempty"`
	Closed int64             `json:"closed,omitempty"`
	// Good is when the last round of syncs began that went well, in nanoseconds since 1970
	// by the system's clock, as the times of files are; what was written before is on disk.
	Good int64 `json:"good,omitempty"`
	// Clock is what the clocks read then, as far as they were believed; Unsure the stamps that
	// were given while they were not.
	Clock  *clock.Reading `json:"clock,omitempty"`
	Unsure []unsure       `json:"unsure,omitempty"`
}

type logEntry struct {
	Log         string `json:"log"`
	Kind        string `json:"kind"`
	Incarnation string `json:"incarnation"`
	Markers     uint64 `json:"markers,omitempty"` // ownership markers that it is known to have
	// Made is how often a quorum region made the log anew after a deletion. It is part of the
	// stream's name, so that a deletion that reaches the broker late finds nothing.
	Made uint64 `json:"made,omitempty"`
	// Of a log that was deleted, or is about to be.
	State string    `json:"state,omitempty"`
	Last  uint64    `json:"last,omitempty"` // its last sequence
	At    time.Time `json:"at,omitzero"`
}

func newID() (string, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return hex.EncodeToString(b), nil
}

// openIdentity reads or, in an empty directory, makes the identity. A store that is
// not the one the configuration means is refused: opened as another region or mode it
// would mix records of two places, or be deleted by the broker.
func openIdentity(cfg *Config) (*identity, error) {
	path := filepath.Join(cfg.Dir, identityFile)
	var id identity
	err := readJSON(path, &id)
	if errors.Is(err, fs.ErrNotExist) {
		return makeIdentity(cfg, path)
	}
	if err != nil {
		return nil, refuse("identity", path, "the mark is unreadable: restore it from a backup; without it the store's region is not known", err)
	}
	if err := id.checkMove(cfg); err != nil {
		return nil, err
	}
	switch {
	case id.Format < 1 || id.Format > formatVersion:
		return nil, refuse("format", fmt.Sprint(id.Format), fmt.Sprintf("this binary reads store formats 1 to %d: run the version that wrote it, or a newer one", formatVersion), nil)
	case id.Region != cfg.Region:
		return nil, refuse("region", id.Region, "this data directory belongs to the region shown: name that region in node.yaml, or give this region another directory", nil)
	case id.Federation != cfg.Federation:
		return nil, refuse("federation", id.Federation, "this data directory belongs to the federation shown: use its federation.yaml, or another directory", nil)
	case id.own() != cfg.mode():
		return nil, refuse("mode", id.own(), "a region's mode is fixed when it is created: domicile region grow takes a solo region's store to three nodes", nil)
	}
	if c := cfg.Cluster; c != nil {
		switch {
		case id.Node != c.Node:
			return nil, refuse("node", id.Node, "this data directory belongs to the node shown: give each node the directory it began with", nil)
		case !slices.Equal(id.Members, c.names()):
			return nil, refuse("members", strings.Join(id.Members, ", "), "the region was created with the nodes shown: name them so again; addresses may change, names may not", nil)
		}
	}
	met := cfg.Cluster == nil || id.Fabric != "" || id.HashKey != ""
	if key, err := hex.DecodeString(id.HashKey); met && (err != nil || len(key) != hashKeySize) {
		return nil, refuse("hash_key", "", "the identity mark is damaged: restore it from a backup", err)
	}
	if id.Format < formatVersion {
		// Before anything is written in the new format: an older binary has to refuse then.
		id.Format = formatVersion
		if err := writeJSON(path, id); err != nil {
			return nil, refuse("format", path, "the store's format could not be raised: see that the disk has room and can be written", err)
		}
	}
	return &id, nil
}

func makeIdentity(cfg *Config, path string) (*identity, error) {
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() != lockFile && e.Name() != "lost+found" && !strings.HasSuffix(e.Name(), tempSuffix) && !slices.Contains(cfg.Lodgers, e.Name()) {
			return nil, refuse("dir", cfg.Dir, "the directory is not empty and carries no identity mark: give the region a directory of its own", nil)
		}
	}
	id := &identity{Format: formatVersion, Region: cfg.Region, Federation: cfg.Federation, Mode: cfg.mode()}
	if c := cfg.Cluster; c != nil {
		id.Node, id.Members = c.Node, c.names()
	} else if id.Fabric, id.HashKey, err = newKeys(); err != nil {
		return nil, err
	}
	id.arrive(cfg.arrival)
	return id, writeJSON(path, id)
}

// newKeys makes a region's id and the key of its hashes.
func newKeys() (fabric, hashKey string, err error) {
	key := make([]byte, hashKeySize)
	if _, err := rand.Read(key); err != nil {
		return "", "", err
	}
	fabric, err = newID()
	return fabric, hex.EncodeToString(key), err
}

func refuse(field, value, hint string, err error) error {
	return &api.Error{Code: api.ConfigInvalid, Op: "open store", Field: field, Value: value, Hint: hint, Err: err}
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

const tempSuffix = ".new"

// writeJSON replaces a mark as a whole and returns when it is on disk. When the disk
// refuses to sync, the mark is still put in its place, so that a start in the same
// boot sees it, and the error is returned.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+tempSuffix, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(append(b, '\n')); err != nil {
		return errors.Join(err, f.Close())
	}
	synced := errors.Join(f.Sync(), f.Close())
	if err := os.Rename(path+tempSuffix, path); err != nil {
		return errors.Join(synced, err)
	}
	return errors.Join(synced, regions.SyncFolder(filepath.Dir(path)))
}

// overwriteJSON writes a mark over the old one, in its place on the disk. It may tear.
func overwriteJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(append(b, '\n'), 0); err == nil {
		err = f.Truncate(int64(len(b) + 1))
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// bootID is the kernel's random id of this boot.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}
