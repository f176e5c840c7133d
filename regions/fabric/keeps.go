package fabric

import (
	"fmt"
	"time"

	"domicile/api"
)

// metaKeeps holds, in the stream's metadata, what a log was last told to keep. A start
// with a declaration that keeps less cannot take by that what mirrors do not have yet,
// at whichever node of the region it happens.
const metaKeeps = "domicile-keeps"

// keeps is what of a LogConfig decides how long records stay.
type keeps struct {
	age   time.Duration // 0: no bound
	bytes int64
	hold  bool
}

func (c *LogConfig) keeps() keeps { return keeps{c.MaxAge, c.MaxBytes, c.Hold} }

// within is c with other bounds.
func (c LogConfig) within(k keeps) LogConfig {
	c.MaxAge, c.MaxBytes, c.Hold = k.age, k.bytes, k.hold
	return c
}

// asksMirrors: retention takes only what Safe allows.
func (c *LogConfig) asksMirrors() bool { return c.Hold && c.Safe != nil }

// with keeps what either keeps.
func (k keeps) with(o keeps) keeps {
	age := max(k.age, o.age)
	if k.age == 0 || o.age == 0 {
		age = 0
	}
	return keeps{age, max(k.bytes, o.bytes), k.hold || o.hold}
}

// less names in what k keeps less than o: "max_age: 168h0m0s | 1s".
func (k keeps) less(o keeps) []string {
	var out []string
	all := k.with(o)
	if all.age != k.age {
		out = append(out, fmt.Sprintf("max_age: %s | %s", o.age, k.age))
	}
	if all.bytes != k.bytes {
		out = append(out, fmt.Sprintf("max_bytes: %d | %d", o.bytes, k.bytes))
	}
	if all.hold != k.hold {
		out = append(out, fmt.Sprintf("hold: %v | %v", o.hold, k.hold))
	}
	return out
}

func (k keeps) String() string { return fmt.Sprintf("%d %d %t", k.age, k.bytes, k.hold) }

// parseKeeps reads what String wrote; nil for a log that was never noted.
func parseKeeps(text string) (*keeps, error) {
	if text == "" {
		return nil, nil
	}
	var k keeps
	if n, err := fmt.Sscanf(text, "%d %d %t", &k.age, &k.bytes, &k.hold); err != nil || n != 3 || k.age < 0 || k.bytes <= 0 {
		return nil, fmt.Errorf("what the log is to keep is unreadable")
	}
	return &k, nil
}

// told takes in what the log is told to keep, and returns the bounds that are in force
// from now on.
func (l *store) told(cfg LogConfig) *LogConfig {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.kind != kindHome || l.kept == nil && !cfg.Keep:
		return &cfg
	case cfg.Keep && l.kept != nil:
		cfg = cfg.within(cfg.keeps().with(*l.kept))
	}
	now := cfg.keeps()
	l.kept = &now
	return &cfg
}

// Shortens names in what cfg would keep less of an open home than is in force, which
// comes first: "max_age: 168h0m0s | 1s". Nothing for a log that is not open or that
// nobody told to Keep.
func (f *Fabric) Shortens(cfg LogConfig) []string {
	l, err := f.opened(cfg.ID, "compare bounds")
	if err != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil {
		return nil
	}
	return cfg.keeps().less(*l.kept)
}

// InForce is what an open log is kept within now.
func (f *Fabric) InForce(id api.LogID) (LogConfig, error) {
	l, err := f.opened(id, "read bounds")
	if err != nil {
		return LogConfig{}, err
	}
	return *l.bounds(), nil
}
