package ledger

import "time"

// Crossing is a token of records that was seen on the link from one region to another,
// above its encryption, when it was seen there for the first time.
type Crossing struct {
	From   string    `json:"from"`
	To     string    `json:"to"`
	Lane   string    `json:"lane"`
	Call   string    `json:"call,omitempty"` // what carried it
	Form   string    `json:"form"`           // how it was written
	IDs    []string  `json:"ids"`            // Mark of the id of each record that has this token
	First  time.Time `json:"first"`
	Number int       `json:"number"` // of the token
}

// Line sums what was listened to on one lane from one region to another.
type Line struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Lane   string `json:"lane"`
	Bytes  uint64 `json:"bytes"`
	Opaque uint64 `json:"opaque"` // parts that could not be searched
}

// Placed is a region's own word on where a log has its home.
type Placed struct {
	Region string `json:"region"` // who says so
	Log    string `json:"log"`
	Home   string `json:"home"`
	Epoch  string `json:"epoch"`
	Status string `json:"status"`
}
