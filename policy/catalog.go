package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"domicile/api"
	"domicile/regions"
)

// Limits of a catalog. They keep a cell within its bytes and the domain finite in
// practice; what is beyond them is refused at load.
const (
	MaxCells      = 250_000 // questions over all points and topics
	MaxDimensions = 8
	MaxValues     = 250 // per dimension; also regions and principal classes
	MaxEntries    = 64  // of a topic's allow
)

// Catalog is catalog.yaml: the closed vocabulary and what each topic may carry. The
// field tags are the file's.
type Catalog struct {
	Serial     int64                   `yaml:"serial"`
	Dimensions map[string][]string     `yaml:"dimensions"`
	Classes    []string                `yaml:"principal_classes"`
	Topics     map[string]CatalogTopic `yaml:"topics"`

	Terms   Terms     `yaml:"-"` // of terms.yaml
	At      time.Time `yaml:"-"` // the instant at which Terms are looked at; zero: before all
	Revoked []string  `yaml:"-"` // of Terms, by name: they do not last any more
}

// CatalogTopic says which combinations of tag values a topic takes, and which rule
// packages judge its records.
type CatalogTopic struct {
	Allow    []map[string][]string `yaml:"allow"`    // each entry: dimension → values; every combination of them
	Packages []string              `yaml:"packages"` // names after residency.rules.
}

func badCatalog(field, value, hint string) error {
	return &api.Error{Code: api.ConfigInvalid, Op: "check catalog", Field: field, Value: value, Hint: hint}
}

// Check refuses a catalog that is not whole or does not fit the federation.
func (c *Catalog) Check(f *regions.Federation) error {
	if c.Serial < 1 {
		return badCatalog("serial", fmt.Sprint(c.Serial), "a whole number from 1, higher with every change")
	}
	for _, step := range []func(*regions.Federation) error{c.checkDimensions, c.checkClasses, c.checkTopics, c.checkManifestTopics} {
		if err := step(f); err != nil {
			return err
		}
	}
	return nil
}

func (c *Catalog) checkDimensions(f *regions.Federation) error {
	if len(c.Dimensions) > MaxDimensions {
		return badCatalog("dimensions", fmt.Sprint(len(c.Dimensions)), fmt.Sprintf("at most %d dimensions", MaxDimensions))
	}
	if len(c.Dimensions[regions.ResidencyTag]) == 0 {
		return badCatalog("dimensions."+regions.ResidencyTag, "", "residency is always a dimension: list the boundaries and global")
	}
	for name, values := range c.Dimensions {
		if err := checkWords("dimensions."+name, append([]string{name}, values...), "give at least one value"); err != nil {
			return err
		}
	}
	known := append(f.Boundaries(), regions.GlobalResidency)
	for _, v := range c.Dimensions[regions.ResidencyTag] {
		if !slices.Contains(known, v) {
			return badCatalog("dimensions."+regions.ResidencyTag, v, hintNearest("no boundary of the federation; ", v, known))
		}
	}
	return nil
}

func (c *Catalog) checkClasses(f *regions.Federation) error {
	if len(f.Regions()) > MaxValues {
		return badCatalog("regions", fmt.Sprint(len(f.Regions())), fmt.Sprintf("at most %d regions", MaxValues))
	}
	return checkWords("principal_classes", append([]string{"class"}, c.Classes...), "name at least one class of principals")
}

// checkWords takes the name of a set and its values: lower-case words, none
// reserved, none twice.
func checkWords(field string, words []string, empty string) error {
	if len(words) < 2 {
		return badCatalog(field, "", empty)
	}
	if len(words) > MaxValues+1 {
		return badCatalog(field, fmt.Sprint(len(words)-1), fmt.Sprintf("at most %d values", MaxValues))
	}
	seen := map[string]bool{}
	for i, w := range words {
		switch {
		case w == None || w == "unknown":
			return badCatalog(field, w, "the word is reserved for what does not apply or is not known")
		case !plainWord(w):
			return badCatalog(field, w, "lower-case letters, digits, '-' and '_', starting with a letter, at most 63")
		case i > 0 && seen[w]:
			return badCatalog(field, w, "the value is listed twice")
		}
		seen[w] = i > 0
	}
	return nil
}

func plainWord(w string) bool {
	if w == "" || len(w) > 63 || w[0] < 'a' || w[0] > 'z' {
		return false
	}
	for i := range len(w) {
		b := w[i]
		if (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '-' && b != '_' {
			return false
		}
	}
	return true
}

func (c *Catalog) checkTopics(f *regions.Federation) error {
	for _, name := range slices.Sorted(maps.Keys(c.Topics)) {
		if err := regions.CheckName(name); err != nil {
			return badCatalog("topics", name, err.Error())
		}
		if err := c.checkTopic("topics."+name, c.Topics[name]); err != nil {
			return err
		}
		if t, ok := f.Topic(name); ok {
			if err := c.checkHome(f, t); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Catalog) checkTopic(field string, t CatalogTopic) error {
	if len(t.Allow) == 0 {
		return badCatalog(field+".allow", "", "list at least one combination of tag values")
	}
	if len(t.Allow) > MaxEntries {
		return badCatalog(field+".allow", fmt.Sprint(len(t.Allow)), fmt.Sprintf("at most %d entries: one entry may list many values", MaxEntries))
	}
	if len(t.Packages) == 0 {
		return badCatalog(field+".packages", "", "name the rule packages that judge the topic")
	}
	var first []string
	for i, entry := range t.Allow {
		at := fmt.Sprintf("%s.allow[%d]", field, i)
		dims := slices.Sorted(maps.Keys(entry))
		if i == 0 {
			first = dims
		}
		if !slices.Equal(dims, first) {
			return badCatalog(at, strings.Join(dims, ","), "every entry of a topic names the same dimensions: "+strings.Join(first, ", "))
		}
		if !slices.Contains(dims, regions.ResidencyTag) {
			return badCatalog(at, strings.Join(dims, ","), "every combination names its residency")
		}
		if err := c.checkEntry(at, entry); err != nil {
			return err
		}
	}
	return nil
}

func (c *Catalog) checkEntry(at string, entry map[string][]string) error {
	for _, dim := range slices.Sorted(maps.Keys(entry)) {
		values, ok := c.Dimensions[dim]
		if !ok {
			return badCatalog(at, dim, hintNearest("unknown dimension; ", dim, slices.Sorted(maps.Keys(c.Dimensions))))
		}
		if len(entry[dim]) == 0 {
			return badCatalog(at+"."+dim, "", "list at least one value")
		}
		for _, v := range entry[dim] {
			if !slices.Contains(values, v) {
				return badCatalog(at+"."+dim, v, hintNearest("not a value of the dimension; ", v, values))
			}
		}
	}
	return nil
}

// checkHome refuses a topic with one log whose records may not all rest at that
// log's home.
func (c *Catalog) checkHome(f *regions.Federation, t *regions.Topic) error {
	if t.Writes != regions.WritesHome {
		return nil
	}
	for i, entry := range c.Topics[t.Name].Allow {
		for _, residency := range entry[regions.ResidencyTag] {
			if !f.MayRest(residency, t.Home) {
				return badCatalog(fmt.Sprintf("topics.%s.allow[%d].residency", t.Name, i), residency,
					fmt.Sprintf("the topic has one log, in %s, where a record of this residency may not rest: records of several boundaries need writes: local", t.Home))
			}
		}
	}
	return nil
}

func (c *Catalog) checkManifestTopics(f *regions.Federation) error {
	for _, name := range f.Topics() {
		if _, ok := c.Topics[name]; !ok {
			return badCatalog("topics", name, hintNearest("a topic of federation.yaml that the catalog does not know; ", name, slices.Sorted(maps.Keys(c.Topics))))
		}
	}
	return nil
}

// Packages lists the rule packages that the topics name, sorted.
func (c *Catalog) Packages() []string {
	seen := map[string]bool{}
	for _, t := range c.Topics {
		for _, p := range t.Packages {
			seen[p] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
