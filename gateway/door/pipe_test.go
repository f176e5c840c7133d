package door

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"domicile/api"
	"domicile/gateway"
	"domicile/regions"
)

// desk hands records over and keeps them until the test settles them.
type desk struct {
	home string // where the next record goes; "" refuses it at once
	held []func(api.Ack, error)
}

func (d *desk) Publish(_ context.Context, r api.Record, _ regions.Principal, away func(), done func(api.Ack, error)) {
	if d.home == "" {
		done(api.Ack{}, &api.Error{Code: api.Overloaded})
		return
	}
	d.held = append(d.held, done)
	if d.home != "here" {
		away()
	}
}

func (d *desk) Read(context.Context, gateway.ReadRequest, regions.Principal, func(gateway.Batch) error) error {
	return nil
}

// TestRT3_CreditIsNeitherMadeNorLost: whatever comes in, is handed over and settled in
// whatever order, credit that the client has, is owed, or is held by records of this
// region adds up to what a stream may have; and every record has one outcome.
func TestRT3_CreditIsNeitherMadeNorLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &desk{}
		p := newPipe(d)
		type held struct {
			size  int
			local bool
		}
		var waiting []held
		in, out := uint64(0), uint64(0)
		check := func() {
			records, bytes := p.left.Records+p.owed.Records, p.left.Bytes+p.owed.Bytes
			for _, h := range waiting {
				if h.local {
					records++
					bytes += uint64(h.size)
				}
			}
			if records != StreamRecords || bytes != StreamBytes {
				t.Fatalf("credit is %d records and %d bytes, want %d and %d", records, bytes, StreamRecords, StreamBytes)
			}
			if p.open != len(waiting) {
				t.Fatalf("%d open, want %d", p.open, len(waiting))
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"record": func(t *rapid.T) {
				r := api.Record{Topic: "orders", Body: make([]byte, rapid.SampledFrom([]int{1, 100, 1 << 20}).Draw(t, "body"))}
				d.home = rapid.SampledFrom([]string{"here", "there", ""}).Draw(t, "home")
				if p.spend(&r) != nil {
					if p.left.Records > 0 && p.left.Bytes >= uint64(r.Size()) {
						t.Fatal("refused within the credit")
					}
					return
				}
				in++
				p.publish(context.Background(), in, r, regions.Principal{})
				if d.home != "" {
					waiting = append(waiting, held{r.Size(), d.home == "here"})
				}
			},
			"outcome": func(t *rapid.T) {
				if len(waiting) == 0 {
					t.Skip("nothing is held")
				}
				i := rapid.IntRange(0, len(waiting)-1).Draw(t, "which")
				done := d.held[i]
				d.held, waiting = append(d.held[:i:i], d.held[i+1:]...), append(waiting[:i:i], waiting[i+1:]...)
				done(api.Ack{ID: "x"}, nil)
			},
			"message": func(t *rapid.T) {
				if m, _, err := p.next(rapid.Bool().Draw(t, "stopping")); err != nil {
					t.Fatal(err)
				} else if m != nil {
					out += uint64(len(m.GetOutcomes()))
				}
			},
			"": func(*rapid.T) { check() },
		})
		for len(d.held) > 0 {
			d.held[0](api.Ack{}, nil)
			d.held, waiting = d.held[1:], waiting[1:]
		}
		p.ended = true
		for {
			m, finished, err := p.next(false)
			if err != nil {
				t.Fatal(err)
			}
			out += uint64(len(m.GetOutcomes()))
			if finished {
				break
			}
		}
		check()
		if in != out {
			t.Fatalf("%d records, %d outcomes", in, out)
		}
	})
}
