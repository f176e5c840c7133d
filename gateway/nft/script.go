package nft

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"domicile/regions"
	"domicile/regions/link"
)

// The sets of a table. Each holds source, destination and the port that tells who opened the
// connection: the listener's is the destination's port of one way and the source's of the
// other.
const (
	leavingDialed    = "leaving_dialed"
	leavingAccepted  = "leaving_accepted"
	arrivingDialed   = "arriving_dialed"
	arrivingAccepted = "arriving_accepted"
)

// sets are those that a cut fills. A black hole takes packets by where they go; a cut takes
// connections by who opened them, both ways.
func sets(c link.Cut) []string {
	taken := map[string]bool{}
	for _, d := range c.Dirs {
		switch {
		case c.Mode == link.BlackHole && d == regions.Out:
			taken[leavingDialed], taken[leavingAccepted] = true, true
		case c.Mode == link.BlackHole:
			taken[arrivingDialed], taken[arrivingAccepted] = true, true
		case d == regions.Out:
			taken[leavingDialed], taken[arrivingDialed] = true, true
		default:
			taken[leavingAccepted], taken[arrivingAccepted] = true, true
		}
	}
	return slices.DeleteFunc([]string{leavingDialed, leavingAccepted, arrivingDialed, arrivingAccepted}, func(s string) bool { return !taken[s] })
}

// key is an element of a set.
func (p pair) key(set string) string {
	switch set {
	case leavingDialed:
		return fmt.Sprintf("%s . %s . %d", p.own.Addr(), p.peer.Addr(), p.peer.Port())
	case leavingAccepted:
		return fmt.Sprintf("%s . %s . %d", p.own.Addr(), p.peer.Addr(), p.own.Port())
	case arrivingDialed:
		return fmt.Sprintf("%s . %s . %d", p.peer.Addr(), p.own.Addr(), p.peer.Port())
	default:
		return fmt.Sprintf("%s . %s . %d", p.peer.Addr(), p.own.Addr(), p.own.Port())
	}
}

// table is a script that makes a cut's own table. It has no verdict but that of the fault,
// and both chains let everything else go on to the host's other rules.
func table(name string, c link.Cut, pairs []pair, lease time.Duration) string {
	verdict := "drop"
	if c.Mode == link.Reject {
		verdict = "reject with tcp reset"
	}
	port := map[string]string{leavingDialed: "dport", leavingAccepted: "sport", arrivingDialed: "sport", arrivingAccepted: "dport"}
	var declared strings.Builder
	rules := map[string]string{}
	for family, of := range byFamily(pairs) {
		for _, set := range sets(c) {
			fmt.Fprintf(&declared, "\tset %s_%s { type %sv%s_addr . %sv%s_addr . inet_service; flags timeout; }\n", set, family, "ip", family, "ip", family)
			hook, _, _ := strings.Cut(set, "_")
			rules[hook] += fmt.Sprintf("\t\t%s saddr . %s daddr . tcp %s @%s_%s %s\n", of.word, of.word, port[set], set, family, verdict)
		}
	}
	return fmt.Sprintf("table inet %s {\n%s\tchain leaving {\n\t\ttype filter hook output priority -10; policy accept;\n%s\t}\n\tchain arriving {\n\t\ttype filter hook input priority -10; policy accept;\n%s\t}\n}\n",
		name, declared.String(), rules["leaving"], rules["arriving"]) + elements("add", name, c, pairs, lease)
}

// renewal is a script that begins every element's time anew, all or none: it fails if one
// has ended.
func renewal(name string, c link.Cut, pairs []pair, lease time.Duration) string {
	return elements("delete", name, c, pairs, 0) + elements("add", name, c, pairs, lease)
}

func elements(act, name string, c link.Cut, pairs []pair, lease time.Duration) string {
	var out strings.Builder
	timeout := ""
	if lease > 0 {
		timeout = fmt.Sprintf(" timeout %dms", max(lease.Milliseconds(), 1))
	}
	for family, of := range byFamily(pairs) {
		for _, set := range sets(c) {
			keys := []string{}
			for _, p := range of.pairs {
				keys = append(keys, p.key(set)+timeout)
			}
			slices.Sort(keys)
			fmt.Fprintf(&out, "%s element inet %s %s_%s { %s }\n", act, name, set, family, strings.Join(slices.Compact(keys), ", "))
		}
	}
	return out.String()
}

// family is the pairs of one version of the protocol, and its word in a rule.
type family struct {
	word  string
	pairs []pair
}

// byFamily yields version 4 first.
func byFamily(pairs []pair) func(yield func(string, family) bool) {
	return func(yield func(string, family) bool) {
		four := family{word: "ip"}
		six := family{word: "ip6"}
		for _, p := range pairs {
			if p.own.Addr().Is4() {
				four.pairs = append(four.pairs, p)
			} else {
				six.pairs = append(six.pairs, p)
			}
		}
		if len(four.pairs) > 0 && !yield("4", four) {
			return
		}
		if len(six.pairs) > 0 {
			yield("6", six)
		}
	}
}
