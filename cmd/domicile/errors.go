package main

import (
	"errors"
	"fmt"
	"strings"

	"domicile/api"
)

// exitCode is what the process ends with. Scripts act on it.
type exitCode int

const (
	exitOK       exitCode = 0
	exitFailure  exitCode = 1
	exitRefused  exitCode = 2 // a written rule said no
	exitDegraded exitCode = 3
	exitUnknown  exitCode = 4  // nobody can say
	exitUsage    exitCode = 64 // the command line itself is wrong
)

// usageError is a mistake in the command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usage(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// outcome ends a command with a code after everything was already printed.
type outcome struct{ code exitCode }

func (o *outcome) Error() string { return fmt.Sprintf("exit code %d", o.code) }

// ended is nil for exitOK, else an error that prints nothing more.
func ended(code exitCode) error {
	if code == exitOK {
		return nil
	}
	return &outcome{code}
}

// checkFailed is an error of a command that checks: what it found is a failure of
// what was checked, whatever its code would mean for a record.
type checkFailed struct{ error }

func (c checkFailed) Unwrap() error { return c.error }

func codeFor(err error) exitCode {
	var o *outcome
	var u *usageError
	var e *api.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &o):
		return o.code
	case errors.As(err, &u):
		return exitUsage
	case errors.As(err, new(refused)):
		return exitRefused
	case errors.As(err, new(checkFailed)), !errors.As(err, &e):
		return exitFailure
	case e.Code == api.OutcomeUnknown, errors.As(err, new(unanswered)):
		return exitUnknown
	case e.Code.Refusal(), e.Field == "rule": // of a move: the rule whose id is the value
		return exitRefused
	}
	return exitFailure
}

// errorLine is what stderr gets: one line, "" when nothing is left to say.
func errorLine(err error) string {
	var o *outcome
	if err == nil || errors.As(err, &o) {
		return ""
	}
	return oneLine(err.Error())
}

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}
