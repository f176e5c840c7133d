package client

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

// Status asks the node for what it knows of its region and its links.
func (c *Client) Status(ctx context.Context) (*pb.StatusResponse, error) {
	m, err := pb.NewAdminServiceClient(c.conn).Status(ctx, &pb.StatusRequest{})
	return m, c.asked("status", err)
}

// Topics asks for one topic's declaration, logs and contract, or with "" for all.
func (c *Client) Topics(ctx context.Context, topic string) (*pb.TopicsResponse, error) {
	m, err := pb.NewAdminServiceClient(c.conn).Topics(ctx, &pb.TopicsRequest{Topic: topic})
	return m, c.asked("topics", err)
}

// Explain asks what the active policy says to a question, and which rules spoke.
func (c *Client) Explain(ctx context.Context, q *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	m, err := pb.NewAdminServiceClient(c.conn).Explain(ctx, q)
	return m, c.asked("explain", err)
}

// Reload has the node load its policy directory again. An error with OutcomeUnknown
// says that it may have.
func (c *Client) Reload(ctx context.Context) (*pb.ReloadResponse, error) {
	m, err := pb.NewAdminServiceClient(c.conn).Reload(ctx, &pb.ReloadRequest{})
	return m, wire.ErrorFromGRPC(err)
}

// PolicyTable gives fn every answer of the policy in force at the node, part by part.
func (c *Client) PolicyTable(ctx context.Context, fn func(*pb.PolicyTableResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewAdminServiceClient(c.conn).PolicyTable(ctx, &pb.PolicyTableRequest{})
	if err != nil {
		return c.asked("policy table", err)
	}
	return c.asked("policy table", each(stream, fn))
}

// Traffic gives fn how often the node's policy was asked each question, hour by hour, as
// far as that was counted.
func (c *Client) Traffic(ctx context.Context, q *pb.TrafficRequest, fn func(*pb.TrafficResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewAdminServiceClient(c.conn).Traffic(ctx, q)
	if err != nil {
		return c.asked("traffic", err)
	}
	return c.asked("traffic", each(stream, fn))
}

// ActivatePolicy has the node verify a signed policy and activate it. An error with
// OutcomeUnknown says that it may have.
func (c *Client) ActivatePolicy(ctx context.Context, q *pb.ActivatePolicyRequest) (*pb.ActivatePolicyResponse, error) {
	m, err := pb.NewAdminServiceClient(c.conn).ActivatePolicy(ctx, q)
	return m, wire.ErrorFromGRPC(err)
}

// PolicyStatus asks which policy is active, who signed it, and where it is confirmed.
func (c *Client) PolicyStatus(ctx context.Context) (*pb.PolicyStatusResponse, error) {
	m, err := pb.NewAdminServiceClient(c.conn).PolicyStatus(ctx, &pb.PolicyStatusRequest{})
	return m, c.asked("policy status", err)
}

// ReloadManifest has the node read federation.yaml and the policy again. An error with
// OutcomeUnknown says that it may have.
func (c *Client) ReloadManifest(ctx context.Context, q *pb.ReloadManifestRequest) (*pb.ReloadManifestResponse, error) {
	m, err := pb.NewAdminServiceClient(c.conn).ReloadManifest(ctx, q)
	return m, wire.ErrorFromGRPC(err)
}

// DeleteTopic deletes what the node's region holds of a topic. An error with
// OutcomeUnknown says that it may have.
func (c *Client) DeleteTopic(ctx context.Context, q *pb.TopicActRequest) (*pb.TopicActResponse, error) {
	m, err := pb.NewAdminServiceClient(c.conn).DeleteTopic(ctx, q)
	return m, wire.ErrorFromGRPC(err)
}

// PurgeTopic takes records out of a topic's logs in the node's region. An error with
// OutcomeUnknown says that it may have.
func (c *Client) PurgeTopic(ctx context.Context, q *pb.TopicActRequest) (*pb.TopicActResponse, error) {
	m, err := pb.NewAdminServiceClient(c.conn).PurgeTopic(ctx, q)
	return m, wire.ErrorFromGRPC(err)
}

// Lag gives the lags of the region's flows to fn: once, or with Watch until ctx ends
// or fn returns an error, which Lag then returns.
func (c *Client) Lag(ctx context.Context, q *pb.LagRequest, fn func(*pb.LagResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewAdminServiceClient(c.conn).Lag(ctx, q)
	if err != nil {
		return c.asked("lag", err)
	}
	return c.asked("lag", each(stream, fn))
}

// VerifyTopic has the node read logs of its region from the disk and gives fn what it
// found, log by log. With an error before the end, logs that fn did not get were not read
// whole.
func (c *Client) VerifyTopic(ctx context.Context, q *pb.VerifyTopicRequest, fn func(*pb.VerifyTopicResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewAdminServiceClient(c.conn).VerifyTopic(ctx, q)
	if err != nil {
		return c.asked("verify", err)
	}
	return c.asked("verify", each(stream, fn))
}

// callerError is an error of the caller's own function: handed back as it is.
type callerError struct{ error }

// each hands every message of a stream to fn, until its end.
func each[M any](stream grpc.ServerStreamingClient[M], fn func(*M) error) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := fn(m); err != nil {
			return callerError{err}
		}
	}
}

// asked reads the error of a call that changes nothing: there a lost connection is
// not an unknown outcome but no answer.
func (c *Client) asked(op string, err error) error {
	var own callerError
	if errors.As(err, &own) {
		return own.error
	}
	if s, ok := status.FromError(err); ok && len(s.Details()) == 0 {
		switch s.Code() {
		case codes.Unavailable:
			if own := c.config.shown(); own != nil && time.Now().After(own.NotAfter) { // of a door's refusal in the handshake no more arrives than "bad certificate"
				return &api.Error{Code: api.PermissionDenied, Op: op, Field: "certificate", Value: api.CertificateExpired, Err: errors.New(s.Message()),
					Hint: "it ended " + own.NotAfter.UTC().Format(time.RFC3339) + ": sign a new one and replace the files, no restart is needed"}
			}
			return &api.Error{Code: api.NotReady, Op: op, Err: errors.New(s.Message()), Hint: "is the node running, and is this its address?"}
		case codes.DeadlineExceeded:
			return &api.Error{Code: api.NotReady, Op: op, Err: context.DeadlineExceeded, Hint: "the node did not answer in time"}
		case codes.Canceled:
			return context.Canceled
		case codes.Unimplemented:
			return &api.Error{Code: api.BadRequest, Op: op, Err: errors.New(s.Message()), Hint: "this address does not serve that: operators and producers may have different ports"}
		}
	}
	return wire.ErrorFromGRPC(err)
}
