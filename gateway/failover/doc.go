// Package failover is how people move a log to another region: what a move would do and
// which rules refuse it, the beginning of exactly what was planned, the consent of others,
// its end. The rules themselves hold at the authority, at the home and at the target; here
// they are shown before anything is begun, and asked again when it is.
//
// How the authority is reached is not known here, nor links, stores or how a call came in.
package failover
