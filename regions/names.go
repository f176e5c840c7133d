package regions

import (
	"errors"
	"fmt"
	"strings"

	"domicile/api"
	"domicile/regions/strict"
)

// CheckName checks the name of a topic or federation: parts of letters, digits,
// '-' and '_' joined by single dots. Names are compared byte by byte; Orders and
// orders are two topics.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > api.MaxTopicName:
		return fmt.Errorf("%d bytes, at most %d", len(name), api.MaxTopicName)
	case strings.ContainsAny(name, "*>"):
		return errors.New("wildcards name no topic: write the full name")
	}
	for part := range strings.SplitSeq(name, ".") {
		if part == "" {
			return errors.New("empty part: no leading, trailing or double dot")
		}
		for _, r := range part {
			if !nameRune(r) {
				return fmt.Errorf("character %q: use letters, digits, '-' and '_', parts joined by dots", r)
			}
		}
	}
	return nil
}

func nameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
}

// QuorumIssuer stands in the epochs that an authority gives which all voters founded together,
// in the place where else the region stands that gave it.
const QuorumIssuer = "q"

// reserved are words that mean something else wherever a region or a boundary may
// be named. A region called none would be the place of readers who have declared
// none.
var reserved = map[string]string{
	api.HomeSlot:    "the slot of topics that have one log",
	GlobalResidency: "the residency of what may rest anywhere",
	"none":          "what policies call that which does not apply",
	"unknown":       "what policies call that which is not known",
	"all":           "every region, in the manifest's lists",
	"any":           "every region, in what is said of a policy",
	"inside":        "every region in which a record may rest, in matrices",
	"outside":       "every other region, in matrices",
	QuorumIssuer:    "the issuer of the epochs that the placement authority gives",
}

// CheckRegionName checks the name of a region or boundary: lower-case letters,
// digits and '-', starting with a letter, and no word with another meaning.
func CheckRegionName(name string) error {
	if name == "" || len(name) > 63 {
		return errors.New("1 to 63 characters")
	}
	if meaning, taken := reserved[name]; taken {
		return fmt.Errorf("%q is %s: choose another name", name, meaning)
	}
	for i, r := range name {
		letter := r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r != '-' && (r < '0' || r > '9')) {
			return errors.New("lower-case letters, digits and '-', starting with a letter")
		}
	}
	return nil
}

func suggest(problem, word string, known []string) string {
	if near := strict.Nearest(word, known); near != "" {
		return fmt.Sprintf("%s; did you mean %q?", problem, near)
	}
	return problem + "; known: " + strings.Join(known, ", ")
}
