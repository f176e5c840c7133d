// Package regions holds the federation map as plain values: regions, boundaries,
// topics, logs and their homes, what a log's items look like, and what two regions
// tell each other. It decides where a record may rest as far as the map alone can
// say; it does no I/O beyond reading the manifest and the clocks.
package regions
