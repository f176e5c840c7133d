// Package bundle is the signed form in which a policy travels: the exact bytes of a policy
// directory with a manifest, and signatures of people over one digest of both. It reads,
// builds, signs and verifies; it knows no policy language and keeps no file.
//
// A bundle names no key that is to be believed: whom a region trusts, and in which role,
// is in its own node.yaml (Trust).
package bundle
