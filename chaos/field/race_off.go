//go:build !race

package field

const raceDetector = false
