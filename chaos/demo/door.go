package demo

import (
	"context"
	"errors"
	"time"

	"domicile/api"
	"domicile/api/client"
)

// entrance is a region's door as its producers use it: pipelined over one stream, one
// try for each record, so that the ledger has every answer as it was given.
type entrance struct {
	client    *client.Client
	publisher *client.Publisher
}

// Publish publishes one record and waits for its outcome.
func (e *entrance) Publish(ctx context.Context, r api.Record) (api.Ack, error) {
	told := make(chan answer, 1)
	e.publisher.Publish(ctx, r, func(ack api.Ack, err error) { told <- answer{ack: ack, err: err} })
	a := <-told
	return a.ack, a.err
}

func (e *entrance) close(ctx context.Context) error {
	return errors.Join(e.publisher.Close(ctx), e.client.Close())
}

// openDoors opens an entrance to every region.
func (r *run) openDoors() error {
	r.doors = map[string]*entrance{}
	for _, region := range r.lab.Regions() {
		c, err := region.Door(1)
		if err != nil {
			return err
		}
		r.doors[region.Name] = &entrance{client: c, publisher: c.NewPublisher(client.Window{})}
	}
	return nil
}

// closeDoors closes every entrance. What is still out gets its outcome.
func (r *run) closeDoors(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var errs []error
	for _, d := range r.doors {
		errs = append(errs, d.close(ctx))
	}
	r.doors = nil
	return errors.Join(errs...)
}
