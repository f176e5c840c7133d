package council

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	"github.com/hashicorp/raft"

	"domicile/api"
	"domicile/regions/placement"
)

func FuzzReadFrame(f *testing.F) {
	var good bytes.Buffer
	if err := writeFrame(&good, hello{For: asking, Authority: "A", Generation: 1}, maxHello); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var h hello
		if err := readFrame(bytes.NewReader(data), &h, maxHello); err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeFrame(&again, h, maxHello); err != nil {
			t.Fatal(err)
		}
		var same hello
		if err := readFrame(&again, &same, maxHello); err != nil || same.For != h.For || same.After != h.After {
			t.Fatalf("%+v %+v %v", h, same, err)
		}
	})
}

func TestR14e_FramesAreBounded(t *testing.T) {
	if err := writeFrame(&bytes.Buffer{}, bytes.Repeat([]byte("x"), maxHello), maxHello); err == nil {
		t.Fatal("a frame beyond the bound was written")
	}
	var h hello
	if err := readFrame(bytes.NewReader([]byte{0, 1, 0, 0, '{'}), &h, maxHello); err == nil {
		t.Fatal("a frame beyond the bound was read")
	}
}

// Whatever is said to be who votes, the library's panics end nothing.
func FuzzVoters(f *testing.F) {
	good := raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "eu-west", Address: "eu-west"}}})
	f.Add(good)
	f.Add([]byte{0xc1})
	f.Add([]byte("\x81\xa7Servers\x93\xc0\xc0\xc0"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if checkVoters(data) == nil {
			_ = raft.DecodeConfiguration(data) // as the library does, where nobody catches it
		}
	})
}

// A thousand frames at random and a thousand that are right but for some bytes, as each kind
// of frame: read or refused.
func TestFA7_AThousandFrames(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 0x41))
	for _, said := range []any{hello{For: asking, Authority: "A", Refused: &fault{Code: "X"}}, request{Renew: "eu-west",
		Change: &VoterChange{}}, reply{Voters: []string{"a"}}, placement.Delta{Voters: []string{"a"}}} {
		var whole bytes.Buffer
		if err := writeFrame(&whole, said, maxRequest); err != nil {
			t.Fatal(err)
		}
		for i := range 2000 {
			b := bytes.Clone(whole.Bytes())
			if i%2 == 0 {
				b = binary.BigEndian.AppendUint32(nil, uint32(random.IntN(300)))
				b = append(b, make([]byte, random.IntN(300))...)
			}
			for range 1 + len(b)/8 {
				if at := random.IntN(len(b)); at > 3 {
					b[at] = byte(random.Uint32())
				}
			}
			into := reflect.New(reflect.TypeOf(said))
			_ = readFrame(bytes.NewReader(b), into.Interface(), maxRequest)
		}
	}
	bomb := append(binary.BigEndian.AppendUint32(nil, uint32(12+3<<22)), append(append([]byte(`{"Logs":[`),
		bytes.Repeat([]byte("{},"), 1<<22)...), `{}]}`[:3]...)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var d placement.Delta
	err := readFrame(bytes.NewReader(bomb), &d, maxAnswer)
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; !errors.Is(err, errTooLarge) || took > 128 {
		t.Errorf("a state of 4 million empty logs: %v, with %d MiB", err, took)
	}
	if err := (&fault{Code: "X\x1b[2J", Hint: "\x1b[2J", Region: "\u202e"}).err(); api.Printable(err.Error(), 1<<12) != err.Error() {
		t.Errorf("%q", err)
	}
}
