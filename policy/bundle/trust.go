package bundle

import (
	"fmt"
	"slices"
	"strings"

	"domicile/api"
)

// Trust is whom a region believes, in its node.yaml. The zero value trusts nobody, and
// the region loads its policy from a directory.
type Trust struct {
	Keys []Key  `yaml:"keys"` // of people; each in one role
	Need []Need `yaml:"need"` // who must have signed, all of it
}

// Key is one person's.
type Key struct {
	ID     string `yaml:"id"`
	Role   string `yaml:"role"`
	Public string `yaml:"public"` // base64, as `domicile policy keys new` prints it
}

// Need is a number of signatures of one role.
type Need struct {
	Role  string `yaml:"role"`
	Count int    `yaml:"count"`
}

// Signed reports whether only signed policies count.
func (t Trust) Signed() bool { return len(t.Keys) > 0 || len(t.Need) > 0 }

// Check refuses keys that cannot be read, two ids for one key or one role that is never
// asked for, and a need that the keys cannot meet: ConfigInvalid.
func (t Trust) Check() error {
	bad := func(field, value, hint string) error {
		return &api.Error{Code: api.ConfigInvalid, Op: "check node config", Field: "policy." + field, Value: value, Hint: hint}
	}
	people := map[string]int{} // by role
	for i, k := range t.Keys {
		at := fmt.Sprintf("keys[%d]", i)
		same := func(other Key) bool { return other.ID == k.ID || other.Public == k.Public }
		switch {
		case !plainWord(k.ID):
			return bad(at+".id", k.ID, "lower-case letters, digits, '-', '_' and '.', at most 64")
		case !plainWord(k.Role):
			return bad(at+".role", k.Role, "the one role of this person, as legal")
		case slices.ContainsFunc(t.Keys[:i], same):
			return bad(at+".id", k.ID, "one person has one key, one id and one role")
		}
		if _, err := parsePublic(k.Public); err != nil {
			return bad(at+".public", "", "the line that `domicile policy keys new` prints: "+err.Error())
		}
		people[k.Role]++
	}
	if len(t.Need) == 0 && len(t.Keys) > 0 {
		return bad("need", "", "say who must sign: need: [{role: legal, count: 1}, {role: engineering, count: 1}]")
	}
	for i, n := range t.Need {
		at := fmt.Sprintf("need[%d]", i)
		switch {
		case n.Count < 1:
			return bad(at+".count", fmt.Sprint(n.Count), "at least 1")
		case slices.ContainsFunc(t.Need[:i], func(o Need) bool { return o.Role == n.Role }):
			return bad(at+".role", n.Role, "a role stands here once")
		case people[n.Role] < n.Count:
			return bad(at+".role", n.Role, fmt.Sprintf("%d keys have this role, %d are needed", people[n.Role], n.Count))
		}
	}
	return nil
}

// Approvals is who has signed a bundle, of those that are trusted.
type Approvals struct {
	By      []Key
	Unknown []string // ids of keys that are not trusted here; they count for nothing
	Missing []Need   // what is still needed
}

// Approvals looks at every signature. One of a trusted key that does not fit refuses the
// bundle: it was changed after it was signed, or somebody signs in another's name.
func (b *Bundle) Approvals(t Trust) (Approvals, error) {
	var out Approvals
	count := map[string]int{}
	for _, s := range b.Signatures {
		i := slices.IndexFunc(t.Keys, func(k Key) bool { return k.ID == s.KeyID })
		if i < 0 {
			out.Unknown = append(out.Unknown, s.KeyID)
			continue
		}
		k := t.Keys[i]
		key, err := parsePublic(k.Public)
		if err != nil || !b.verify(key, s.Value) {
			return out, refused("signatures", s.KeyID, "it is not this person's signature of this bundle: have it signed anew, and find out who changed it", ErrBadSignature)
		}
		count[k.Role]++
		out.By = append(out.By, k)
	}
	for _, n := range t.Need {
		if left := n.Count - count[n.Role]; left > 0 {
			out.Missing = append(out.Missing, Need{n.Role, left})
		}
	}
	return out, nil
}

// Enough refuses a bundle that not everybody has signed whom the region asks for.
func (a Approvals) Enough() error {
	if len(a.Missing) == 0 {
		return nil
	}
	if len(a.Unknown) > 0 {
		return refused("signatures", strings.Join(a.Unknown, ", "), "still needed: "+a.Text()+"; keys are trusted by node.yaml alone", ErrWrongKey)
	}
	return refused("signatures", a.names(), "still needed: "+a.Text()+"; they sign with `domicile policy approve`", ErrTooFewRoles)
}

// Text is what is missing, in words; "" when nothing is.
func (a Approvals) Text() string {
	var out []string
	for _, n := range a.Missing {
		out = append(out, fmt.Sprintf("%d of role %s", n.Count, n.Role))
	}
	return strings.Join(out, ", ")
}

func (a Approvals) names() string {
	var out []string
	for _, k := range a.By {
		out = append(out, k.ID)
	}
	return strings.Join(out, ", ")
}
