package fabric

import (
	"fmt"
	"strings"

	"domicile/api"
	"domicile/regions"
)

// writerMay are the subjects that the writers' connection may publish to: those of the logs, and
// what it asks the broker in order to read them.
const writerMay = `"r.*", "c.*", "o.*", "` + directGet + `>", "` + nextOfConsumer + `>"`

// maxWord bounds what is no text of a record in bytes.
const maxWord = 256

const nextOfConsumer = "$JS.API.CONSUMER.MSG.NEXT."

// fits refuses an entry that can't be stored at p.
func (e *entry) fits(p position) error {
	if e.control() {
		return p.storable()
	}
	return storable(p, &e.item)
}

// storable refuses a place whose words are none. The zero position is written nowhere.
func (p position) storable() error {
	switch {
	case p.Sequence == 0:
		return nil
	case !api.IsWord(p.Incarnation, maxWord):
		return unstorable("incarnation")
	case !api.IsWord(p.Epoch.Issuer, maxWord):
		return unstorable("epoch")
	}
	return nil
}

// storable refuses what would not read back as it is: what stands between spaces or before a
// colon is written as it comes, and has to be one word. The rest is escaped. p is where the
// item will lie.
func storable(p position, it *regions.Item) error {
	if err := p.storable(); err != nil {
		return err
	}
	if g := it.Gap; g != nil {
		switch {
		case g.From == 0 || g.To < g.From:
			return unstorable("gap.range")
		case !api.IsWord(string(g.Kind), maxWord):
			return unstorable("gap.kind")
		case !api.IsWord(dash(string(g.Code)), maxWord) || g.Code == "-":
			return unstorable("gap.code")
		case !api.IsWord(dash(g.Side), maxWord) || g.Side == "-":
			return unstorable("gap.side")
		case g.Revision == "-":
			return unstorable("gap.revision")
		}
		return nil
	}
	if it.Time.IsZero() {
		return unstorable("time")
	}
	for _, t := range it.Record.Tags {
		if t.Name == "" || strings.ContainsAny(t.Name, ",=") || strings.Contains(t.Value, ",") {
			return unstorable("tags")
		}
	}
	for i := range it.Record.Headers {
		if !api.IsToken(it.Record.Headers[i].Name) {
			return unstorable(fmt.Sprintf("headers[%d].name", i))
		}
	}
	return nil
}

func unstorable(field string) error {
	return &api.Error{Code: api.BadRequest, Op: "append", Field: field, Hint: "it can't be stored so that it reads back as it is; nothing was stored"}
}
