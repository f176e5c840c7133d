package wire

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/regions"
)

// Numbered is a publish on its way from one node of a region to another, or what came
// of it. The number is the sender's own.
type Numbered struct {
	Number  uint64
	Forward regions.Forward // of an outcome: empty
	Ack     api.Ack         // of an outcome without an error
	Err     error
}

// maxHandedOver bounds the records of a hand-over, and their outcomes; four times what a node
// sends at once.
const maxHandedOver = 4_096

// unmarshal reads a message that holds at most so many of one field. They are counted before
// anything is made of them: an empty one takes two bytes here and hundreds once it is read.
func unmarshal(body []byte, m proto.Message, field protoreflect.Name, most int) error {
	number := m.ProtoReflect().Descriptor().Fields().ByName(field).Number()
	for rest, n := body, 0; len(rest) > 0; {
		at, _, size := protowire.ConsumeField(rest)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if at == number {
			n++
		}
		if n > most {
			return badPeer(string(field), "they are too many")
		}
		rest = rest[size:]
	}
	if err := checkElements(body, m); err != nil {
		return err
	}
	return proto.Unmarshal(body, m)
}

// EncodeHandOver makes the bytes of a hand-over under a term of the seat. Deadlines
// travel as the time that is left at now.
func EncodeHandOver(term uint64, records []Numbered, now time.Time) ([]byte, error) {
	m := &pb.HandOver{Term: term, Records: make([]*pb.ForwardRequest, len(records))}
	for i := range records {
		m.Records[i] = ForwardToProto(records[i].Number, &records[i].Forward, now)
	}
	return proto.Marshal(m)
}

// DecodeHandOver reads a hand-over; deadlines are counted from now and at most longest
// away.
func DecodeHandOver(body []byte, now time.Time, longest time.Duration) (term uint64, records []Numbered, err error) {
	var m pb.HandOver
	if err := unmarshal(body, &m, "records", maxHandedOver); err != nil {
		return 0, nil, badPeer("body", "it is no hand-over")
	}
	records = make([]Numbered, len(m.GetRecords()))
	for i, r := range m.GetRecords() {
		if r.GetRecord() == nil {
			return 0, nil, badPeer("record", "it is absent")
		}
		records[i] = Numbered{Number: r.GetNumber(), Forward: forwardFromProto(r, api.LogID{}, now, longest)}
	}
	return m.GetTerm(), records, nil
}

// EncodeTaken makes the bytes of the answer to a hand-over: the numbers of what went on
// to another region.
func EncodeTaken(away []uint64) ([]byte, error) { return proto.Marshal(&pb.Taken{Away: away}) }

// DecodeTaken reads the answer to a hand-over.
func DecodeTaken(body []byte) (away []uint64, err error) {
	var m pb.Taken
	if err := proto.Unmarshal(body, &m); err != nil {
		return nil, badPeer("body", "it does not answer a hand-over")
	}
	return m.GetAway(), nil
}

// EncodeOutcomes makes the bytes of outcomes.
func EncodeOutcomes(outcomes []Numbered) ([]byte, error) {
	m := &pb.Outcomes{Outcomes: make([]*pb.ForwardResponse, len(outcomes))}
	for i, o := range outcomes {
		r := &pb.ForwardResponse{Number: o.Number}
		if o.Err != nil {
			r.Result = &pb.ForwardResponse_Error{Error: StatusFromError(o.Err)}
		} else {
			r.Result = &pb.ForwardResponse_Ack{Ack: AckToProto(o.Ack)}
		}
		m.Outcomes[i] = r
	}
	return proto.Marshal(m)
}

// DecodeOutcomes reads outcomes. One that holds neither an ack nor an error is unknown.
func DecodeOutcomes(body []byte) ([]Numbered, error) {
	var m pb.Outcomes
	if err := unmarshal(body, &m, "outcomes", maxHandedOver); err != nil {
		return nil, badPeer("body", "it holds no outcomes")
	}
	outcomes := make([]Numbered, len(m.GetOutcomes()))
	for i, r := range m.GetOutcomes() {
		outcomes[i] = Numbered{Number: r.GetNumber()}
		if a := r.GetAck(); a != nil {
			if outcomes[i].Ack, outcomes[i].Err = PeerAck(a); outcomes[i].Err == nil {
				continue
			}
			outcomes[i].Err = nil // nobody knows, as below
		} else {
			outcomes[i].Err = PeerStatus(r.GetError())
		}
		if outcomes[i].Err == nil {
			outcomes[i].Err = &api.Error{Code: api.OutcomeUnknown, Op: "publish", Hint: "send it again with the same id"}
		}
	}
	return outcomes, nil
}

// ReadOver asks the holder of the region's seat for one batch of a read.
type ReadOver struct {
	Term      uint64 // of the seat
	Request   *pb.ReadRequest
	Principal regions.Principal
	Wait      bool // until something is there, at most until a batch is due
}

// EncodeReadOver makes its bytes.
func EncodeReadOver(r *ReadOver) ([]byte, error) {
	return proto.Marshal(&pb.ReadOver{Term: r.Term, Request: r.Request, Principal: principalToProto(r.Principal), Wait: r.Wait})
}

// DecodeReadOver reads it.
func DecodeReadOver(body []byte) (*ReadOver, error) {
	var m pb.ReadOver
	if err := proto.Unmarshal(body, &m); err != nil {
		return nil, badPeer("body", "it asks for no batch")
	}
	if m.GetRequest() == nil {
		return nil, badPeer("request", "it is absent")
	}
	return &ReadOver{Term: m.GetTerm(), Request: m.GetRequest(), Principal: principalFromProto(m.GetPrincipal()), Wait: m.GetWait()}, nil
}

// EncodeReadPart makes the bytes of the answer. No batch: there is more than a waiting
// call brings.
func EncodeReadPart(batch *pb.ReadResponse, ended bool) ([]byte, error) {
	return proto.Marshal(&pb.ReadPart{Batch: batch, Ended: ended})
}

// DecodeReadPart reads the answer; batch is nil when the asker is to ask without waiting.
func DecodeReadPart(body []byte) (batch *pb.ReadResponse, ended bool, err error) {
	var m pb.ReadPart
	if err := proto.Unmarshal(body, &m); err != nil {
		return nil, false, badPeer("body", "it holds no batch")
	}
	return m.GetBatch(), m.GetEnded(), nil
}

// EncodeAsk makes the bytes of an operator's question to another node.
func EncodeAsk(q *pb.AskOver) ([]byte, error) { return proto.Marshal(q) }

// DecodeAsk reads it.
func DecodeAsk(body []byte) (*pb.AskOver, error) {
	var m pb.AskOver
	if err := proto.Unmarshal(body, &m); err != nil {
		return nil, badPeer("body", "it asks nothing")
	}
	return &m, nil
}

// EncodeAnswer makes the bytes of the answer.
func EncodeAnswer(a *pb.AskAnswer) ([]byte, error) { return proto.Marshal(a) }

// DecodeAnswer reads it.
func DecodeAnswer(body []byte) (*pb.AskAnswer, error) {
	var m pb.AskAnswer
	if err := proto.Unmarshal(body, &m); err != nil {
		return nil, badPeer("body", "it does not answer a question")
	}
	return &m, nil
}

// EncodePolicyAsk makes the bytes of what a node says and asks of signed policies.
func EncodePolicyAsk(q *pb.PolicyAsk) ([]byte, error) { return proto.Marshal(q) }

// DecodePolicyAsk reads it.
func DecodePolicyAsk(body []byte) (*pb.PolicyAsk, error) {
	var m pb.PolicyAsk
	if err := proto.Unmarshal(body, &m); err != nil || m.GetWord() == nil {
		return nil, badPeer("body", "it says nothing of a policy")
	}
	return &m, nil
}

// EncodePolicyTold makes the bytes of the answer.
func EncodePolicyTold(a *pb.PolicyTold) ([]byte, error) { return proto.Marshal(a) }

// DecodePolicyTold reads it.
func DecodePolicyTold(body []byte) (*pb.PolicyTold, error) {
	var m pb.PolicyTold
	if err := proto.Unmarshal(body, &m); err != nil || m.GetWord() == nil {
		return nil, badPeer("body", "it says nothing of a policy")
	}
	return &m, nil
}
