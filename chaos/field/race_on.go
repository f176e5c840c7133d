//go:build race

package field

const raceDetector = true
