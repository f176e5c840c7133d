// Package api holds the nouns that producers, consumers and operators of
// Domicile meet: records, tags, acknowledgements, positions and the code table.
// It imports nothing of ours and is the only part of the module whose names and
// meanings are promised to stay.
package api
