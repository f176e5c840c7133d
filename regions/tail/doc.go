// Package tail keeps what the homes of this region's copies have said of their logs'
// tails, so that after the loss of a home it can be said which records are missing. It
// keeps that over a restart, in one bounded file for each log.
package tail
