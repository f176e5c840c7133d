package gossip

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Word is what a gateway says of itself, and what a node compares it with.
type Word struct {
	Name       string // of the member, see Name
	Manifest   string // digest of federation.yaml
	Authority  string // founding of the placement authority; "": none was ever heard of
	Generation uint32
	Version    uint64 // of the placement that it knows
}

// maxWord bounds a word on the wire; what a newer version adds has room.
const maxWord = 4 << 10

// patience is how long a newer placement may take to arrive by itself, at pace 1.
const patience = 5 * time.Second

// said is a peer's word and when it was heard.
type said struct {
	Word
	at time.Time
}

// Name is a member's name: its gateway and its region, or the region alone where that has one
// gateway.
func Name(gateway, region string) string {
	if gateway == "" {
		return region
	}
	return gateway + "." + region
}

// split undoes Name.
func split(name string) (gateway, region string) {
	if at := strings.LastIndexByte(name, '.'); at >= 0 {
		return name[:at], name[at+1:]
	}
	return "", name
}

// hints puts into words what a node should be told: our word now, what peers said lately,
// the gateways of each region by the manifest, and how long a placement may be on its way.
func hints(ours Word, heard map[string]said, gateways map[string][]string, now time.Time, late time.Duration) []string {
	var out, differ, newer []string
	for _, s := range heard {
		gateway, region := split(s.Name)
		if !slices.Contains(gateways[region], gateway) {
			out = append(out, fmt.Sprintf("federation.yaml here does not name gateway %q of %s, which gossips", gateway, region))
		}
		if s.Manifest != ours.Manifest {
			differ = append(differ, region)
		}
		if s.Authority == ours.Authority && s.Authority != "" && now.Sub(s.at) >= late &&
			(s.Generation > ours.Generation || s.Generation == ours.Generation && s.Version > ours.Version) {
			newer = append(newer, region)
		}
	}
	if len(differ) > 0 {
		slices.Sort(differ)
		out = append(out, fmt.Sprintf("federation.yaml here is not that of %s (of %d regions that gossip)", strings.Join(differ, ", "), len(heard)))
	}
	if len(newer) > 0 {
		slices.Sort(newer)
		out = append(out, "a newer placement than this node has is known in "+strings.Join(newer, ", "))
	}
	slices.Sort(out)
	return out
}

func writeWord(w io.Writer, word Word) error {
	text, err := json.Marshal(word)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

func readWord(r io.Reader) (word Word, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Word{}, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxWord {
		return Word{}, errTooLong
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return Word{}, err
	}
	if err := json.Unmarshal(text, &word); err != nil || !named(word.Name) {
		return Word{}, fmt.Errorf("%w: a word", errMalformed)
	}
	return word, nil
}
