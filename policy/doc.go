// Package policy decides, per record, where it may be stored, sent and read. It
// holds what one activated policy is (a Generation: the catalog's closed vocabulary
// and a table with the decision of every cell), the Gate through which the region
// asks, and the boundary floor that is checked again under every allow.
//
// It is pure Go and knows no policy language: package policy/opa reads a directory,
// judges the whole domain once and builds a Generation from the answers.
package policy
