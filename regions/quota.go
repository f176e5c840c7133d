package regions

// Quota bounds what is published in one region, per second. Zero means no bound.
type Quota struct {
	Records int  `yaml:"records_per_second"`
	Bytes   Size `yaml:"bytes_per_second"` // as api.Record.Size counts
}

// None reports whether nothing is bounded.
func (q Quota) None() bool { return q == Quota{} }

// Check refuses a quota that cannot be meant, with the field below prefix.
func (q Quota) Check(prefix string) error {
	switch {
	case q.Records < 0:
		return bad(prefix+".records_per_second", "", "0 for no bound, or how many records a second")
	case q.Bytes < 0:
		return bad(prefix+".bytes_per_second", "", "0 for no bound, or how many bytes a second")
	}
	return nil
}
