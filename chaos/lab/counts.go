package lab

import (
	"context"
	"fmt"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/ledger"
)

// PublishTotal is the counter of what came of publishes, by topic, home and code.
const PublishTotal = "domicile_publish_total"

// NewCounts is what a region has counted before any of its nodes was asked.
func NewCounts(region string) ledger.Counts {
	return ledger.Counts{Region: region, Asked: map[string]uint64{}, Told: map[string]uint64{}}
}

// AddCounts adds what one node says it has counted: the questions to its policy, over its
// operators' door, and the outcomes of publishes, from its metrics page. A node that was
// started anew while it was asked is an error, and so is one that ran out of room for
// questions: what it says is not all then.
func AddCounts(ctx context.Context, c *ledger.Counts, desk *client.Client, metrics func(context.Context) ([]Metric, error)) error {
	before, err := desk.Status(ctx)
	if err != nil {
		return err
	}
	uncounted := uint64(0)
	err = desk.Traffic(ctx, &pb.TrafficRequest{}, func(m *pb.TrafficResponse) error {
		uncounted += m.GetUncounted()
		for _, a := range m.GetAsked() {
			c.Asked[a.GetQuestion()] += a.GetCount()
		}
		return nil
	})
	if err != nil {
		return err
	}
	page, err := metrics(ctx)
	if err != nil {
		return err
	}
	for _, m := range page {
		if m.Name == PublishTotal {
			c.Told[ledger.Told(m.Labels["topic"], api.Code(m.Labels["code"]))] += uint64(m.Value)
		}
	}
	after, err := desk.Status(ctx)
	switch {
	case err != nil:
		return err
	case before.GetStartedUnixNano() != after.GetStartedUnixNano():
		return fmt.Errorf("a node of %s was started anew while it was asked", c.Region)
	case uncounted > 0:
		return fmt.Errorf("a node of %s had no room for %d questions", c.Region, uncounted)
	}
	c.Nodes++
	c.Run += fmt.Sprintf("%d ", after.GetStartedUnixNano())
	return nil
}
