package policy

import "strings"

// lookalikes maps letters of other alphabets to the Latin ones they pass for. It
// serves the hint only: whatever is not equal byte by byte is refused anyway.
var lookalikes = strings.NewReplacer(
	"а", "a", "е", "e", "о", "o", "р", "p", "с", "c", "у", "y", "х", "x", "і", "i", "ј", "j", "ѕ", "s", "ԁ", "d", "ӏ", "l", "һ", "h", "ո", "n", "υ", "u", "ս", "u",
	"α", "a", "ε", "e", "ο", "o", "ρ", "p", "ι", "i", "κ", "k", "ν", "v", "τ", "t", "ı", "i", "ⅼ", "l", "ｅ", "e", "ｕ", "u",
)

// meant puts into words which valid word an odd one was probably meant to be.
func meant(word string, known []string) string {
	folded := lookalikes.Replace(strings.ToLower(strings.TrimSpace(word)))
	for _, k := range known {
		if folded == k {
			return `did you mean "` + k + `"? Letter case, spaces and look-alike letters count`
		}
	}
	if len(folded) < 3 {
		return "known: " + joinSome(known) // every short word is near every other one
	}
	return hintNearest("", folded, known)
}
