package door

import (
	"context"
	"fmt"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions"
)

// Quotas are the bounds of what is published in a region, per topic and per entry of
// principals, in front of everything else: a record that is over them costs no policy,
// log or link. What comes in counts, whatever becomes of it: a record that policy refuses
// and one that is sent again took a door's time as well. A bucket holds one second's
// worth. Safe for concurrent use.
type Quotas struct {
	federation *regions.Federation
	entries    []PrincipalRule
	clock      regions.Clock

	mu     sync.Mutex
	topics map[string]*bucket
	rules  map[int]*bucket
}

// NewQuotas makes the quotas of one node; those of the topics follow the manifest.
func NewQuotas(f *regions.Federation, rules []PrincipalRule, clock regions.Clock) *Quotas {
	return &Quotas{federation: f, entries: rules, clock: clock, topics: map[string]*bucket{}, rules: map[int]*bucket{}}
}

// Take counts a record of a principal, or refuses it with QuotaExceeded and when to try
// again, counting nothing. In a region of three the holder of the seat asks it for what
// other nodes hand over, so that a quota is the region's and not each door's.
func (q *Quotas) Take(r *api.Record, who regions.Principal) error {
	rule, quota := -1, regions.Quota{}
	if i := ruleFor(q.entries, who.Name); i >= 0 {
		rule, quota = i, q.entries[i].Quota
	}
	if err := q.take(r, rule, quota); err != nil {
		return err
	}
	return nil
}

// take takes the record out of all buckets that are for it, or out of none.
func (q *Quotas) take(r *api.Record, rule int, quota regions.Quota) *api.Error {
	topic, known := q.federation.Topic(r.Topic)
	limited := known && !topic.Quota.None()
	if !limited && quota.None() {
		return nil
	}
	now, size := q.clock.Now(), float64(r.Size())
	q.mu.Lock()
	defer q.mu.Unlock()
	var mine []*bucket
	if limited {
		mine = append(mine, bucketOf(q.topics, r.Topic, topic.Quota, "topics."+r.Topic+".quota", now))
	}
	if !quota.None() {
		mine = append(mine, bucketOf(q.rules, rule, quota, fmt.Sprintf("principals[%d].quota", rule), now))
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

// metered is a gateway behind quotas.
type metered struct {
	Gateway
	quotas  *Quotas
	refused func(topic string, code api.Code)
}

// Publish hands a record on, or refuses it with QuotaExceeded and when to try again.
func (m *metered) Publish(ctx context.Context, r api.Record, who regions.Principal, away func(), done func(api.Ack, error)) {
	rule, quota := -1, regions.Quota{}
	if c, ok := ctx.Value(callerKey{}).(*caller); ok {
		rule, quota = c.rule, c.quota
	}
	if err := m.quotas.take(&r, rule, quota); err != nil {
		topic := ""
		if _, known := m.quotas.federation.Topic(r.Topic); known {
			topic = r.Topic
		}
		if m.refused != nil {
			m.refused(topic, err.Code)
		}
		done(api.Ack{}, err)
		return
	}
	m.Gateway.Publish(ctx, r, who, away, done)
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
		Hint: "more than the quota was published in this region; nothing was stored: send it again with the same id, more slowly"}
}

// until is when n is there. What is larger than a second's worth waits for that.
func until(n, have, rate float64) time.Duration {
	if n = min(n, rate); rate == 0 || have >= n {
		return 0
	}
	return max(time.Duration((n-have)/rate*float64(time.Second)), time.Millisecond)
}
