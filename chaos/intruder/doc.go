// Package intruder is a region that was broken into: its certificate and key are genuine,
// and what it says is not. Two honest regions, each a process of its own, publish, mirror
// and restart beside it, and none of them may stop, lose, open, move or misreport anything
// for it; each lie is counted under the liar's name.
package intruder
