// Package deploy holds what an operator starts from: commented example files with
// every key and its default, and example policies. The example federation is three
// regions on one machine; domicile init writes it out.
package deploy

import _ "embed"

// NodeYAML is the example node.yaml, of region eu-west.
//
//go:embed node.yaml
var NodeYAML []byte

// FederationYAML is the example federation.yaml.
//
//go:embed federation.yaml
var FederationYAML []byte
