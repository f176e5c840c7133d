package demo

import (
	"context"
	"fmt"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/chaos/shop"
	"domicile/regions"
)

// appearIn bounds how long a record may take to show in another region.
const appearIn = 20 * time.Second

// introduce follows two records: an EU order that is handed in elsewhere, and a
// catalogue update.
func (r *run) introduce(ctx context.Context) error {
	order := r.hand(ctx, usRegion, shop.Ware{Topic: shop.Orders, Class: "order", Residency: "eu"})
	if order.Outcome != ledger.Acked {
		return fmt.Errorf("the first EU order was not taken: %w", order.err)
	}
	r.say("An EU order is handed in at us-east. The acknowledgement comes from the disk of %s:", order.Region)
	r.say("  %s, sequence %d, %s, policy %s, after %.0f ms.", order.Log, order.Sequence, order.ack.Durability, order.ack.PolicyRevision, 1000*order.Ended.Sub(order.Started).Seconds())
	update := r.hand(ctx, idleRegion, shop.Ware{Topic: shop.Catalog, Class: "catalog", Residency: regions.GlobalResidency})
	if update.Outcome != ledger.Acked {
		return fmt.Errorf("the first catalogue update was not taken: %w", update.err)
	}
	if err := r.appears(ctx, shop.Catalog, update.ID, r.regionNames()...); err != nil {
		return err
	}
	if err := r.appears(ctx, shop.Orders, order.ID, cutRegion); err != nil {
		return err
	}
	where := "eu-west and nowhere else"
	for _, abroad := range []string{usRegion, idleRegion} {
		seen, err := r.shows(ctx, abroad, shop.Orders, order.ID)
		if err != nil {
			return err
		}
		if seen {
			r.traffic.surprise(fmt.Sprintf("a reader in %s is shown an EU order", abroad))
			where = "eu-west, and in " + abroad + " TOO"
		}
	}
	r.tell("", fmt.Sprintf("Readers see it in %s. A catalogue update from ap-south, stored in %s, is by now read in all three regions.", where, update.Region))
	r.say("")
	return nil
}

// hand publishes one record; while the answer is one that passes, again.
func (r *run) hand(ctx context.Context, region string, w shop.Ware) answer {
	p := shop.New(region, r.lab.Federation, r.tokens).Pack(w)
	a := r.traffic.publish(ctx, r.doors[region], p)
	for round := 0; round < askRounds && a.err != nil && a.Code.Retryable(); round++ {
		a = r.traffic.publish(ctx, r.doors[region], p)
	}
	return a
}

// tryWhileCut tells what a producer of an EU order is told in us-east.
func (r *run) tryWhileCut(ctx context.Context) {
	a := r.traffic.publish(ctx, r.doors[usRegion], shop.New(usRegion, r.lab.Federation, r.tokens).Pack(shop.Ware{Topic: shop.Orders, Class: "order", Residency: "eu"}))
	if a.err == nil {
		r.traffic.surprise("an EU order was acknowledged while eu-west was cut off")
		return
	}
	r.say("An EU order is handed in at us-east. Its producer is told, after %.0f ms:", 1000*a.Ended.Sub(a.Started).Seconds())
	r.tell("  ", a.err.Error())
}

// appears waits until readers are shown a record in each of the regions.
func (r *run) appears(ctx context.Context, topic, id string, where ...string) error {
	return lab.Poll(ctx, appearIn, func() error {
		for _, region := range where {
			seen, err := r.shows(ctx, region, topic, id)
			if err != nil {
				return err
			}
			if !seen {
				return fmt.Errorf("%s does not show in %s", topic, region)
			}
		}
		return nil
	})
}

// shows reads a topic in a region from the start to the end.
func (r *run) shows(ctx context.Context, region, topic, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, appearIn)
	defer cancel()
	seen := false
	err := r.doors[region].client.Read(ctx, &pb.ReadRequest{Topic: topic}, func(batch *pb.ReadResponse) error {
		for _, record := range batch.GetRecords() {
			seen = seen || record.GetRecord().GetId() == id
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("read %s in %s: %w", topic, region, err)
	}
	return seen, nil
}
