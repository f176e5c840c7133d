package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"

	"google.golang.org/grpc"

	"domicile/api"
	"domicile/api/wire"
)

// A connection shows the certificate that it was opened with, also when another one lies in
// its file by now. So once a door says that it has ended, connections that were opened with
// another than the present one are dropped: the next call opens one with that. Without a new
// one they stay, as the door's refusal is the better answer: it says when the certificate
// ended.

// shown is the certificate that a connection would be opened with now; nil: none, or one
// that can't be read.
func (c *Config) shown() *x509.Certificate {
	if c.TLS == nil || c.TLS.GetClientCertificate == nil {
		return nil // given once and for all
	}
	cert, err := c.TLS.GetClientCertificate(&tls.CertificateRequestInfo{Version: tls.VersionTLS13})
	if err != nil || cert == nil || len(cert.Certificate) == 0 {
		return nil
	}
	if cert.Leaf != nil {
		return cert.Leaf
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return nil
	}
	return leaf
}

// heed drops old connections if err is a door's word that a certificate has ended.
func (r *redialer) heed(err error) {
	var e *api.Error
	if err == nil || !errors.As(wire.ErrorFromGRPC(err), &e) || e.Code != api.PermissionDenied || e.Value != api.CertificateExpired {
		return
	}
	now := r.shown()
	if now == nil || !time.Now().Before(now.NotAfter) {
		return
	}
	r.mu.Lock()
	var old []*doorConn
	for c := range r.open {
		if c.shown == nil || !bytes.Equal(c.shown.Raw, now.Raw) {
			old = append(old, c)
		}
	}
	r.mu.Unlock()
	for _, c := range old {
		c.renew()
	}
}

func (r *redialer) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	r.heed(err)
	return err
}

func (r *redialer) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return heeded{s, r}, nil
}

// heeded is a stream whose end is looked at.
type heeded struct {
	grpc.ClientStream
	redialer *redialer
}

func (s heeded) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.redialer.heed(err)
	return err
}
