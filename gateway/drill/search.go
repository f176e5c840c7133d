package drill

import (
	"context"
	"fmt"
	"strings"
	"time"

	"domicile/api"
	"domicile/regions/approval"
)

// Found is what a search of this node's files saw.
type Found struct {
	Files, Older uint64 // read to their end; not read, as they were last changed before
	Bytes        uint64
	Marks        []uint64 // occurrences of each mark
	Outputs      uint64   // files outside the data folder that the process writes its log to
	Beyond       []string // what could not be looked through, in words
}

// maxMarks is more than a drill has producers.
const maxMarks = 256

// Search looks for the marks of a drill's own records in the files of this node. What people
// store can't be asked for: a mark has a form of its own, and enough chance in it that
// nothing else has it. One search runs at a time.
func (d *Desk) Search(ctx context.Context, who string, marks []string, since time.Time) (Found, error) {
	if err := d.Verifier.Rules.Has(who, approval.Operator, approval.Incident); err != nil {
		return Found{}, err
	}
	if len(marks) == 0 || len(marks) > maxMarks {
		return Found{}, &api.Error{Code: api.BadRequest, Op: "search store", Field: "marks", Value: fmt.Sprint(len(marks)), Hint: fmt.Sprintf("1 to %d", maxMarks)}
	}
	for i, m := range marks {
		if !isMark(m) {
			return Found{}, &api.Error{Code: api.BadRequest, Op: "search store", Field: fmt.Sprintf("marks[%d]", i), Hint: "only marks of a drill's own records are looked for"}
		}
	}
	if !d.searching.TryLock() {
		return Found{}, &api.Error{Code: api.Overloaded, Op: "search store", Region: d.Self, Hint: "another search is under way: try again"}
	}
	defer d.searching.Unlock()
	return d.Files(ctx, marks, since)
}

// isMark reports whether text is what a drill's producer begins its ids with: "drill-",
// 16 characters of chance, a dash and two digits.
func isMark(text string) bool {
	const chance, digits = "abcdefghijklmnopqrstuvwxyz234567", "0123456789abcdef"
	run, number, ok := strings.Cut(strings.TrimPrefix(text, "drill-"), "-")
	return ok && strings.HasPrefix(text, "drill-") && len(run) == 16 && strings.Trim(run, chance) == "" && len(number) == 2 && strings.Trim(number, digits) == ""
}
