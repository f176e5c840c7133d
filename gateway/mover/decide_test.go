package mover

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// TestR14e_WhatEachRegionDoes plays testdata/decide: what is known of a log and how each
// region holds it, and what each of them does next. The regions are a, b and c; epochs are
// counted, and each ended at the sequence behind it.
func TestR14e_WhatEachRegionDoes(t *testing.T) {
	datadriven.RunTest(t, "testdata/decide", play)
}

// TestFC3_AnOlderViewDoesNothing plays testdata/older: views of the placement that are older
// than the store's own markers.
func TestFC3_AnOlderViewDoesNothing(t *testing.T) {
	datadriven.RunTest(t, "testdata/older", play)
}

func play(t *testing.T, d *datadriven.TestData) string {
	v := view{copies: true, allowed: true}
	for _, arg := range d.CmdArgs {
		set(t, &v.log, arg.Key, arg.Vals)
	}
	v.log.Epoch = epochOf(len(v.log.History) + 1)
	var out strings.Builder
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		at := v
		at.self = words[0]
		for _, word := range words[1:] {
			look(t, &at, word)
		}
		fmt.Fprintf(&out, "%s: %s\n", at.self, next(at))
	}
	return out.String()
}

func epochOf(n int) api.Epoch {
	e := api.Epoch{Term: 1, Counter: uint64(n), Issuer: "q"}
	if n == 1 {
		e.Issuer = "a"
	}
	return e
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// set takes in one argument of a placement.
func set(t *testing.T, l *placement.Log, key string, vals []string) {
	t.Helper()
	switch key {
	case "home":
		l.Home = vals[0]
	case "status":
		l.Status = placement.Status(vals[0])
	case "ended": // home:end, the end "?" if it is not known
		for i, v := range vals {
			home, end, _ := strings.Cut(v, ":")
			e := placement.Ended{Epoch: epochOf(i + 1), Home: home, EndKnown: end != "?"}
			if e.EndKnown {
				e.End = number(t, end)
			}
			l.History = append(l.History, e)
		}
	case "op": // kind, step, target
		l.Op = &placement.Op{ID: "m", Kind: placement.Kind(vals[0]), Step: placement.Step(vals[1]), Target: vals[2]}
	case "rival": // the other claim's epoch
		l.Rival = &placement.Log{Epoch: epochOf(int(number(t, vals[0])))}
	case "divergent":
		l.Op.Divergent = true
	case "attested":
		l.Op.Attested = true
	case "proof":
		l.Op.Proof = &placement.Proof{Kind: placement.ProofKind(vals[0])}
	case "cut":
		l.Op.Cut = number(t, vals[0])
	case "lost": // seconds, and those that were accepted
		lost, most := time.Duration(number(t, vals[0]))*time.Second, time.Duration(number(t, vals[1]))*time.Second
		l.Op.Lost, l.Op.Accepted = &placement.Loss{Span: &lost}, placement.Loss{Span: &most}
	default:
		t.Fatalf("unknown argument %s", key)
	}
}

// look takes in one word of how a region holds the log.
func look(t *testing.T, v *view, word string) {
	t.Helper()
	key, val, _ := strings.Cut(word, "=")
	switch key {
	case "home", "copy":
		v.held.Role, v.held.From = regions.Role(key), v.log.Epoch
		if val != "" {
			v.held.Epoch = epochOf(int(number(t, val)))
		}
	case "closed":
		if val != "" {
			v.held.Home = epochOf(int(number(t, val)))
		}
	case "from":
		v.held.From = epochOf(int(number(t, val)))
	case "latest":
		v.held.Latest = epochOf(int(number(t, val)))
	case "stopped":
		v.held.Stopped = true
	case "end":
		v.held.End = number(t, val)
	case "knows": // the row of epochs up to this one
		v.held.Row = v.log.Epochs()[:number(t, val)]
		last := &v.held.Row[len(v.held.Row)-1]
		*last = regions.EpochEnd{Epoch: last.Epoch, Open: true}
	case "void":
		v.held.Void = []placement.Divergence{{Epoch: epochOf(int(number(t, val)))}}
	case "reported":
		v.log.Divergences = []placement.Divergence{{Epoch: epochOf(int(number(t, val))), Region: v.self}}
	case "unapproved":
		v.allowed = false
	case "overdue":
		v.overdue = true
	case "alone":
		v.alone = true
	case "studied":
		v.studied = true
	case "lent":
		v.held.Lent = val
	case "fetched":
		v.fetched = true
	case "learned":
		v.learned = true
	case "uncopied":
		v.copies = false
	default:
		t.Fatalf("unknown word %s", word)
	}
}
