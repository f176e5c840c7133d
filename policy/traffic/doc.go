// Package traffic keeps, hour by hour for eight days, how often each question was asked
// of a node's policy: what a change of policy or a drill would have met. It holds the
// words of questions and counts, nothing else of a record, and says how much of the time
// was counted.
package traffic
