// Package client is how Go programs publish to a region, read from it and operate
// it. A Client knows several addresses of one region and uses one that answers. It
// makes ids before it sends, so that sending again never makes a second record, and
// every record that is given to it gets exactly one outcome.
package client
