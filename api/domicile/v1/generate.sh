#!/bin/sh
# Regenerates the Go code from the .proto files. Needs protoc, and protoc-gen-go
# v1.36.12 and protoc-gen-go-grpc v1.6.2 on the PATH. google.rpc.Status is spelled
# out here because its .proto file comes with no package that both protoc and Go have.
set -eu
cd "$(dirname "$0")/../.."
deps=$(mktemp -d)
trap 'rm -rf "$deps"' EXIT
mkdir -p "$deps/google/rpc"
cat >"$deps/google/rpc/status.proto" <<'PROTO'
syntax = "proto3";
package google.rpc;
import "google/protobuf/any.proto";
option go_package = "google.golang.org/genproto/googleapis/rpc/status;status";
message Status {
  int32 code = 1;
  string message = 2;
  repeated google.protobuf.Any details = 3;
}
PROTO
protoc -I . -I "$deps" \
  --go_out=. --go_opt=module=domicile/api \
  --go-grpc_out=. --go-grpc_opt=module=domicile/api \
  domicile/v1/*.proto
