//go:build race

package fabric_test

// raceDetector: the detector slows a child process fivefold and sees nothing of what
// a power cut test is about.
const raceDetector = true
