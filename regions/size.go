package regions

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is a number of bytes. In files it is written as a number, with one of the
// units KiB, MiB, GiB, TiB if wanted: "512MiB".
type Size int64

var sizeUnits = []struct {
	suffix string
	factor int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

// UnmarshalText reads the written form.
func (s *Size) UnmarshalText(text []byte) error {
	t := strings.TrimSpace(string(text))
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(t, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > (1<<63-1)/u.factor {
			break
		}
		*s = Size(n * u.factor)
		return nil
	}
	return fmt.Errorf("size %q: write a number of bytes, or one with KiB, MiB, GiB or TiB", t)
}

// MarshalText writes the form that UnmarshalText reads.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String uses the largest unit that loses nothing.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if u.factor > 1 && s != 0 && int64(s)%u.factor == 0 {
			return strconv.FormatInt(int64(s)/u.factor, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
