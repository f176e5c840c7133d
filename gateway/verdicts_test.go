package gateway_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/gateway"
	"domicile/policy"
	"domicile/regions"
	"domicile/regions/fabric"
)

// TestVerdicts is the table of what a record can be refused for. Every record
// carries canaries: nothing of it may come back in an error.
func TestVerdicts(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name   string
		change func(*api.Record)
		code   api.Code
		field  string
	}{
		{"unknown topic", func(r *api.Record) { r.Topic = "order" }, api.UnknownTopic, "topic"},
		{"odd-case topic", func(r *api.Record) { r.Topic = "Orders" }, api.UnknownTopic, "topic"},
		{"topic with an empty part", func(r *api.Record) { r.Topic = "a..b" }, api.BadName, "topic"},
		{"topic with a leading dot", func(r *api.Record) { r.Topic = ".orders" }, api.BadName, "topic"},
		{"topic with a trailing dot", func(r *api.Record) { r.Topic = "orders." }, api.BadName, "topic"},
		{"no topic", func(r *api.Record) { r.Topic = "" }, api.BadName, "topic"},
		{"wildcard", func(r *api.Record) { r.Topic = "orders.*" }, api.BadName, "topic"},
		{"all-wildcard", func(r *api.Record) { r.Topic = ">" }, api.BadName, "topic"},
		{"space in the topic", func(r *api.Record) { r.Topic = "or ders" }, api.BadName, "topic"},
		{"long topic", func(r *api.Record) { r.Topic = strings.Repeat("a", api.MaxTopicName+1) }, api.BadName, "topic"},
		{"odd-case tag", func(r *api.Record) { r.Tags[1].Value = "EU" }, api.UnknownTag, "tags.residency"},
		{"tag with a space", func(r *api.Record) { r.Tags[1].Value = "eu " }, api.UnknownTag, "tags.residency"},
		{"confusable tag", func(r *api.Record) { r.Tags[1].Value = "\u0435u" }, api.UnknownTag, "tags.residency"},
		{"unknown dimension", func(r *api.Record) { r.Tags[0].Name = "clas" }, api.UnknownTag, "tags"},
		{"tag given twice", func(r *api.Record) { r.Tags[0] = r.Tags[1] }, api.BadTag, "tags.residency"},
		{"missing tag", func(r *api.Record) { r.Tags = r.Tags[:1] }, api.MissingTag, "tags.residency"},
		{"no tags", func(r *api.Record) { r.Tags = nil }, api.MissingTag, ""},
		{"combination", func(r *api.Record) { r.Tags[0].Value = "health" }, api.CombinationNotAllowed, "tags.class"},
		{"empty body", func(r *api.Record) { r.Body = nil }, api.BodyEmpty, "body"},
		{"body over the cap", func(r *api.Record) { r.Body = make([]byte, api.MaxBody+1) }, api.BodyTooLarge, "body"},
		{"too many headers", func(r *api.Record) { r.Headers = make([]api.Header, api.MaxHeaders+1) }, api.HeadersTooLarge, "headers"},
		{"headers over the cap", func(r *api.Record) { r.Headers[0].Value = strings.Repeat("x", api.MaxHeaderBytes) }, api.HeadersTooLarge, "headers"},
		{"header value not UTF-8", func(r *api.Record) { r.Headers[0].Value = "canary\xff" }, api.BadHeader, "headers[0].value"},
		{"control character in a header", func(r *api.Record) { r.Headers[0].Value = "canary\r\n" }, api.BadHeader, "headers[0].value"},
		{"header name", func(r *api.Record) { r.Headers[0].Name = "canary name" }, api.BadHeader, "headers[0].name"},
		{"long id", func(r *api.Record) { r.ID = strings.Repeat("canary", 22) }, api.BadID, "id"},
		{"id that does not print", func(r *api.Record) { r.ID = "canary\x00" }, api.BadID, "id"},
		{"id not UTF-8", func(r *api.Record) { r.ID = "canary\xff" }, api.BadID, "id"},
		{"long key", func(r *api.Record) { r.Key = strings.Repeat("canary", 22) }, api.BadKey, "key"},
		{"key not UTF-8", func(r *api.Record) { r.Key = "canary\xff" }, api.BadKey, "key"},
		{"event time no clock can hold", func(r *api.Record) { r.EventTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }, api.BadRequest, "event_time"},
		{"transit denied", func(r *api.Record) { r.Topic, r.Tags = "health.records", health("eu").Tags }, api.TransitDenied, ""},
	} {
		rec := order("eu")
		rec.ID, rec.Key, rec.Body = "canary-id", "canary-key", []byte("canary-body")
		rec.Headers = []api.Header{{Name: "h", Value: "canary-header"}}
		c.change(&rec)
		_, err := r.publish("us-east", rec)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != c.code || c.field != "" && e.Field != c.field {
			t.Errorf("%s: got %v, want %s at %q", c.name, err, c.code, c.field)
			continue
		}
		if e.Hint == "" {
			t.Errorf("%s: no way out: %v", c.name, err)
		}
		if strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error holds content of the record: %v", c.name, err)
		}
		if e.Code.Stored() != api.StoredNo {
			t.Errorf("%s: %s does not say that nothing was stored", c.name, e.Code)
		}
	}
}

// TestVerdictsAtTheCaps: what is just within the limits is taken.
func TestVerdictsAtTheCaps(t *testing.T) {
	r := newRig(t)
	rec := order("us")
	rec.ID, rec.Key = strings.Repeat("i", api.MaxID), strings.Repeat("k", api.MaxKey)
	rec.Body = make([]byte, api.MaxBody)
	for range api.MaxHeaders {
		rec.Headers = append(rec.Headers, api.Header{Name: "n", Value: strings.Repeat("v", api.MaxHeaderBytes/api.MaxHeaders-1)})
	}
	r.must("us-east", rec)
	rec = order("us")
	rec.Body = []byte{0}
	r.must("us-east", rec)
}

// TestEventTimesAreFlaggedNotRefused: any event time is taken, and one further than a
// day from ingest is flagged in the ack, also when another region stored the record.
func TestEventTimesAreFlaggedNotRefused(t *testing.T) {
	r := newRig(t)
	for away, odd := range map[time.Duration]bool{
		-25 * time.Hour: true, 25 * time.Hour: true, -23 * time.Hour: false, 23 * time.Hour: false,
		-200 * 365 * 24 * time.Hour: true, 200 * 365 * 24 * time.Hour: true,
	} {
		for _, residency := range []string{"us", "eu"} {
			rec := order(residency)
			rec.EventTime = time.Now().Add(away)
			if a := r.must("us-east", rec); a.EventTimeOdd != odd {
				t.Errorf("%s away, in %s: flagged %v", away, a.Region, a.EventTimeOdd)
			}
		}
	}
	if a := r.must("us-east", order("us")); a.EventTimeOdd {
		t.Error("no event time is flagged")
	}
}

// watched is a link that tells the deadlines it was given.
type watched struct {
	gateway.Links
	deadlines chan time.Time
}

func (w watched) Forward(_ string, f regions.Forward, done func(api.Ack, error)) {
	w.deadlines <- f.Deadline
	done(api.Ack{}, &api.Error{Code: api.HomeUnreachable})
}

// TestRT3_DeadlinesOfAPublish: an append has 5 s and a forward 10 s; a caller may ask
// for less, never for more.
func TestRT3_DeadlinesOfAPublish(t *testing.T) {
	if fabric.AppendDeadline != 5*time.Second || gateway.ForwardDeadline != 10*time.Second {
		t.Errorf("append %s, forward %s", fabric.AppendDeadline, gateway.ForwardDeadline)
	}
	r := newRig(t, func(c *gateway.Config) { c.Pace = 1 })
	us := r.region["us-east"]
	seen := make(chan time.Time, 1)
	us.Config.Links = watched{us.links, seen}
	for asked, want := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Hour: 10 * time.Second, time.Second: time.Second} {
		ctx := t.Context()
		if asked > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, asked)
			defer cancel()
		}
		us.Publish(ctx, order("eu"), client("us-east"), nil, func(api.Ack, error) {})
		if left := time.Until(<-seen); left > want || left < want-time.Second {
			t.Errorf("asked for %s: %s left, want %s", asked, left, want)
		}
	}
}

func TestR14b_NoPolicyNoPublishing(t *testing.T) {
	r := newRig(t, func(c *gateway.Config) {
		if c.Self == "us-east" {
			c.Gate = policy.NewGate(c.Federation, c.Self, policy.Hooks{})
		}
	})
	for _, residency := range []string{"us", "eu", "global"} {
		if _, err := r.publish("us-east", order(residency)); api.CodeOf(err) != api.PolicyUnavailable {
			t.Errorf("no policy: %v", err)
		}
	}
	if err := r.region["eu-west"].gate.Activate(t.Context(), r.policies.none); err != nil {
		t.Fatal(err)
	}
	for _, residency := range []string{"us", "eu", "global"} {
		if _, err := r.publish("eu-west", order(residency)); api.CodeOf(err) != api.ResidencyDenied {
			t.Errorf("rules that permit nothing: %v", err)
		}
	}
	if err := r.region["us-east"].Read(t.Context(), gateway.ReadRequest{Topic: "orders"}, client("us-east"), func(gateway.Batch) error { return nil }); err != nil {
		t.Errorf("nothing to read, nothing to judge: %v", err)
	}
}

// moved is a placement that gives a log to another region.
type moved struct {
	regions.Placement
	log  api.LogID
	home string
}

func (m moved) Home(id api.LogID) (string, api.Epoch, bool) {
	if id == m.log {
		return m.home, api.StaticEpoch(m.home), true
	}
	return m.Placement.Home(id)
}

func TestR14b_PlacementNeverWidensABoundary(t *testing.T) {
	r := newRig(t, func(c *gateway.Config) { c.Placement = moved{c.Placement, logID(t, "orders@eu-west"), "us-east"} })
	for _, at := range []string{"eu-west", "us-east"} {
		if _, err := r.publish(at, order("eu")); api.CodeOf(err) != api.HomeOutsideBoundary {
			t.Errorf("published in %s: %v", at, err)
		}
	}
}
