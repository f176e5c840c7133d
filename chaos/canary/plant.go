package canary

import "os"

// Plant writes the token of this index, in one form, into a new file in dir and
// returns its path: a leak made on purpose, to see that a scan is red when it
// should be. A form that equals an earlier one for this token is planted as that.
func Plant(dir string, set *Set, token int, form Form) (string, error) {
	text := set.snapshot()[token]
	if written, ok := Forms(text)[form]; ok {
		text = written
	}
	f, err := os.CreateTemp(dir, "planted-*")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString("before " + text + " after")
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return f.Name(), err
}
