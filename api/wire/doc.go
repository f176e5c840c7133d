// Package wire turns the nouns of package api into messages of domicile.v1 and
// back. It decides nothing. Every function accepts what an unknown peer may send:
// absent parts become zero values, and nothing panics.
package wire
