package opa

import "strings"

func object() map[string]any {
	return map[string]any{"type": "object", "properties": map[string]any{}, "additionalProperties": false}
}

// addLeaf adds a string field at a dotted path of at most two names.
func addLeaf(root map[string]any, path string) {
	parent, leaf, nested := strings.Cut(path, ".")
	properties := root["properties"].(map[string]any)
	if !nested {
		properties[path] = map[string]any{"type": "string"}
		return
	}
	if properties[parent] == nil {
		properties[parent] = object()
	}
	properties[parent].(map[string]any)["properties"].(map[string]any)[leaf] = map[string]any{"type": "string"}
}
