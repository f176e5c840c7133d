package simulate

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"domicile/chaos/drill"
	"domicile/chaos/drill/history"
	"domicile/regions"
	"domicile/regions/strict"
)

// longest is the longest cut that a manifest can permit, with its lease.
const longest = 24 * time.Hour

// model is a federation as it is simulated: the manifest that its nodes get, and in what
// that is not the one that was declared.
func model(path string, text []byte) (manifest []byte, differs history.Simulated, err error) {
	declared, err := regions.ParseManifest(path, text)
	if err != nil {
		return nil, differs, err
	}
	doc := map[string]any{}
	if err := strict.Decode(path, text, &doc); err != nil {
		return nil, differs, err
	}
	for _, name := range declared.Regions() {
		if r, _ := declared.Region(name); r.Quorum() {
			differs.Solo = append(differs.Solo, name)
			first := slices.Sorted(maps.Keys(r.Gateways))[0]
			under(doc, "regions")[name] = map[string]any{"link": r.Gateways[first]}
		}
	}
	doc["drills"] = map[string]any{"max_for": longest.String()}
	for _, name := range declared.Topics() {
		if failover, ok := under(under(doc, "topics"), name)["failover"].(map[string]any); ok {
			delete(failover, "approvals")
		}
	}
	differs.Differs = []string{
		"Whether, when and for how long drills are permitted, and whose consent they and moves need: nobody was asked.",
		"Who producers and operators are: each producer is of class " + class + " and in its region, and certificates are the simulation's own.",
		"Who signed the policy: it was read from the folder, as it is there now.",
	}
	if manifest, err = strict.Encode(doc); err == nil {
		_, err = regions.ParseManifest(path, manifest)
	}
	return manifest, differs, err
}

// under is a part of a document; one that is not there can be written to and is lost.
func under(doc map[string]any, key string) map[string]any {
	part, ok := doc[key].(map[string]any)
	if !ok {
		return map[string]any{}
	}
	return part
}

// fit makes a plan one that can be simulated, and says what was changed. lasts is how long
// it cuts, 0 as the plan says; rate bounds the records a second of each of its feeds.
func fit(p *drill.Plan, lasts time.Duration, rate int) (differs []string) {
	if lasts > 0 && lasts != p.For {
		differs = append(differs, fmt.Sprintf("A cut as long as in the plan: this one was to last %s, the plan says %s.", regions.Span(lasts), regions.Span(p.For)))
		p.For, p.Lease = lasts, min(p.Lease, lasts)
	}
	most := 0
	for i := range p.Feeds {
		most = max(most, p.Feeds[i].Rate)
		p.Feeds[i].Rate = min(p.Feeds[i].Rate, rate)
	}
	if most > rate {
		differs = append(differs, fmt.Sprintf("The plan's rates: each producer published at most %d records a second, where the plan says up to %d. Room by bytes lasts so much longer than it would.", rate, most))
	}
	if p.Gate != gateOfNodes {
		differs = append(differs, "The plan's gate, "+p.Gate+": the nodes' own gates cut instead.")
		p.Gate = gateOfNodes
	}
	for i := range p.Exercise {
		p.Exercise[i].Move = "" // nobody has to approve it here
	}
	return differs
}

const (
	gateOfNodes = "process"
	class       = "app" // of every producer; what node.yaml's dev_class is by default
)
