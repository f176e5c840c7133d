package placement

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"domicile/api"
)

// CommandVersion is the latest version of commands that this program reads; the first byte of
// an encoded command is its own. A field is only ever added under a new version, since a voter
// that skipped what it does not know would come to another state than the others. A command is
// written in the oldest version that has all its parts, so that voters of which one is older
// go on with all that it knows.
const CommandVersion = 1

// MaxCommand bounds an encoded command other than the founding one, in bytes.
const MaxCommand = 256 << 10

// MaxFounding bounds the encoded founding command, which carries a whole state.
const MaxFounding = 64 << 20

// Encode is the one spelling of the command. All its parts are of version 1.
func (c Command) Encode() ([]byte, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, bad("command", err.Error())
	}
	return append([]byte{1}, text...), nil
}

// DecodeCommand reads a command of any version up to reads. Anything that Encode would not
// write back byte by byte is refused, whatever it might have meant. VERSION_MISMATCH: it is
// of a later version, which the error names.
func DecodeCommand(data []byte, reads byte) (Command, error) {
	if len(data) == 0 || data[0] == 0 {
		return Command{}, bad("command", "it is not in the one form that is taken")
	}
	if data[0] > reads {
		return Command{}, &api.Error{Code: api.VersionMismatch, Op: "read placement command", Field: "version", Value: fmt.Sprint(data[0]),
			Hint: fmt.Sprintf("commands up to version %d are read here: start the newer program here too", reads)}
	}
	var c Command
	if err := strictly(data[1:], &c); err != nil {
		return Command{}, bad("command", "it is not in the one form that is taken")
	}
	if len(data) > MaxCommand && c.Verb != Found || len(data) > MaxFounding {
		return Command{}, bad("command", "it is too large")
	}
	again, err := c.Encode()
	if err != nil || !bytes.Equal(again[1:], data[1:]) {
		return Command{}, bad("command", "it is not in the one form that is taken")
	}
	return c, nil
}

func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one value")
	}
	return nil
}

// content identifies what a command says, its id included.
func (c Command) content() (string, error) {
	data, err := c.Encode()
	if err != nil {
		return "", err
	}
	return digest(data), nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// check refuses what no state could make sense of.
func (c *Command) check() error {
	for _, f := range []struct{ name, value string }{
		{"id", c.ID}, {"log", c.Log}, {"op", c.Op}, {"region", c.Region}, {"actor", c.Actor}, {"reason", c.Reason},
		{"plan", c.Plan}, {"home", c.Home},
	} {
		if !plain(f.value) {
			return bad(f.name, fmt.Sprintf("up to %d bytes of printable text", maxText))
		}
	}
	if c.Verb == Renew {
		if len(c.Regions) == 0 || len(c.Regions) > MaxRegions || !sortedSet(c.Regions) {
			return bad("regions", "name the regions in order, each once")
		}
		return nil
	}
	for _, f := range []struct {
		name    string
		missing bool
	}{
		{"id", c.ID == ""}, {"actor", c.Actor == ""}, {"reason", c.Reason == ""},
		{"log", c.Log == "" && c.Verb != Found && c.Verb != Voters},
		{"plan", c.Plan == "" && (c.Verb == Begin || c.Verb == Approve)},
	} {
		if f.missing {
			return bad(f.name, "it is required")
		}
	}
	if part := c.missingPart(); part != "" {
		return bad(part, fmt.Sprintf("%s needs it", c.Verb))
	}
	return nil
}

// missingPart names the part that the verb reads and the command lacks.
func (c *Command) missingPart() string {
	for _, p := range []struct {
		part    string
		verbs   []Verb
		missing bool
	}{
		{"founding", []Verb{Found}, c.Founding == nil},
		{"regions", []Verb{Voters}, len(c.Regions) == 0},
		{"terms", []Verb{Declare, Alter}, c.Terms == nil},
		{"home", []Verb{Declare, Resolve}, c.Home == ""},
		{"move", []Verb{Begin}, c.Move == nil},
		{"proof", []Verb{Prove}, c.Proof == nil},
		{"point", []Verb{FixCut, CaughtUp, Frozen, Opened}, c.Point == nil},
		{"lost", []Verb{Frozen}, c.Lost == nil},
		{"approvals", []Verb{Approve}, len(c.Approvals) != 1},
		{"divergence", []Verb{Diverged, Closed}, c.Divergence == nil},
		{"other", []Verb{Meet}, c.Other == nil},
		{"denial", []Verb{Denied}, c.Denial == ""},
		{"op", []Verb{Prove, FixCut, CaughtUp, Frozen, Flip, Approve, Abort}, c.Op == ""},
		{"approvals", []Verb{Found, Alter, Approve}, !approvalsPlain(c.Approvals)},
	} {
		if p.missing && slices.Contains(p.verbs, c.Verb) {
			return p.part
		}
	}
	return ""
}

func approvalsPlain(list []Approval) bool {
	return len(list) <= maxApprovals && !slices.ContainsFunc(list, func(a Approval) bool {
		return a.Actor == "" || a.Role == "" || !plain(a.Actor) || !plain(a.Role) || len(a.Signed) > MaxSigned || !printable(a.Signed)
	})
}

// plain reports whether text can stand in state, log line and audit as it is.
func plain(s string) bool {
	return len(s) <= maxText && printable(s)
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func sortedSet(names []string) bool {
	for i, n := range names {
		if !plain(n) || n == "" || i > 0 && names[i-1] >= n {
			return false
		}
	}
	return true
}
