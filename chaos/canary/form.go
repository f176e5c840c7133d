package canary

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Form is one way in which bytes are written down.
type Form string

// The forms that are searched for. A form that equals an earlier one for some token
// is searched once, under the earlier name.
const (
	Raw         Form = "raw"
	HexLower    Form = "hex"
	HexUpper    Form = "HEX"
	Base64At0   Form = "base64+0" // the token starts at a multiple of three bytes
	Base64At1   Form = "base64+1" // one byte later
	Base64At2   Form = "base64+2" // two bytes later
	URLBase64A0 Form = "base64url+0"
	URLBase64A1 Form = "base64url+1"
	URLBase64A2 Form = "base64url+2"
	JSON        Form = "json"         // escaped where JSON demands it
	JSONHTML    Form = "json-html"    // as Go's encoder writes by default
	JSONUnicode Form = "json-unicode" // every byte as \u00xx
	Quoted      Form = "quoted"       // Go's %q, also used by text logs
	Decimal     Form = "decimal"      // Go's %v of a byte slice
	Percent     Form = "percent"      // URL-escaped
)

type pattern struct {
	text  string
	form  Form
	token int
}

// Forms lists how a token may be written, each text once.
func Forms(token string) map[Form]string {
	forms := map[Form]string{}
	for _, p := range patternsOf(token, 0) {
		forms[p.form] = p.text
	}
	return forms
}

func patternsOf(token string, index int) []pattern {
	var patterns []pattern
	seen := map[string]bool{}
	add := func(f Form, text string) {
		if !seen[text] {
			seen[text] = true
			patterns = append(patterns, pattern{text, f, index})
		}
	}
	add(Raw, token)
	add(HexLower, hex.EncodeToString([]byte(token)))
	add(HexUpper, strings.ToUpper(hex.EncodeToString([]byte(token))))
	for i, f := range []Form{Base64At0, Base64At1, Base64At2} {
		add(f, base64At(base64.RawStdEncoding, token, i))
	}
	for i, f := range []Form{URLBase64A0, URLBase64A1, URLBase64A2} {
		add(f, base64At(base64.RawURLEncoding, token, i))
	}
	add(JSON, jsonText(token, false))
	add(JSONHTML, jsonText(token, true))
	add(JSONUnicode, jsonUnicode(token))
	quoted := strconv.Quote(token)
	add(Quoted, quoted[1:len(quoted)-1])
	decimal := fmt.Sprint([]byte(token))
	add(Decimal, decimal[1:len(decimal)-1])
	add(Percent, url.QueryEscape(token))
	return patterns
}

// base64At is the part of the encoding that depends on the token alone when it
// starts shift bytes after a group boundary, whatever stands around it.
func base64At(e *base64.Encoding, token string, shift int) string {
	text := e.EncodeToString(append(make([]byte, shift), token...))
	from := (shift*8 + 5) / 6
	to := (shift + len(token)) * 8 / 6
	return text[from:to]
}

func jsonText(token string, html bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if err := e.Encode(token); err != nil {
		panic("canary: encode a string: " + err.Error()) // strings always encode
	}
	text := strings.TrimSuffix(b.String(), "\n")
	return text[1 : len(text)-1]
}

func jsonUnicode(token string) string {
	var b strings.Builder
	for i := range len(token) {
		fmt.Fprintf(&b, `\u%04x`, token[i])
	}
	return b.String()
}
