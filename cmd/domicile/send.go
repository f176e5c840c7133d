package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"domicile/api"
	"domicile/api/client"
)

// answerTime is what a try may take beyond the patience with retries.
const answerTime = 20 * time.Second

// sendAll publishes every line and returns when each has its outcome. The error is
// about the input alone: what became of the lines is in the tally.
func (p publishFlags) sendAll(ctx context.Context, lines *lineReader, defaults api.Record, c *client.Client, t *tally) error {
	// Room is given by the window below alone: the publisher's own is never full.
	publisher := c.NewPublisher(client.Window{Records: 2 * windowRecords, Bytes: 4 * windowBytes})
	err := p.sendLines(ctx, lines, defaults, publisher, t)
	wait := p.patience + answerTime
	if ctx.Err() != nil {
		wait = 3 * time.Second // the user is waiting for the prompt
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	// What is open when the time is over gets its outcome all the same: unknown.
	_ = publisher.Close(closing)
	return err
}

func (p publishFlags) sendLines(ctx context.Context, lines *lineReader, defaults api.Record, publisher *client.Publisher, t *tally) error {
	room := newWindow()
	for {
		line, number, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errLongLine):
			t.done(number, "", api.Ack{}, err)
			continue
		case errors.Is(err, errInterrupted):
			return interruptedAt(number)
		case err != nil:
			return fmt.Errorf("read line %d: %w", number, err)
		}
		record, err := p.record(line, number, defaults)
		if err != nil {
			t.done(number, record.ID, api.Ack{}, err)
			continue
		}
		if err := room.enter(ctx, &record); err != nil || ctx.Err() != nil {
			return interruptedAt(number)
		}
		size := record.Size()
		// The deadline bounds the tries; an interrupt takes no record back.
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.patience)
		publisher.Publish(one, record, func(ack api.Ack, err error) {
			room.leave(size)
			t.done(number, record.ID, ack, err)
		})
		cancel()
		t.sent(lines.read)
	}
}

func interruptedAt(number uint64) error {
	return fmt.Errorf("interrupted before line %d; publish the same file again to go on", number)
}

// record is the record of one line: what it says, completed by the flags, and an id
// in any case.
func (p publishFlags) record(line []byte, number uint64, defaults api.Record) (api.Record, error) {
	r := api.Record{Body: line}
	if !p.raw {
		var err error
		if r, err = parseLine(line); err != nil {
			return r, err
		}
	}
	r.Topic = defaults.Topic
	if r.Key == "" {
		r.Key = defaults.Key
	}
	for _, d := range defaults.Tags {
		if !slices.ContainsFunc(r.Tags, func(t api.Tag) bool { return t.Name == d.Name }) {
			r.Tags = append(r.Tags, d)
		}
	}
	for _, d := range defaults.Headers {
		if !slices.ContainsFunc(r.Headers, func(h api.Header) bool { return h.Name == d.Name }) {
			r.Headers = append(r.Headers, d)
		}
	}
	if r.ID == "" {
		r.ID = lineID(number, line)
	}
	return r, nil
}
