package gateway

import (
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
)

// SendAgain judges a batch that another node of this region read and judged, under this
// node's own policy, and sends what both let through. What is kept is counted in kept,
// which lives as long as the reader's stream, and in the batch's states. A log whose
// home the batch does not name is kept whole.
func SendAgain(gate *policy.Gate, pace regions.Pace, b Batch, who regions.Principal, kept map[api.LogID]uint64, send func(Batch) error) error {
	homes := make(map[api.LogID]string, len(b.Logs))
	for i := range b.Logs {
		homes[b.Logs[i].Lag.Log] = b.Logs[i].Lag.Home
	}
	for {
		pass := gate.Enter()
		records, withheld, err := judgeAgain(pass, b.Records, who, homes)
		if pass.Stale() {
			pass.Leave()
			continue
		}
		if err != nil {
			pass.Leave()
			return err
		}
		for log, n := range withheld {
			kept[log] += n
		}
		for i := range b.Logs {
			b.Logs[i].Unreadable += kept[b.Logs[i].Lag.Log]
		}
		b.Records = records
		defer pass.Leave()
		limit := time.AfterFunc(pace.Of(holdWithin), pass.Leave)
		defer limit.Stop()
		return send(b)
	}
}

func judgeAgain(pass *policy.Pass, records []ReadRecord, who regions.Principal, homes map[api.LogID]string) (let []ReadRecord, kept map[api.LogID]uint64, err error) {
	kept = map[api.LogID]uint64{}
	for i := range records {
		r := &records[i]
		home, named := homes[r.Log]
		if !named {
			kept[r.Log]++
			continue
		}
		switch err := pass.Consume(&r.Item.Record, who, home); api.CodeOf(err) {
		case "":
			let = append(let, *r)
		case api.PolicyUnavailable, api.PolicyError:
			return nil, nil, err
		default:
			kept[r.Log]++
		}
	}
	return let, kept, nil
}
