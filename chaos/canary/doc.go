// Package canary proves that bytes are where they should be and nowhere else. A Set
// of unique random tokens is put into records; Scan looks for every token, in every
// form in which software is known to write bytes down, in every file under a
// directory. What it finds at home shows that the search works (the positive
// control); what it finds anywhere else is a leak.
//
// The search is exact: a token that was compressed, encrypted or cut into pieces
// before it was written is not found. Run it over uncompressed stores.
package canary
