package council

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// MarkFile is in every voter's folder and in no other.
const MarkFile = "council.json"

// mark says whose folder it is. A voter whose folder is gone has forgotten whom it voted
// for, so no empty folder is ever taken for its own.
type mark struct {
	Version   int
	Region    string
	Authority string   // random name of the founding, with what names its voters
	Born      string   `json:",omitempty"` // random name of this folder, in a voter that joins
	Roll      []string `json:",omitempty"` // voters of the founding
	Join      []string `json:",omitempty"` // regions that vote already, for one that joins them
	Others    []string `json:",omitempty"` // regions that may belong to another founding
	Founding  []byte   `json:",omitempty"` // the founding command; none in a voter that joins
}

// Birth is a new voter.
type Birth struct {
	Dir       string
	Region    string
	Authority string   // of a founding: its random name, see Name; of one that joins: as the voters have it
	Voters    []string // of the founding, equal on all of them; none: this one joins
	Join      []string // the regions that vote in the authority that it joins
	Cache     []byte   // a state to go on from, as LoadCache gives it; Region is then the one voter
	Others    []string // the regions that voted before, to look out for; with Cache there is one
	Actor     string   // who founds
	Reason    string
	Approvals []placement.Approval // two, to go on from a cache
}

const rollMark = "."

// Name is a founding's whole name: the random one that was chosen, and a hash of who votes,
// so that voters that were made with differing lists are never taken for one founding. A
// whole name of these voters stays as it is.
func Name(random string, voters []string) string {
	random, _, _ = strings.Cut(random, rollMark)
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(voters)), "\n")))
	return random + rollMark + hex.EncodeToString(sum[:4])
}

// address is the voter's in the voters' protocol.
func (m *mark) address() string { return addressOf(m.Region, m.Born) }

// Create makes the folder of a new voter. It refuses one that holds a voter already: take
// that away first, it is never made part of another founding.
func Create(b Birth) error {
	if err := b.Check(); err != nil {
		return err
	}
	m := mark{Version: 1, Region: b.Region, Authority: b.Authority, Join: b.Join, Others: b.Others, Roll: slices.Sorted(slices.Values(b.Voters))}
	if len(b.Join) > 0 {
		m.Born = rand.Text()
	} else {
		b.Authority = Name(b.Authority, b.Voters)
		m.Authority = b.Authority
		founding := placement.Command{
			Verb: placement.Found, ID: "found/" + b.Authority, Actor: b.Actor, Reason: b.Reason, Approvals: b.Approvals,
			Founding: &placement.Founding{Authority: b.Authority, Cache: b.Cache},
		}
		if len(b.Cache) > 0 {
			founding.Founding.Region = b.Region
		}
		// Refused here rather than by the first election.
		if _, err := (&placement.State{}).Apply(1, founding); err != nil {
			return err
		}
		data, err := founding.Encode()
		if err != nil {
			return err
		}
		m.Founding = data
	}
	if err := regions.MakeFolder(b.Dir); err != nil {
		return err
	}
	if err := b.bootstrap(); err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return regions.WriteWhole(filepath.Join(b.Dir, MarkFile), text)
}

// Check is Create without the making: why it would be refused.
func (b *Birth) Check() error {
	refuse := func(field, hint string) error {
		return &api.Error{Code: api.ConfigInvalid, Op: "create voter", Field: field, Hint: hint}
	}
	switch _, err := os.Stat(filepath.Join(b.Dir, MarkFile)); {
	case err == nil:
		return refuse("dir", "it holds a voter; move it away first")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case b.Region == "" || b.Authority == "":
		return refuse("authority", "a voter needs its region and the founding's random name")
	case (len(b.Voters) > 0) == (len(b.Join) > 0):
		return refuse("voters", "a voter founds an authority with others, or joins those that vote already")
	case len(b.Voters) > 0 && !slices.Contains(b.Voters, b.Region):
		return refuse("voters", "this region is not one of them")
	case len(b.Voters) > 0 && strings.Contains(b.Authority, rollMark) && b.Authority != Name(b.Authority, b.Voters):
		return refuse("voters", "the founding of that name was begun with other voters than "+strings.Join(b.Voters, ", ")+
			": bring federation.yaml to one list in every region, then found with the name that the first region's command printed")
	case len(b.Cache) > 0 && len(b.Others) == 0:
		return refuse("others", "one that founds from its cache names the regions that voted before")
	case len(b.Cache) > 0 && len(b.Voters) != 1:
		return refuse("voters", "one region founds from its cache; the others join it")
	}
	return nil
}

// bootstrap writes the first entry of a founding: who votes. A run that was cut short is
// done over.
func (b *Birth) bootstrap() error {
	if err := os.Remove(filepath.Join(b.Dir, storeFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s, err := openStore(b.Dir, retryEvery, func() {})
	if err != nil {
		return err
	}
	if len(b.Voters) > 0 {
		var c raft.Configuration
		for _, v := range b.Voters {
			c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(v), Address: raft.ServerAddress(v)})
		}
		conf := raft.DefaultConfig()
		conf.LocalID = raft.ServerID(b.Region)
		err = raft.BootstrapCluster(conf, s, s, raft.NewDiscardSnapshotStore(), nil, c)
	}
	return errors.Join(err, s.close())
}

func readMark(dir string) (mark, error) {
	text, err := os.ReadFile(filepath.Join(dir, MarkFile))
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, &api.Error{Code: api.ConfigInvalid, Op: "open voter", Field: "dir",
			Hint: "no voter lives here; one that lost its folder has forgotten its votes, so remove it from the voters and create it anew"}
	}
	if err != nil {
		return mark{}, err
	}
	var m mark
	if err := json.Unmarshal(text, &m); err != nil || m.Version != 1 || m.Region == "" {
		return mark{}, fmt.Errorf("%s is damaged, or of a newer version", MarkFile)
	}
	return m, nil
}

// LoadCache reads a placement cache. A damaged one is an error, and never read in part.
func LoadCache(path string) (*placement.State, []byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, placement.MaxFounding))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, nil, err
	}
	s, err := placement.Restore(data)
	if err != nil {
		return nil, nil, fmt.Errorf("placement cache %s: %w", path, err)
	}
	return s, data, nil
}
