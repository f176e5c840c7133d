package report

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"domicile/chaos/drill/history"
)

// The page needs nothing from anywhere, leads nowhere that is not there, and shows what
// came from outside as text.
func TestR14i_ThePageStandsAlone(t *testing.T) {
	unknown := func(e *history.Event) *history.Event {
		switch {
		case e.Plan != nil:
			e.Plan.Reason = "<script>alert(1)</script>"
		case e.Gauge != nil && e.Gauge.Target == "ap-south" && e.Gauge.Asked > cutAt+6*time.Second && e.Gauge.Asked < cutAt+8*time.Second:
			e.Gauge.Staleness = nil
		}
		return e
	}
	for name, s := range map[string]story{"plain": {}, "moves": {moves: true, spoil: unknown}, "bad": {spoil: spoilt[1].spoil}, "lost": {spoil: spoilt[0].spoil}} {
		var out bytes.Buffer
		if err := Judge(s.tell(t)).HTML(&out); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text := out.String()
		if dir := os.Getenv("DOMICILE_KEEP_PAGES"); dir != "" {
			if err := os.WriteFile(dir+"/"+name+".html", out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{"orders@eu-west", "denied: residency", "Not proven by this drill", "domicile drill verify", `<path class="l1"`} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the page has no %q", name, want)
			}
		}
		if bad := regexp.MustCompile(`(?i)<script|<link|<img|<iframe|src=|url\(|@import|https?:|ZgotmplZ|NaN|Inf`).FindString(text); bad != "" {
			t.Errorf("%s: the page holds %q", name, bad)
		}
		for _, id := range regexp.MustCompile(`href="#([a-z]+)"`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(text, `id="`+id[1]+`"`) {
				t.Errorf("%s: a link leads to #%s, which is not there", name, id[1])
			}
		}
	}
	var out bytes.Buffer
	if err := Judge(&history.History{Events: []history.Event{{N: 1, Head: &history.Head{Drill: "d"}}}}).HTML(&out); err != nil || !strings.Contains(out.String(), "Nothing was cut") {
		t.Errorf("an empty history: %v", err)
	}
}
