package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"domicile/api"
	"domicile/gateway/door"
	"domicile/gateway/drill"
	"domicile/mirror"
	"domicile/regions"
)

// actsFile is the audit of what operators did to topics, in the data directory: one JSON
// line before each act and one after it, on disk before the act begins. Nothing of a
// record is in it.
const actsFile = "acts.jsonl"

const maxReason = 500 // bytes of an operator's reason

// act is one line of the audit.
type act struct {
	At      time.Time        `json:"at"`
	Who     string           `json:"who"` // the name in the operator's certificate
	Act     string           `json:"act"` // "delete", "purge", "reload", "policy", or of a log's move "move", "approve", "abort", "resolve"; of void records "republish", "discard"; of the authority "found", "add-voter", "remove-voter", "snapshot"; "drill" when one is armed, "drill-passed" once it is known to have; "clock" when a person's word for the machine's clock counts
	Topic   string           `json:"topic,omitempty"`
	Forced  bool             `json:"forced"`
	Reason  string           `json:"reason,omitempty"`
	Plan    string           `json:"plan,omitempty"`            // of a move, or a drill's id
	Chain   string           `json:"chain,omitempty"`           // of a drill that has passed: the last hash of its history
	Moves   []drill.Measured `json:"moves,omitempty"`           // that it has measured
	Before  string           `json:"manifest_before,omitempty"` // of a reload: digests
	After   string           `json:"manifest_after,omitempty"`
	Policy  *actOn           `json:"policy,omitempty"`  // that was activated
	Changes []string         `json:"changes,omitempty"` // of a reload: topic: what, and the fields that differ
	Logs    []actLog         `json:"logs,omitempty"`    // of the last line: those that it was done to
	// ApprovedBy are the others whose consent it took, by the names in their certificates.
	ApprovedBy []string `json:"approved_by,omitempty"`
	Failed     string   `json:"failed,omitempty"` // the log at which it ended before its end
	Outcome    string   `json:"outcome"`          // "begun", "done", or why it failed
}

// actOn is a signed policy in the audit.
type actOn struct {
	Serial   int64    `json:"serial"`
	Digest   string   `json:"digest"`
	Before   string   `json:"revision_before,omitempty"`
	SignedBy []string `json:"signed_by"`
	From     string   `json:"from,omitempty"` // the region or gateway that it came from
}

type actLog struct {
	Log         string   `json:"log"`
	Role        string   `json:"role"`
	Incarnation string   `json:"incarnation,omitempty"`
	From        uint64   `json:"from,omitempty"`
	To          uint64   `json:"to,omitempty"`
	Records     uint64   `json:"records,omitempty"`
	NotCopied   []string `json:"not_copied,omitempty"` // per target, in words
}

// begin writes the act's first line; nothing may be done before it returned.
func (n *Node) begin(ctx context.Context, a act) (act, error) {
	a.Who, a.At, a.Outcome = "this process", n.seams.Clock.Now().UTC(), "begun"
	if who, ok := door.Caller(ctx); ok {
		a.Who = who.Name
	}
	return a, n.note(a)
}

// finish writes the act's last line.
func (n *Node) finish(a act, err error) {
	a.At, a.Outcome = n.seams.Clock.Now().UTC(), "done"
	if err != nil {
		a.Outcome = "failed: " + string(api.CodeOf(err))
	}
	if err := n.note(a); err != nil {
		n.logger.Error("the audit of an act is not on disk", "act", a.Act, "err", err)
	}
}

func (n *Node) note(a act) error {
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	path := filepath.Join(n.cfg.Data, actsFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err == nil {
		_, err = f.Write(append(tornEnd(f), append(line, '\n')...))
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = regions.SyncFolder(n.cfg.Data)
	}
	if err != nil {
		return &api.Error{Code: api.StorageFailed, Op: "write audit", Field: "data", Value: path, Err: err, Hint: "nothing is done that cannot be audited: see that the disk has room and can be written"}
	}
	return nil
}

// tornEnd ends a line that a crash or a full disk cut off, so that it swallows no other:
// it stays, and is no JSON. The act that it was to begin was not begun.
func tornEnd(f *os.File) []byte {
	last := []byte{'\n'}
	if at, err := f.Seek(0, io.SeekEnd); err == nil && at > 0 {
		_, _ = f.ReadAt(last, at-1)
	}
	if last[0] == '\n' {
		return nil
	}
	return []byte{'\n'}
}

// alone lets one act on topics in; another is told.
func (n *Node) alone() (done func(), err error) {
	if !n.acting.TryLock() {
		return nil, &api.Error{Code: api.NotReady, Op: "change topics", Region: n.cfg.Region, RetryAfter: n.seams.Pace.Of(time.Second),
			Hint: "somebody else changes this region's topics just now; nothing was done, look at status and try again"}
	}
	return n.acting.Unlock, nil
}

// checkReason refuses force without a reason, and a reason that would break the audit.
func checkReason(force bool, reason string) error {
	bad := func(hint string) error {
		return &api.Error{Code: api.BadRequest, Op: "change topics", Field: "reason", Hint: hint}
	}
	switch {
	case force && strings.TrimSpace(reason) == "":
		return bad("it needs --reason TEXT: it is kept in the audit")
	case len(reason) > maxReason:
		return bad(fmt.Sprintf("at most %d bytes", maxReason))
	case strings.ContainsFunc(reason, unicode.IsControl):
		return bad("one line of plain text")
	}
	return nil
}

// missing puts into words what targets do not have of a log.
func missing(log api.LogID, uncopied []mirror.Uncopied) []string {
	var out []string
	for _, u := range uncopied {
		switch {
		case !u.Known:
			out = append(out, fmt.Sprintf("it is not known how many records of %s are not yet in %s, which was not heard since this node started", log, u.Target))
		case u.Exact:
			out = append(out, fmt.Sprintf("%d records of %s are not yet in %s", u.Records, log, u.Target))
		default:
			out = append(out, fmt.Sprintf("up to %d records of %s are not yet in %s", u.Records, log, u.Target))
		}
	}
	return out
}

// notCopied refuses an act that would lose records.
func notCopied(op, topic, region string, texts []string) error {
	return &api.Error{Code: api.NotCopied, Op: op, Topic: topic, Region: region,
		Hint: strings.Join(texts, "; ") + "; nothing was done: wait until they are there, or say --force --reason TEXT"}
}

// homeHeard is what a copy's deletion asks: whether the home that has the records is
// there.
func (t *turn) homeHeard(id api.LogID, home string) []string {
	if link, ok := t.mesh.Status(home); ok && link.Up {
		return nil
	}
	return []string{fmt.Sprintf("the home of %s, %s, is not heard: this copy may be all that is left", id, regionName(home))}
}

func regionName(name string) string {
	if name == "" {
		return "unknown"
	}
	return name
}
