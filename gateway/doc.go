// Package gateway takes records in, decides where they go and hands them over: to
// the local log's writer, or through a link to their home. It reads topics back for
// consumers. It knows policy, the federation map and logs as interfaces; it speaks
// no network protocol and stores nothing itself.
package gateway
