// Package strict reads YAML documents into structs and refuses what it does not
// know: an unknown key is an error that names the line and the nearest known key.
// It is the one room of the YAML library.
package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"domicile/api"
)

// Decode reads exactly one YAML document into v, a pointer to a struct. Unknown or
// repeated keys, wrong types and a second document are refused with ConfigInvalid;
// file only names the source in the error.
func Decode(file string, data []byte, v any) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return invalid(file, "", "the file is empty", "")
		}
		return explain(file, err, v)
	}
	if err := dec.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return invalid(file, "", "more than one document", "keep one document per file")
	}
	return nil
}

// Encode writes v as YAML.
func Encode(v any) ([]byte, error) { return yaml.Marshal(v) }

var (
	unknownField = regexp.MustCompile(`line (\d+): field (\S+) not found in type`)
	repeatedKey  = regexp.MustCompile(`line (\d+): mapping key "(.*)" already defined at line (\d+)`)
)

func explain(file string, err error, v any) error {
	if m := repeatedKey.FindStringSubmatch(err.Error()); m != nil {
		return invalid(file, m[2], "line "+m[1]+": given before in line "+m[3], "a name may be given once only")
	}
	m := unknownField.FindStringSubmatch(err.Error())
	if m == nil {
		return invalid(file, "", strings.TrimPrefix(err.Error(), "yaml: "), "")
	}
	hint := "remove the key"
	if near := Nearest(m[2], Keys(reflect.TypeOf(v))); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return invalid(file, m[2], "line "+m[1]+": unknown key", hint)
}

func invalid(file, field, text, hint string) error {
	return &api.Error{Code: api.ConfigInvalid, Op: "read " + file, Field: field, Hint: hint, Err: errors.New(text)}
}

// Keys lists every YAML key that a type and the types in it can hold.
func Keys(t reflect.Type) []string {
	seen := map[reflect.Type]bool{}
	var keys []string
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
			walk(t.Elem())
		case reflect.Struct:
			if seen[t] {
				return
			}
			seen[t] = true
			for f := range t.Fields() {
				name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
				if name != "" && name != "-" {
					keys = append(keys, name)
				}
				if name != "-" {
					walk(f.Type)
				}
			}
		}
	}
	walk(t)
	return keys
}

// Nearest is the known word closest to word by edits, "" when none is close enough
// to be what was meant.
func Nearest(word string, known []string) string {
	best, bestDistance := "", max(2, len([]rune(word))/3)+1
	for _, k := range known {
		if d := distance([]rune(strings.ToLower(word)), []rune(strings.ToLower(k))); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two words.
func distance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
