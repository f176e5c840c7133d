package wire

import (
	"math"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

// RecordToProto makes the message of a record. The body is shared, not copied.
func RecordToProto(r *api.Record) *pb.Record {
	m := &pb.Record{
		Id: r.ID, Topic: r.Topic, Key: r.Key, Body: r.Body,
		Tags: TagsToProto(r.Tags), EventTimeUnixNano: TimeToProto(r.EventTime),
	}
	if len(r.Headers) > 0 {
		flat := make([]pb.Header, len(r.Headers))
		m.Headers = make([]*pb.Header, len(r.Headers))
		for i, h := range r.Headers {
			flat[i].Name, flat[i].Value = h.Name, h.Value
			m.Headers[i] = &flat[i]
		}
	}
	return m
}

// RecordFromProto reads a record. The body is shared, not copied. The tags are in
// canonical order.
func RecordFromProto(m *pb.Record) api.Record {
	r := api.Record{
		ID: m.GetId(), Topic: m.GetTopic(), Key: m.GetKey(), Body: m.GetBody(),
		Tags: TagsFromProto(m.GetTags()), EventTime: TimeFromProto(m.GetEventTimeUnixNano()),
	}
	if n := len(m.GetHeaders()); n > 0 {
		r.Headers = make([]api.Header, n)
		for i, h := range m.GetHeaders() {
			r.Headers[i] = api.Header{Name: h.GetName(), Value: h.GetValue()}
		}
	}
	r.SortTags()
	return r
}

// RetryToProto makes the message of a retry; none for a first try.
func RetryToProto(r api.Retry) *pb.Retry {
	if !r.Again {
		return nil
	}
	return &pb.Retry{Log: LogToProto(r.Log)}
}

// RetryFromProto reads a retry; an absent one is a first try.
func RetryFromProto(m *pb.Retry) api.Retry {
	return api.Retry{Again: m != nil, Log: LogFromProto(m.GetLog())}
}

// TagsToProto makes the messages of tags.
func TagsToProto(tags []api.Tag) []*pb.Tag {
	if len(tags) == 0 {
		return nil
	}
	flat := make([]pb.Tag, len(tags))
	out := make([]*pb.Tag, len(tags))
	for i, t := range tags {
		flat[i].Name, flat[i].Value = t.Name, t.Value
		out[i] = &flat[i]
	}
	return out
}

// TagsFromProto reads tags, in the order they came in.
func TagsFromProto(tags []*pb.Tag) []api.Tag {
	if len(tags) == 0 {
		return nil
	}
	out := make([]api.Tag, len(tags))
	for i, t := range tags {
		out[i] = api.Tag{Name: t.GetName(), Value: t.GetValue()}
	}
	return out
}

var (
	firstNano = time.Unix(0, math.MinInt64)
	lastNano  = time.Unix(0, math.MaxInt64)
)

// TimeFits reports whether a time survives the wire: it is the zero time, or lies
// in the years 1678 to 2261 and is not the Unix epoch itself, which means "none".
func TimeFits(t time.Time) bool {
	return t.IsZero() || t.After(firstNano) && t.Before(lastNano) && t.UnixNano() != 0
}

// TimeToProto is nanoseconds since 1970 UTC, 0 for the zero time. Times outside the
// range of TimeFits saturate.
func TimeToProto(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Before(firstNano):
		return math.MinInt64
	case t.After(lastNano):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// TimeFromProto reads nanoseconds since 1970 UTC; 0 is the zero time.
func TimeFromProto(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
