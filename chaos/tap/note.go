package tap

import "domicile/chaos/ledger"

// Note writes what was seen into a book, once the run is over. records lists the marks of
// the ids of the records that have a token.
func (t *Tap) Note(b *ledger.Book, records func(token int) []string) {
	for _, l := range t.Lines() {
		b.Note(ledger.Event{Line: &ledger.Line{From: l.From, To: l.To, Lane: string(l.Lane), Bytes: l.Bytes, Opaque: l.Opaque}})
	}
	for _, c := range t.Crossings() {
		b.Note(ledger.Event{Crossing: &ledger.Crossing{From: c.From, To: c.To, Lane: string(c.Lane), Call: c.Call, Form: string(c.Form),
			IDs: records(c.Token), First: c.At, Number: c.Token}})
	}
}
