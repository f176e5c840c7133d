// Package domicilev1 is the wire of Domicile, version 1, generated from the .proto
// files beside it. Messages stop at api/wire; inside the module only nouns travel.
package domicilev1

//go:generate sh generate.sh
