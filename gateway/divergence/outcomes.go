package divergence

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/loss"
)

// Outcome is what became of a run of records, sequences From to To.
type Outcome struct {
	From  uint64    `json:"from"`
	To    uint64    `json:"to"`
	Fate  loss.Fate `json:"fate"`
	Code  api.Code  `json:"code,omitempty"`  // of a refusal
	Epoch string    `json:"epoch,omitempty"` // where the first of them is now, the others behind it
	At    uint64    `json:"at,omitempty"`
}

// outcomes are in order and do not overlap. What none of them names is open.
type outcomes []Outcome

// set notes an outcome, in place of what was known of these sequences.
func (o *outcomes) set(add Outcome) {
	all := *o
	if n := len(all); n == 0 || all[n-1].To < add.From {
		if n > 0 && all[n-1].goesOn(&add) {
			all[n-1].To = add.To
			return
		}
		*o = append(all, add)
		return
	}
	var kept outcomes
	for _, have := range all {
		if have.To < add.From || have.From > add.To {
			kept = append(kept, have)
			continue
		}
		if have.From < add.From {
			kept = append(kept, have.part(have.From, add.From-1))
		}
		if have.To > add.To {
			kept = append(kept, have.part(add.To+1, have.To))
		}
	}
	i, _ := slices.BinarySearchFunc(kept, add.From, func(have Outcome, from uint64) int {
		if have.From < from {
			return -1
		}
		return 1
	})
	*o = slices.Insert(kept, i, add)
}

// goesOn reports whether next only continues o.
func (o *Outcome) goesOn(next *Outcome) bool {
	return o.To+1 == next.From && o.Fate == next.Fate && o.Code == next.Code && o.Epoch == next.Epoch &&
		(o.At == 0 && next.At == 0 || o.At+(next.From-o.From) == next.At)
}

func (o Outcome) part(from, to uint64) Outcome {
	if o.At > 0 {
		o.At += from - o.From
	}
	o.From, o.To = from, to
	return o
}

// of is what is known of one sequence; its fate is open when nothing is.
func (o outcomes) of(sequence uint64) Outcome {
	i, ok := slices.BinarySearchFunc(o, sequence, func(have Outcome, s uint64) int {
		switch {
		case have.To < s:
			return -1
		case have.From > s:
			return 1
		}
		return 0
	})
	if !ok {
		return Outcome{From: sequence, To: sequence, Fate: loss.Open}
	}
	return o[i].part(sequence, sequence)
}

// decided reports whether the record is somewhere else by now.
func (o Outcome) decided() bool { return o.Fate == loss.Republished || o.Fate == loss.Present }

// count says how many of so many records have which fate. What was discarded is all that
// is nowhere else.
func (o outcomes) count(records uint64, discarded bool) map[loss.Fate]uint64 {
	counts := map[loss.Fate]uint64{}
	known := uint64(0)
	for _, have := range o {
		n := have.To - have.From + 1
		known += n
		counts[have.Fate] += n
	}
	counts[loss.Open] = records - min(records, known)
	if discarded {
		for _, fate := range []loss.Fate{loss.Open, loss.Kept, loss.Refused} {
			counts[loss.Discarded] += counts[fate]
			counts[fate] = 0
		}
	}
	return counts
}

const longestLine = 4 << 10

// loadOutcomes reads a journal; none is an empty one.
func loadOutcomes(path string) (outcomes, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readOutcomes(f)
}

// readOutcomes leaves out a line that is not whole: what it was to say is open, and is
// asked for again.
func readOutcomes(r io.Reader) (o outcomes, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		var out Outcome
		if json.Unmarshal(lines.Bytes(), &out) == nil && out.From > 0 && out.From <= out.To {
			o.set(out)
		}
	}
	return o, lines.Err()
}

// text is the whole journal.
func (o outcomes) text() ([]byte, error) {
	var text []byte
	for i := range o {
		line, err := json.Marshal(&o[i])
		if err != nil {
			return nil, err
		}
		text = append(append(text, line...), '\n')
	}
	return text, nil
}

// save puts the whole journal in place.
func (o outcomes) save(path string) error {
	text, err := o.text()
	if err != nil {
		return err
	}
	return regions.WriteWhole(path, text)
}
