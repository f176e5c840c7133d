package api

import (
	"slices"
	"strings"
	"time"
)

// Limits on what one record may hold. They are part of the public contract: what
// is within them can be stored, forwarded, mirrored and replayed.
const (
	MaxBody        = 1 << 20  // bytes
	MaxHeaders     = 64       // count
	MaxHeaderBytes = 32 << 10 // bytes of all names and values together
	MaxID          = 128      // bytes
	MaxKey         = 128      // bytes
	MaxTopicName   = 128      // bytes

	// EventTimeSlack is how far an event time may lie from the time of ingest
	// before the record is flagged. Any event time is accepted.
	EventTimeSlack = 24 * time.Hour
)

// DefaultTenant is the only tenant of this version.
const DefaultTenant = "default"

// Tag is one value of one dimension of the policy catalog's closed vocabulary,
// for example residency=eu. Both parts are compared byte by byte.
type Tag struct{ Name, Value string }

// Header is application data that travels with a record and is never judged.
// Names are HTTP tokens; values are UTF-8 without control characters.
type Header struct{ Name, Value string }

// Record is what a producer publishes. A Record handed to another goroutine is
// not changed afterwards; Body is shared, not copied.
type Record struct {
	ID        string // stable event id; what deduplication uses
	Topic     string
	Key       string // orders records within one log; may be empty
	Tags      []Tag  // sorted by name once SortTags ran
	Headers   []Header
	Body      []byte
	EventTime time.Time // zero: not given
	Retry     Retry     // travels with a publish and is not stored
}

// Retry says that a record is being sent again, and what its earlier tries left open. A
// topic with route: within_boundary needs it to keep a record in the log of its first try.
type Retry struct {
	Again bool  // an earlier try may have been stored
	Log   LogID // the log that may hold it, as OUTCOME_UNKNOWN named it; zero: not known
}

// SortTags puts the tags into their canonical order, by name.
func (r *Record) SortTags() {
	slices.SortFunc(r.Tags, func(a, b Tag) int { return strings.Compare(a.Name, b.Name) })
}

// Tag returns the value of the named tag, "" if the record has none.
func (r *Record) Tag(name string) string {
	for _, t := range r.Tags {
		if t.Name == name {
			return t.Value
		}
	}
	return ""
}

// Size is the number of bytes a record counts for in bounds and quotas: body,
// id, key, tags and headers.
func (r *Record) Size() int {
	n := len(r.Body) + len(r.ID) + len(r.Key) + len(r.Topic)
	for _, t := range r.Tags {
		n += len(t.Name) + len(t.Value)
	}
	for _, h := range r.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return n
}

// TagString is the canonical text of a tag set, "class=order,residency=eu",
// sorted by name. It is stored with the record.
func TagString(tags []Tag) string {
	if len(tags) == 0 {
		return ""
	}
	sorted := tags
	if !slices.IsSortedFunc(tags, func(a, b Tag) int { return strings.Compare(a.Name, b.Name) }) {
		sorted = slices.Clone(tags)
		slices.SortFunc(sorted, func(a, b Tag) int { return strings.Compare(a.Name, b.Name) })
	}
	var b strings.Builder
	for i, t := range sorted {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(t.Name)
		b.WriteByte('=')
		b.WriteString(t.Value)
	}
	return b.String()
}

// ParseTagString reads what TagString wrote.
func ParseTagString(s string) ([]Tag, error) {
	if s == "" {
		return nil, nil
	}
	parts := strings.Split(s, ",")
	tags := make([]Tag, 0, len(parts))
	for _, p := range parts {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, &Error{Code: BadTag, Op: "parse tags", Field: "tags", Hint: "write tags as name=value"}
		}
		tags = append(tags, Tag{name, value})
	}
	return tags, nil
}
