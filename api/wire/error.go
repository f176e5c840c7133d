package wire

import (
	"errors"
	"strings"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

// grpcCodes is the nearest gRPC code, for clients that know nothing of ours. Codes
// that are not listed follow from the action, see grpcCode.
var grpcCodes = map[api.Code]codes.Code{
	api.UnknownTopic:     codes.NotFound,
	api.IDReused:         codes.AlreadyExists,
	api.PositionExpired:  codes.OutOfRange,
	api.NotInThisVersion: codes.Unimplemented,
	api.ResidencyDenied:  codes.PermissionDenied,
	api.TransitDenied:    codes.PermissionDenied,
	api.ReadDenied:       codes.PermissionDenied,
	api.PermissionDenied: codes.PermissionDenied,
	api.Overloaded:       codes.ResourceExhausted,
	api.StorageFull:      codes.ResourceExhausted,
	api.OutcomeUnknown:   codes.Unknown,
}

func grpcCode(c api.Code) codes.Code {
	if g, ok := grpcCodes[c]; ok {
		return g
	}
	if !c.Known() {
		return codes.Unknown
	}
	switch c.Action() {
	case api.ActionRetry:
		return codes.Unavailable
	case api.ActionFix:
		return codes.InvalidArgument
	}
	return codes.FailedPrecondition
}

const causeMark = " · cause: "

// plainText is the message of a status without its cause: what a client that knows
// nothing of our detail can show to a person.
func plainText(e *api.Error) string {
	if e.Hint == "" {
		return string(e.Code)
	}
	return string(e.Code) + ": " + e.Hint
}

// StatusFromError makes the status of an error, nil of nil. An error that is not
// ours becomes OUTCOME_UNKNOWN: nothing else can be said of it.
func StatusFromError(err error) *statuspb.Status {
	if err == nil {
		return nil
	}
	var e *api.Error
	if !errors.As(err, &e) {
		e = &api.Error{Code: api.OutcomeUnknown, Err: err}
	}
	detail, packErr := anypb.New(&pb.ErrorDetail{
		Code: clean(string(e.Code)), Stored: string(e.Code.Stored()), Action: string(e.Code.Action()),
		Op: clean(e.Op), Topic: clean(e.Topic), Region: clean(e.Region), Field: clean(e.Field), Value: clean(e.Value),
		Hint: clean(e.Hint), RetryAfterNano: int64(e.RetryAfter), ForNano: int64(e.For), PolicyRevision: clean(e.Revision),
		Log: LogToProto(e.Log), Reason: clean(e.Reason), Rule: clean(e.Rule), Drill: clean(e.Drill),
	})
	text := plainText(e)
	if e.Err != nil {
		text += causeMark + e.Err.Error()
	}
	s := &statuspb.Status{Code: int32(grpcCode(e.Code)), Message: clean(text)}
	if packErr == nil {
		s.Details = []*anypb.Any{detail}
	}
	return s
}

// clean keeps a stray byte in a text from making the whole message unsendable.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// ErrorFromStatus reads a status: nil for nil and for OK. A failure without our
// detail is OUTCOME_UNKNOWN.
func ErrorFromStatus(s *statuspb.Status) error {
	if s == nil || s.GetCode() == int32(codes.OK) {
		return nil
	}
	for _, d := range s.GetDetails() {
		var m pb.ErrorDetail
		if d.MessageIs(&m) && d.UnmarshalTo(&m) == nil && m.GetCode() != "" {
			return fromDetail(&m, s.GetMessage())
		}
	}
	return &api.Error{Code: api.OutcomeUnknown, Err: errors.New(codes.Code(s.GetCode()).String() + ": " + s.GetMessage()),
		Hint: "send it again with the same id"}
}

func fromDetail(m *pb.ErrorDetail, message string) error {
	e := &api.Error{
		Code: api.Code(m.GetCode()), Op: m.GetOp(), Topic: m.GetTopic(), Region: m.GetRegion(),
		Field: m.GetField(), Value: m.GetValue(), Hint: m.GetHint(),
		RetryAfter: time.Duration(m.GetRetryAfterNano()), For: time.Duration(m.GetForNano()), Revision: m.GetPolicyRevision(),
		Log: LogFromProto(m.GetLog()), Reason: m.GetReason(), Rule: m.GetRule(), Drill: m.GetDrill(),
	}
	if cause, ok := strings.CutPrefix(message, plainText(e)+causeMark); ok {
		e.Err = errors.New(cause)
	}
	return e
}

// GRPCError is what a gRPC handler returns for an error; nil for nil.
func GRPCError(err error) error {
	if err == nil {
		return nil
	}
	return status.ErrorProto(StatusFromError(err))
}

// ErrorFromGRPC reads the error of a gRPC call: ours with its code, or
// OUTCOME_UNKNOWN with the cause in it. It returns nil for nil; the io.EOF that
// ends a stream is for the caller to look at first.
func ErrorFromGRPC(err error) error {
	if err == nil {
		return nil
	}
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	if s, ok := status.FromError(err); ok {
		return ErrorFromStatus(s.Proto())
	}
	return &api.Error{Code: api.OutcomeUnknown, Err: err, Hint: "send it again with the same id"}
}
