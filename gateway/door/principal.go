package door

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/policy"
	"domicile/regions"
	"domicile/regions/identity"
)

// PrincipalRule says what a certificate stands for. The first rule that matches a
// certificate's name wins; a caller that none matches is refused.
type PrincipalRule struct {
	Match string `yaml:"match"` // the name in the certificate, or a pattern with * and ?
	Class string `yaml:"class"` // of the catalog's principal classes
	Place string `yaml:"place"` // a region; empty or "none": none declared, reads nothing resident
	// Quota bounds what all callers of this entry publish in this region together.
	Quota regions.Quota `yaml:"quota"`
}

func (r PrincipalRule) place() string {
	if r.Place == policy.None {
		return ""
	}
	return r.Place
}

// ruleFor is the index of the first rule that matches a name; -1: none does.
func ruleFor(rules []PrincipalRule, name string) int {
	return slices.IndexFunc(rules, func(r PrincipalRule) bool {
		ok, err := path.Match(r.Match, name)
		return err == nil && ok
	})
}

// CheckRules refuses rules that cannot be meant, with ConfigInvalid and the field.
func CheckRules(rules []PrincipalRule, f *regions.Federation) error {
	for i, r := range rules {
		bad := func(field, value, hint string) error {
			return &api.Error{Code: api.ConfigInvalid, Op: "check principals", Field: fmt.Sprintf("principals[%d].%s", i, field), Value: value, Hint: hint}
		}
		if _, err := path.Match(r.Match, ""); err != nil || r.Match == "" {
			return bad("match", r.Match, "the name in a certificate, or a pattern with * and ?")
		}
		if r.Class == "" {
			return bad("class", "", "name one of the catalog's principal classes")
		}
		if _, ok := f.Region(r.place()); !ok && r.place() != "" {
			return bad("place", r.Place, "a region of federation.yaml, or leave it out")
		}
		if err := r.Quota.Check(fmt.Sprintf("principals[%d].quota", i)); err != nil {
			return err
		}
	}
	return nil
}

// caller is who is on the other end of a connection.
type caller struct {
	regions.Principal
	anything bool // --dev: every method
	rule     int  // which of the rules it is
	quota    regions.Quota
}

const (
	client   = string(identity.Client)
	operator = string(identity.Operator)
)

// methodKinds says which kinds may call what. Longest prefix wins; what is not
// listed nobody may call.
var methodKinds = map[string][]string{
	"/domicile.v1.PublisherService/":   {client},
	"/domicile.v1.ReaderService/":      {client, operator},
	"/domicile.v1.AdminService/":       {operator},
	"/domicile.v1.PlacementService/":   {operator},
	"/domicile.v1.FailoverService/":    {operator},
	"/domicile.v1.DivergenceService/":  {operator},
	"/domicile.v1.DrillService/":       {operator},
	"/domicile.v1.AdminService/Lag":    {client, operator},
	"/domicile.v1.AdminService/Topics": {client, operator},
	"/grpc.health.v1.Health/":          {client, operator},
	"/grpc.reflection.":                {client, operator},
}

func (c *caller) mayCall(method string) error {
	if c.anything {
		return nil
	}
	longest := ""
	for prefix := range methodKinds {
		if strings.HasPrefix(method, prefix) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	for _, kind := range methodKinds[longest] {
		if kind == c.Kind {
			return nil
		}
	}
	return &api.Error{Code: api.PermissionDenied, Op: "call " + method, Field: "certificate.kind", Value: c.Kind,
		Hint: "use a certificate of kind " + strings.Join(methodKinds[longest], " or ")}
}

// identify finds the caller of a method and checks that it may call it.
func (s *Server) identify(ctx context.Context, method string) (*caller, error) {
	if s.dev != nil {
		return s.dev, nil
	}
	c, err := s.fromCertificate(ctx)
	if err != nil {
		return nil, err
	}
	return c, c.mayCall(method)
}

// fromCertificate reads the certificate that the handshake verified. It looks at the
// end of the certificate again: a connection may outlive it.
func (s *Server) fromCertificate(ctx context.Context) (*caller, error) {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil, denied("certificate", "", "connect with a client certificate of this federation")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || !info.State.HandshakeComplete {
		return nil, denied("certificate", "", "connect with a client certificate of this federation")
	}
	who, err := identity.PeerOf(info.State)
	if err != nil {
		return nil, err
	}
	if s.config.Clock.Now().After(who.Ends) {
		return nil, identity.Ended(who.Ends)
	}
	if i := ruleFor(s.config.Rules, who.Name.Name); i >= 0 {
		r := s.config.Rules[i]
		return &caller{rule: i, quota: r.Quota, Principal: regions.Principal{Name: who.Name.Name, Kind: string(who.Kind), Class: r.Class, Place: r.place()}}, nil
	}
	return nil, denied("certificate.name", who.Name.Name, "no entry of principals in node.yaml matches the name")
}

func denied(field, value, hint string) error {
	return &api.Error{Code: api.PermissionDenied, Op: "identify caller", Field: field, Value: value, Hint: hint}
}

// Caller is who called a method of a service behind a door; false when ctx is of no such
// call.
func Caller(ctx context.Context) (regions.Principal, bool) {
	c, ok := ctx.Value(callerKey{}).(*caller)
	if !ok {
		return regions.Principal{}, false
	}
	return c.Principal, true
}

type callerKey struct{}

func principalOf(ctx context.Context) regions.Principal {
	c, ok := ctx.Value(callerKey{}).(*caller)
	if !ok {
		return regions.Principal{} // no class, no place: policy refuses it
	}
	return c.Principal
}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	c, err := s.identify(ctx, info.FullMethod)
	if err == nil {
		err = s.enter()
	}
	if err != nil {
		return nil, wire.GRPCError(err)
	}
	defer s.leave()
	return next(context.WithValue(ctx, callerKey{}, c), req)
}

func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	c, err := s.identify(ss.Context(), info.FullMethod)
	if err == nil {
		err = s.enter()
	}
	if err != nil {
		return wire.GRPCError(err)
	}
	defer s.leave()
	ctx := context.WithValue(ss.Context(), callerKey{}, c)
	if info.FullMethod == pb.PublisherService_PublishStream_FullMethodName {
		return next(srv, callerStream{ss, ctx}) // delivers its outcomes before it ends
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.draining, func() { cancel(errShuttingDown(info.FullMethod)) })()
	// A client that does not read blocks the handler in flow control, where no context
	// reaches it: ending the stream from here is what ends it.
	ended := make(chan error, 1)
	s.workers.Go(func() { ended <- next(srv, callerStream{ss, ctx}) })
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return wire.GRPCError(context.Cause(ctx))
	}
}

// callerStream is a stream whose context knows the caller.
type callerStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s callerStream) Context() context.Context { return s.ctx }
