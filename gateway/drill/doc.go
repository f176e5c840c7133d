// Package drill is a node's part in an isolation drill: what it holds cut on purpose, for
// whom, and until when. Everything is a lease in memory. Whoever runs the drill has to
// renew it; without that, after the longest time that was armed, and with the process, the
// links are whole again. It can only take connectivity away: it holds fault gates, which
// lie under everything that decides where records go.
package drill
