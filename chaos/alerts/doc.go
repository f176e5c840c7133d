// Package alerts holds tests only: a real Prometheus server watches a federation that is
// broken on purpose. Each alert of deploy/prometheus fires in it or on the samples beside
// the rules, and each query of the dashboard answers. The tests skip themselves where
// Prometheus is not installed.
package alerts
