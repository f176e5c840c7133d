// Package field runs a federation in which each node is a process of its own with a
// disk of its own, inside network and mount namespaces that belong to the test alone.
// There it can do to nodes what the world does to machines: cut packets one way or
// both, throttle a link, kill, stop and continue a process, take the power away, fill
// a disk, make system calls fail. Every cut ends by itself in the kernel, and nothing
// outlives the test process: what it made are children, namespaces and a directory.
//
// It needs root, nft, ip, tc and mkfs.ext4; without them Need says what is missing.
package field
