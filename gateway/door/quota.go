package door

import (
	"context"
	"fmt"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions"
)

// quotas are the bounds of what is published at one door, per topic and per entry of
// principals, in front of everything else: a record that is over them costs no policy,
// log or link. A bucket holds one second's worth. What is forwarded counts here, at the
// door where it was published, and nowhere else.
type quotas struct {
	Gateway
	federation *regions.Federation
	clock      regions.Clock
	refused    func(topic string, code api.Code)

	mu     sync.Mutex
	topics map[string]*bucket
	rules  map[int]*bucket
}

func newQuotas(c *Config) *quotas {
	q := &quotas{Gateway: c.Gateway, federation: c.Federation, clock: c.Clock, refused: c.Refused, topics: map[string]*bucket{}, rules: map[int]*bucket{}}
	if q.refused == nil {
		q.refused = func(string, api.Code) {}
	}
	return q
}

// Publish hands a record on, or refuses it with QuotaExceeded and when to try again.
func (q *quotas) Publish(ctx context.Context, r api.Record, who regions.Principal, away func(), done func(api.Ack, error)) {
	if err := q.admit(ctx, &r); err != nil {
		topic := ""
		if _, known := q.federation.Topic(r.Topic); known {
			topic = r.Topic
		}
		q.refused(topic, err.Code)
		done(api.Ack{}, err)
		return
	}
	q.Gateway.Publish(ctx, r, who, away, done)
}

// admit takes the record out of all buckets that are for it, or out of none.
func (q *quotas) admit(ctx context.Context, r *api.Record) *api.Error {
	c, _ := ctx.Value(callerKey{}).(*caller)
	topic, known := q.federation.Topic(r.Topic)
	limited := known && !topic.Quota.None()
	if !limited && (c == nil || c.quota.None()) {
		return nil
	}
	now, size := q.clock.Now(), float64(r.Size())
	q.mu.Lock()
	defer q.mu.Unlock()
	var mine []*bucket
	if limited {
		mine = append(mine, bucketOf(q.topics, r.Topic, topic.Quota, "topics."+r.Topic+".quota", now))
	}
	if c != nil && !c.quota.None() {
		mine = append(mine, bucketOf(q.rules, c.rule, c.quota, fmt.Sprintf("principals[%d].quota", c.rule), now))
	}
	for _, b := range mine {
		if err := b.lacks(size, r.Topic); err != nil {
			return err
		}
	}
	for _, b := range mine {
		b.records -= 1
		b.bytes -= size
	}
	return nil
}

// bucket is what may be published now under one quota.
type bucket struct {
	quota          regions.Quota
	field          string
	at             time.Time
	records, bytes float64 // below zero after a record larger than a second's worth
}

// bucketOf is the bucket of a key, filled up to now. A quota that has changed begins
// with a full one.
func bucketOf[K comparable](all map[K]*bucket, key K, q regions.Quota, field string, now time.Time) *bucket {
	b := all[key]
	if b == nil || b.quota != q {
		b = &bucket{quota: q, field: field, at: now, records: float64(q.Records), bytes: float64(q.Bytes)}
		all[key] = b
		return b
	}
	if passed := now.Sub(b.at).Seconds(); passed > 0 {
		b.at = now
		b.records = min(float64(q.Records), b.records+passed*float64(q.Records))
		b.bytes = min(float64(q.Bytes), b.bytes+passed*float64(q.Bytes))
	}
	return b
}

// lacks says why a record has to wait, nil when it need not.
func (b *bucket) lacks(size float64, topic string) *api.Error {
	wait, field, rate := time.Duration(0), "", ""
	if w := until(1, b.records, float64(b.quota.Records)); w > wait {
		wait, field, rate = w, "records_per_second", fmt.Sprintf("%d records/s", b.quota.Records)
	}
	if w := until(size, b.bytes, float64(b.quota.Bytes)); w > wait {
		wait, field, rate = w, "bytes_per_second", fmt.Sprintf("%s/s", regions.Bytes(int64(b.quota.Bytes)))
	}
	if wait == 0 {
		return nil
	}
	return &api.Error{Code: api.QuotaExceeded, Op: "publish", Topic: topic, Field: b.field + "." + field, Value: rate, RetryAfter: wait,
		Hint: "more than the quota was published at this door; nothing was stored: send it again with the same id, more slowly"}
}

// until is when n is there. What is larger than a second's worth waits for that.
func until(n, have, rate float64) time.Duration {
	if n = min(n, rate); rate == 0 || have >= n {
		return 0
	}
	return max(time.Duration((n-have)/rate*float64(time.Second)), time.Millisecond)
}
