package report

import (
	"strings"
	"time"
)

// Mark is the word that stands wherever a simulated drill is spoken of.
const Mark = "SIMULATED"

// word is what a report is of, with a space.
func (r *Report) word() string {
	if r.Simulated != nil {
		return Mark + " drill "
	}
	return "drill "
}

// title is the head of the report.
func (r *Report) title() string {
	word := r.word()
	return strings.ToUpper(word[:1]) + word[1:] + r.Drill
}

// marked is a sentence about the drill, which a simulated one begins with that word.
func (r *Report) marked(line string) string {
	if r.Simulated != nil {
		return Mark + ": " + line
	}
	return line
}

// forecast says what a simulation leaves out of the world.
func (r *Report) forecast(add func(string, ...any)) {
	v := r.Simulated
	if v == nil {
		return
	}
	add("Anything at all about the running federation: this was computed on %s in virtual time, on new, empty stores, and counts as evidence of nothing.", v.At.UTC().Format(time.RFC3339))
	add("Disks, lines and processors: syncs, ways between regions and computing took no time, and every figure of milliseconds is of the model. The rates are those of the simulation.")
	for _, region := range v.Solo {
		add("Region %s as three nodes: it was modelled as one, and what a majority, a seat or a lost node does is not shown.", region)
	}
	for _, d := range v.Differs {
		add("%s", d)
	}
}
