// Package ledger is the bookkeeping of a drill. A Book notes down what happened to the
// clients of a federation: what each producer was told, what each reader got, what
// regions said of lags and links, and which faults were on. ReadShelf reads what is
// stored where afterwards. Check compares the two and names every promise that was
// broken. Apart from ReadShelf and files it is pure: values in, verdict out.
package ledger
