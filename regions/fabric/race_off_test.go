//go:build !race

package fabric_test

const raceDetector = false
