// Package simulate plays a drill's plan in virtual time: the whole federation, real nodes
// with real policies, stores, mirrors and fault gates, in one bubble of testing/synctest, in
// which an hour passes in seconds. The bubble is in a process of its own, which the program
// starts from itself and which ends with it; pipes stand for sockets, and every node is new
// and empty. No running federation is asked or touched.
package simulate
