// Package admin answers operators from what this node knows by itself: status, lag,
// contracts, explanations, metrics and health. It never asks another region, and a
// figure it does not know is left out or called unknown, never shown as zero.
package admin
