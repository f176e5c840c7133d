// Package door is the gRPC side of a gateway: producers, consumers and operators
// come in here. It finds out who is calling, from the verified certificate alone,
// and turns messages into calls of the gateway and back. Nothing of a record reaches
// its log lines.
package door
