// Package identity makes, loads and checks the certificates by which regions,
// clients and operators know each other. A certificate carries one URI,
// domicile://<federation>/<kind>/<name>; that URI, never a DNS name, is who its
// holder is, and a certificate of one kind never passes for another.
package identity

import (
	"fmt"
	"net/url"
	"strings"

	"domicile/api"
	"domicile/regions"
)

// Kind is what a certificate's holder is.
type Kind string

// The kinds. None passes for another.
const (
	Region   Kind = "region"
	Client   Kind = "client"
	Operator Kind = "operator"
)

const scheme = "domicile"

// Name is who a certificate stands for.
type Name struct {
	Federation string
	Kind       Kind
	Name       string
}

// String is the URI form, "domicile://shop/region/eu-west".
func (n Name) String() string {
	return scheme + "://" + n.Federation + "/" + string(n.Kind) + "/" + n.Name
}

// Check reports why the name could not stand in a certificate: ConfigInvalid with
// the field at fault.
func (n Name) Check() error {
	bad := func(field, value, hint string) error {
		return &api.Error{Code: api.ConfigInvalid, Op: "check certificate name", Field: field, Value: value, Hint: hint}
	}
	if err := regions.CheckName(n.Federation); err != nil {
		return bad("federation", n.Federation, err.Error())
	}
	check := regions.CheckName
	switch n.Kind {
	case Region:
		check = regions.CheckRegionName
	case Client, Operator:
	default:
		return bad("kind", string(n.Kind), "one of region, client, operator")
	}
	if err := check(n.Name); err != nil {
		return bad("name", n.Name, err.Error())
	}
	return nil
}

// ParseName reads the URI form. Anything that String would not write back byte by
// byte is refused: two spellings of one name must not exist.
func ParseName(uri string) (Name, error) {
	rest, ok := strings.CutPrefix(uri, scheme+"://")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return Name{}, fmt.Errorf("%q is not domicile://<federation>/<kind>/<name>", uri)
	}
	n := Name{Federation: parts[0], Kind: Kind(parts[1]), Name: parts[2]}
	if err := n.Check(); err != nil {
		return Name{}, err
	}
	return n, nil
}

func (n Name) url() *url.URL {
	return &url.URL{Scheme: scheme, Host: n.Federation, Path: "/" + string(n.Kind) + "/" + n.Name}
}
