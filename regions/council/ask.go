package council

import (
	"context"
	"net"
	"time"

	"domicile/api"
)

// open connects to a region's council for a purpose. noted hears whose voter answered.
func open(ctx context.Context, lines Lines, region string, h hello, noted func(string, hello)) (net.Conn, error) {
	conn, err := lines.Dial(ctx, region)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(greetTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = conn.SetDeadline(deadline) // fails at the next write, if it fails
	var answer hello
	err = writeFrame(conn, h, maxHello)
	if err == nil {
		err = readFrame(conn, &answer, maxHello)
	}
	if err == nil {
		noted(region, answer)
		if err = answer.check(); err == nil {
			err = answer.Refused.err()
		}
	}
	if err != nil {
		_ = conn.Close() // the first error says more
		return nil, err
	}
	return conn, nil
}

// ask sends one request to a region's voter. sent reports that it may have been taken in,
// whatever the error is.
func ask(ctx context.Context, lines Lines, region string, h hello, noted func(string, hello), q request) (r reply, sent bool, err error) {
	h.For = asking
	conn, err := open(ctx, lines, region, h, noted)
	if err != nil {
		return reply{}, false, err
	}
	defer func() { _ = conn.Close() }() // answered, or given up
	deadline := time.Now().Add(askTimeout)
	if d, ok := ctx.Deadline(); ok {
		deadline = d
	}
	q.Left = time.Until(deadline)
	_ = conn.SetDeadline(deadline) // fails at the next write, if it fails
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if err := writeFrame(conn, q, maxRequest); err != nil {
		return reply{}, true, err
	}
	if err := readFrame(conn, &r, maxAnswer); err != nil {
		return reply{}, true, err
	}
	err = r.Fault.err()
	return r, api.CodeOf(err) == api.OutcomeUnknown, err
}

// definite reports that an error is the authority's own word, not a state that passes.
func definite(err error) bool {
	switch api.CodeOf(err) {
	case api.OutcomeUnknown, api.NotReady, api.AuthorityUnreachable, api.Overloaded, api.ShuttingDown:
		return false
	}
	return true
}

// again tries until something definite is said or ctx ends. try reports whether the
// authority may have taken the command; the same command is then still safe to send.
func again(ctx context.Context, every time.Duration, try func() (sent bool, err error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	perhaps := false
	for {
		sent, err := try()
		if err == nil || definite(err) {
			return err
		}
		perhaps = perhaps || sent
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if perhaps {
				return &api.Error{Code: api.OutcomeUnknown, Op: "place log", Err: err,
					Hint: "send the same command with the same id again: it is done once, and its answer is found by the id"}
			}
			return &api.Error{Code: api.AuthorityUnreachable, Op: "place log", Err: err, RetryAfter: every,
				Hint: "fewer voters than a majority answer, or none; nothing was changed"}
		}
	}
}

// Word is what a region's voter says of itself.
type Word struct {
	Authority  string
	Generation uint32 // 0: it knows of nothing that was decided
	Led        bool   // it hears a leader
}

// GreetAll asks the voters of regions who they are, all at once, for a few seconds at most.
// silent says of each that gave no answer why not.
func GreetAll(ctx context.Context, lines Lines, regions []string) (words map[string]Word, silent map[string]error) {
	type answer struct {
		region string
		word   Word
		err    error
	}
	answers := make(chan answer, len(regions))
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	for _, region := range regions {
		go func() {
			a := answer{region: region}
			conn, err := open(ctx, lines, region, hello{For: greet}, func(_ string, h hello) { a.word = Word{h.Authority, h.Generation, h.Led} })
			if a.err = err; err == nil {
				_ = conn.Close() // greeted
			}
			answers <- a
		}()
	}
	words, silent = map[string]Word{}, map[string]error{}
	for range regions {
		if a := <-answers; a.err != nil {
			silent[a.region] = a.err
		} else {
			words[a.region] = a.word
		}
	}
	return words, silent
}
