package doctor

import (
	"encoding/json"
	"errors"
	"time"
)

// Result of one check.
type Result string

// The results. What was not checked is never called passed.
const (
	Passed     Result = "passed"
	Failed     Result = "failed"
	NotChecked Result = "not checked"
)

// Check is one question and what came of it.
type Check struct {
	Name   string `json:"name"`
	Claim  string `json:"claim"` // what must hold
	Result Result `json:"result"`
	Why    string `json:"why,omitempty"` // it failed, or was not checked
	// Acked is how many records the check stands on, Lost how many of them were missing
	// afterwards. In JSON both are left out where nothing was acknowledged.
	Acked int `json:"acked"`
	Lost  int `json:"lost"`
}

// MarshalJSON leaves out the counts of a check that stands on no records: 0 lost would be a
// finding.
func (c Check) MarshalJSON() ([]byte, error) {
	type plain Check
	if c.Acked > 0 {
		return json.Marshal(plain(c))
	}
	return json.Marshal(struct {
		plain
		Acked int `json:"acked,omitempty"`
		Lost  int `json:"lost,omitempty"`
	}{plain: plain(c)})
}

// Speed is how fast the disk did what was asked of it, with a window of 256 records of
// 1 KiB in flight. Times are in seconds.
type Speed struct {
	Seconds          float64 `json:"seconds"` // for which the disk was loaded
	RecordsPerSecond float64 `json:"records_per_second"`
	Syncs            int     `json:"syncs"`
	SyncP50          float64 `json:"sync_p50_seconds"`
	SyncP99          float64 `json:"sync_p99_seconds"`
	SyncMax          float64 `json:"sync_max_seconds"`
	AckP50           float64 `json:"ack_p50_seconds"`
	AckP99           float64 `json:"ack_p99_seconds"`
}

// Certificate is what an examination found. It holds for the machine, the versions and the
// time that stand in it.
type Certificate struct {
	Format    int       `json:"format"` // 1
	Made      time.Time `json:"made"`
	Host      string    `json:"host"` // the machine's name; "": not known
	Root      bool      `json:"root"` // it was made as root, which the power cut needs
	Machine   Machine   `json:"machine"`
	Versions  Versions  `json:"versions"`
	Verdict   Result    `json:"verdict"` // failed: a check failed; not checked: none did, and some were not made
	Checks    []Check   `json:"checks"`
	Speed     *Speed    `json:"speed,omitempty"` // nil: nothing was measured
	NotProven []string  `json:"not_proven"`
}

// Versions of what took part.
type Versions struct {
	Domicile string `json:"domicile"`
	Binary   string `json:"binary_sha256"` // of the program that was run; "": not known
	Go       string `json:"go"`
	Broker   string `json:"broker"`
	Kernel   string `json:"kernel"`
}

// errSlow: the machine or the disk was too slow for the check. Nothing was acknowledged that
// should not have been, and the claim was not tried.
type errSlow string

func (e errSlow) Error() string { return string(e) + "; try again on a quieter machine" }

// fail takes what kept a check from its end.
func (c *Check) fail(err error) {
	c.Result, c.Why = Failed, err.Error()
	if slow := errSlow(""); errors.As(err, &slow) {
		c.Result = NotChecked
	}
}

// verdict sums the checks up.
func verdict(checks []Check) Result {
	sum := Passed
	for _, c := range checks {
		switch c.Result {
		case Failed:
			return Failed
		case NotChecked:
			sum = NotChecked
		}
	}
	return sum
}

// notProven is what no program on the machine can see.
func notProven(m *Machine) []string {
	open := []string{
		"that the device keeps what it reports as synced when its own power goes: only pulling the plug under load shows that",
		"the power cut of this very file system: the one that was made is of an ext4 in a file, of which a copy is taken as it stands at that moment",
		"sectors that are torn by a power cut in mid-write, and damage that comes later: records have checksums for that, and topic verify looks",
		"other disks, kernels and versions than those named here",
	}
	if m.WriteCache == "write back" {
		open[0] += "; this device has a volatile write cache, which syncs have to empty"
	}
	return open
}
