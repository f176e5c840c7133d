// Package ledger is the bookkeeping of a drill: what each producer was told about
// each record, and what is stored where afterwards. Check compares the two and
// names every promise that was broken. It is pure: values in, verdict out.
package ledger
