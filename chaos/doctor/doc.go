// Package doctor examines whether an acknowledgement means on this disk and kernel what it
// says: the store of a region runs on a temporary folder of the disk in question, is
// watched at its sync, killed, and has its power taken where that can be had. What was
// found, and what can't be, is a certificate.
package doctor
