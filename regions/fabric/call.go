package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"domicile/api"
)

// The bounds of calls between a region's nodes: in flight to one sibling, and taken from
// one sibling.
const (
	MaxCallBody  = 2 << 20  // bytes of one body, there or back
	MaxCalls     = 4096     // to one node
	MaxCallBytes = 32 << 20 // their bodies
)

const (
	callOver     = 64 << 10 // of a message, beyond the body
	callLongest  = time.Minute
	callKind     = "Kind"
	callFrom     = "From"
	callTimeLeft = "Left" // nanoseconds the caller still waits
	callError    = "Error"
)

// Handler answers the calls of one kind. from is the sibling that asks. It runs on a
// goroutine of its own and has to end when ctx does. An error that is an *api.Error reaches
// the caller with its code, hint and times; any other reaches it as OUTCOME_UNKNOWN.
type Handler func(ctx context.Context, from string, body []byte) ([]byte, error)

// calls is one node's end of the calls between the region's nodes.
type calls struct {
	f *Fabric

	mu       sync.Mutex
	handlers map[string]Handler
	out, in  map[string]*load
}

// load is what is in flight with one sibling.
type load struct {
	calls int
	bytes int
}

func newCalls(f *Fabric) *calls {
	c := &calls{f: f, handlers: map[string]Handler{}, out: map[string]*load{}, in: map[string]*load{}}
	for name := range f.cfg.Cluster.Members {
		c.out[name], c.in[name] = &load{}, &load{}
	}
	return c
}

// take counts a call in, or says that there is no room.
func (c *calls) take(l *load, size int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.calls >= MaxCalls || l.bytes+size > MaxCallBytes {
		return false
	}
	l.calls++
	l.bytes += size
	return true
}

func (c *calls) give(l *load, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.calls--
	l.bytes -= size
}

func callSubject(node string) string { return "_DC." + node }

// Serve answers the siblings' calls of a kind with h, from now on. A later Serve of the
// same kind takes its place; nil ends it. On a solo region nobody calls.
func (f *Fabric) Serve(kind string, h Handler) {
	if f.calls == nil {
		return
	}
	f.calls.mu.Lock()
	defer f.calls.mu.Unlock()
	if h == nil {
		delete(f.calls.handlers, kind)
		return
	}
	f.calls.handlers[kind] = h
}

// Call asks a sibling by its node name and waits for the answer, until ctx ends. NOT_READY
// and OVERLOADED, unless the sibling's handler said so itself, mean that it was not asked;
// OUTCOME_UNKNOWN that it may have been.
func (f *Fabric) Call(ctx context.Context, node, kind string, body []byte) ([]byte, error) {
	if f.calls == nil || f.calls.out[node] == nil || node == f.cfg.Cluster.Node {
		return nil, &api.Error{Code: api.BadRequest, Op: "call node", Field: "node", Value: node, Hint: "name another node of this region"}
	}
	if len(body) > MaxCallBody {
		return nil, &api.Error{Code: api.BodyTooLarge, Op: "call node", Value: fmt.Sprintf("%d bytes", len(body)), Hint: "at most 2 MiB go from node to node"}
	}
	l := f.calls.out[node]
	if !f.calls.take(l, len(body)) {
		return nil, f.callsFull(node)
	}
	defer f.calls.give(l, len(body))
	msg := &nats.Msg{Subject: callSubject(node), Data: body, Header: nats.Header{callKind: {kind}, callFrom: {f.cfg.Cluster.Node}}}
	if deadline, ok := ctx.Deadline(); ok {
		msg.Header.Set(callTimeLeft, strconv.FormatInt(int64(time.Until(deadline)), 10))
	}
	if err := ctx.Err(); err != nil {
		return nil, f.notAsked(node, "there was no time left", err)
	}
	b, err := f.running()
	if err != nil {
		return nil, f.notAsked(node, "this node has not come into its region yet", err)
	}
	if b.talk.IsClosed() {
		return nil, f.notAsked(node, "this node is shutting down", nil)
	}
	reply, err := b.talk.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrMaxPayload):
		return nil, f.notAsked(node, "it is not reached", err)
	case err != nil:
		return nil, &api.Error{Code: api.OutcomeUnknown, Op: "call node", Region: f.cfg.Region,
			Hint: "node " + node + " did not answer before the deadline or the end of this node; retry with the same id", Err: err}
	}
	if text := reply.Header.Get(callError); text != "" {
		return nil, decodeCallError(text)
	}
	return reply.Data, nil
}

func (f *Fabric) notAsked(node, why string, err error) error {
	return &api.Error{Code: api.NotReady, Op: "call node", Region: f.cfg.Region, RetryAfter: f.cfg.Pace.Of(time.Second),
		Hint: fmt.Sprintf("node %s of this region was not asked: %s; retry with the same id", node, why), Err: err}
}

func (f *Fabric) callsFull(node string) error {
	return &api.Error{Code: api.Overloaded, Op: "call node", Region: f.cfg.Region, RetryAfter: f.cfg.Pace.Of(200 * time.Millisecond),
		Hint: fmt.Sprintf("as many calls as may be are in flight with node %s; retry with the same id", node)}
}

// serve takes the siblings' calls.
func (c *calls) serve(conn *nats.Conn) error {
	sub, err := conn.Subscribe(callSubject(c.f.cfg.Cluster.Node), c.accept)
	if err != nil {
		return err
	}
	return sub.SetPendingLimits(2*MaxCalls, 2*(MaxCallBytes+MaxCallBody))
}

func (c *calls) accept(msg *nats.Msg) {
	from := msg.Header.Get(callFrom)
	l := c.in[from]
	if l == nil {
		return
	}
	kind, size := msg.Header.Get(callKind), len(msg.Data)
	c.mu.Lock()
	h := c.handlers[kind]
	c.mu.Unlock()
	switch {
	case h == nil:
		c.answer(msg, nil, c.f.notAsked(c.f.cfg.Cluster.Node, "it does not answer "+kind+" now", nil))
		return
	case !c.take(l, size):
		c.answer(msg, nil, c.f.callsFull(c.f.cfg.Cluster.Node))
		return
	}
	if !c.f.spawn(func() {
		defer c.give(l, size)
		ctx, cancel := context.WithTimeout(c.f.ctx, timeLeft(msg, c.f.cfg.Pace.Of(callLongest)))
		defer cancel()
		body, err := h(ctx, from, msg.Data)
		if err == nil && len(body) > MaxCallBody {
			err = &api.Error{Code: api.OutcomeUnknown, Op: "call node", Hint: "the answer exceeds 2 MiB"}
		}
		c.answer(msg, body, err)
	}) {
		c.give(l, size)
		c.answer(msg, nil, shuttingDown())
	}
}

// timeLeft is how long the caller still waits, at most most.
func timeLeft(msg *nats.Msg, most time.Duration) time.Duration {
	if n, err := strconv.ParseInt(msg.Header.Get(callTimeLeft), 10, 64); err == nil {
		return min(most, time.Duration(n))
	}
	return most
}

func (c *calls) answer(msg *nats.Msg, body []byte, err error) {
	reply := &nats.Msg{Data: body}
	if err != nil {
		reply = &nats.Msg{Header: nats.Header{callError: {encodeCallError(err)}}}
	}
	if err := msg.RespondMsg(reply); err != nil && c.f.ctx.Err() == nil {
		c.f.cfg.Logger.Warn("answer to a sibling not sent", "error", err)
	}
}

// callFault is an *api.Error on its way to another node.
type callFault struct {
	Code       api.Code      `json:"code"`
	Op         string        `json:"op,omitempty"`
	Topic      string        `json:"topic,omitempty"`
	Region     string        `json:"region,omitempty"`
	Field      string        `json:"field,omitempty"`
	Value      string        `json:"value,omitempty"`
	Hint       string        `json:"hint,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	For        time.Duration `json:"for,omitempty"`
	Revision   string        `json:"revision,omitempty"`
}

func encodeCallError(err error) string {
	var e *api.Error
	if !errors.As(err, &e) {
		e = &api.Error{Code: api.OutcomeUnknown, Op: "call node", Hint: "the other node failed without a word on what it did; retry with the same id"}
	}
	b, _ := json.Marshal(callFault{e.Code, e.Op, e.Topic, e.Region, e.Field, e.Value, e.Hint, e.RetryAfter, e.For, e.Revision})
	return string(b)
}

func decodeCallError(text string) error {
	var c callFault
	if err := json.Unmarshal([]byte(text), &c); err != nil || c.Code == "" {
		return &api.Error{Code: api.OutcomeUnknown, Op: "call node", Hint: "the other node's answer is unreadable; retry with the same id", Err: err}
	}
	return &api.Error{Code: c.Code, Op: c.Op, Topic: c.Topic, Region: c.Region, Field: c.Field, Value: c.Value, Hint: c.Hint,
		RetryAfter: c.RetryAfter, For: c.For, Revision: c.Revision}
}
