package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"domicile/chaos/lab"
	"domicile/chaos/shop"
	"domicile/regions/link"
)

// trade lets producers publish while the region is cut off in the middle of it.
func (r *run) trade(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.watch = &watch{run: r, series: map[copyOf][]sample{}}
	w := r.watch
	var work sync.WaitGroup
	defer work.Wait()
	producing, stopProducing := context.WithCancel(ctx)
	defer stopProducing()
	for _, name := range r.regionNames() {
		s := shop.New(name, r.lab.Federation, r.tokens)
		work.Go(func() { r.traffic.produce(producing, s, r.doors[name], pace(r.o.Rate, len(r.doors))) })
	}
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	work.Go(func() { w.loop(watching) })
	if err := r.acts(ctx, w); err != nil {
		return err
	}
	stopProducing()
	stopWatching()
	work.Wait()
	if w.failed != nil {
		return fmt.Errorf("read the metrics: %w", w.failed)
	}
	return nil
}

// acts are the parts of the story: trade, cut, heal. A fifth, a half, the rest.
func (r *run) acts(ctx context.Context, w *watch) error {
	calm, cut := r.o.For/5, r.o.For/2
	r.say("Now producers publish in all three regions. A region's lag is that of its oldest copy.")
	w.enter("calm")
	if err := lab.Pass(ctx, calm); err != nil {
		return err
	}
	r.say("Now eu-west is cut off: nothing gets in or out, and nobody is told. ap-south rests.")
	w.enter("cut off")
	if err := r.rest(ctx); err != nil {
		return err
	}
	if err := r.lab.Cut(cutRegion, link.BlackHole, cut+time.Minute); err != nil {
		return err
	}
	if err := w.measure(ctx, cut); err != nil {
		return err
	}
	r.lab.Heal()
	r.traffic.rest("")
	r.say("The cut heals.")
	w.enter("healed")
	return lab.Pass(ctx, r.o.For-calm-cut)
}

// rest lets the idle region come to rest: nothing more for its own logs is under way.
func (r *run) rest(ctx context.Context) error {
	r.traffic.rest(idleRegion)
	return lab.Poll(ctx, 2*r.traffic.wait, func() error {
		if n := r.traffic.local.Load(); n != 0 {
			return fmt.Errorf("%d records for the logs of %s are under way", n, idleRegion)
		}
		return nil
	})
}
