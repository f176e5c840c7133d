// Package mirror copies what may travel from a log's home to the other regions, and
// says in seconds how far behind each copy is.
//
// Source is the origin's side: one flow per home log and target region, judged on
// leaving (egress). Target is the receiving side: one applier per copy, judged on
// arriving (ingress). Marks and Watermarks carry, every second, up to when a log is
// complete; Lag puts both into figures. The package knows no transport, broker or
// policy engine: the node hands those in.
package mirror
