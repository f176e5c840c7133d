package council

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"domicile/api"
	"domicile/regions"
)

// Frames are a length and a JSON value.
const (
	maxHello   = 32 << 10  // with the proof of a later founding
	maxRequest = 512 << 10 // a command, in base 64, and what is around it
	maxAnswer  = 64 << 20  // a whole state
	maxFault   = 512       // of one text
	maxObjects = 1 << 20   // of a frame: as many as a state of its largest size has
)

// What a correct node never sends, unlike a connection that ends.
var (
	errTooLarge  = errors.New("a frame is too large")
	errMalformed = errors.New("a frame can't be read")
)

// misread counts a frame of a peer that could not be read.
func (v *Voter) misread(peer string, err error) {
	switch {
	case errors.Is(err, errTooLarge):
		v.cfg.Refused.Add(peer, regions.LaneAuthority, regions.TooLarge)
	case errors.Is(err, errMalformed):
		v.cfg.Refused.Add(peer, regions.LaneAuthority, regions.Malformed)
	}
}

func writeFrame(w io.Writer, value any, most int) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if len(text) > most {
		return fmt.Errorf("a frame of %d bytes, at most %d", len(text), most)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

func readFrame(r io.Reader, into any, most int) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if int64(size) > int64(most) {
		return fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, size, most)
	}
	// Read as it comes, so that a length alone takes no memory.
	text, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err != nil {
		return err
	}
	if len(text) < int(size) {
		return io.ErrUnexpectedEOF
	}
	if objects, values := counted(text); objects > min(64+most/64, maxObjects) || values > 64+most/8 {
		return fmt.Errorf("%w: %d objects, %d values", errTooLarge, objects, values)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return nil
}

// counted is how many objects, and values in all, a JSON text holds at the most: an empty one
// takes three bytes there and hundreds once it is read.
func counted(text []byte) (objects, values int) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{':
			objects++
			values++
		case '[', ',':
			values++
		}
	}
	return objects, values
}

// purpose is what a connection is for.
type purpose string

const (
	voting purpose = "vote"   // the voters' own protocol
	greet  purpose = "greet"  // nothing but the greeting: who belongs to which founding
	asking purpose = "ask"    // one request, one answer
	follow purpose = "follow" // the state, and then what changes
)

// hello opens every connection, and answers it. Whoever belongs to another founding is
// told apart here, before one byte of the voters' protocol: two foundings that mixed
// their logs would overwrite each other.
type hello struct {
	For        purpose `json:",omitempty"`
	Authority  string  `json:",omitempty"`
	Generation uint32  `json:",omitempty"`
	After      uint64  `json:",omitempty"` // the version that whoever says it has
	Born       string  `json:",omitempty"` // of a voter that joined: its folder's name
	Roll       string  `json:",omitempty"` // who votes in the founding, by the file that the voter was made with
	Led        bool    `json:",omitempty"` // it hears a leader
	Reads      byte    `json:",omitempty"` // the latest version of commands that a voter reads; 0: version 1
	Refused    *fault  `json:",omitempty"` // in an answer

	Founding *founding `json:",omitempty"` // proves an authority that was founded anew
}

// fault is an error on its way between regions.
type fault struct {
	Code   api.Code
	Region string `json:",omitempty"`
	Field  string `json:",omitempty"`
	Value  string `json:",omitempty"`
	Hint   string `json:",omitempty"`
}

func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	var e *api.Error
	if !errors.As(err, &e) {
		e = &api.Error{Code: api.OutcomeUnknown, Hint: err.Error()}
	}
	return &fault{e.Code, e.Region, e.Field, e.Value, e.Hint}
}

func (f *fault) err() error {
	if f == nil {
		return nil
	}
	text := func(s string) string { return api.Printable(s, maxFault) } // it is a peer's
	return &api.Error{Code: api.Code(text(string(f.Code))), Op: "place log", Region: text(f.Region),
		Field: text(f.Field), Value: text(f.Value), Hint: text(f.Hint)}
}
