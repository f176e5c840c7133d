package main

import (
	"encoding/json"
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

// errorView is an error as scripts read it, one object on one line of stderr.
type errorView struct {
	Error    string     `json:"error"` // the whole, as people read it
	Exit     exitCode   `json:"exit_code"`
	Code     api.Code   `json:"code,omitempty"`
	Stored   api.Stored `json:"stored,omitempty"`
	Action   api.Action `json:"action,omitempty"`
	Op       string     `json:"op,omitempty"`
	Topic    string     `json:"topic,omitempty"`
	Region   string     `json:"region,omitempty"`
	MayBeIn  string     `json:"may_be_in,omitempty"` // of an unknown outcome: the log that may hold it
	Field    string     `json:"field,omitempty"`
	Value    string     `json:"value,omitempty"`
	Reason   string     `json:"reason,omitempty"` // of a refusal by policy, with the rule that decided
	Rule     string     `json:"rule,omitempty"`
	Revision string     `json:"policy_revision,omitempty"`
	Hint     string     `json:"hint,omitempty"`
	Retry    float64    `json:"retry_after_seconds,omitempty"` // left out: no advice
	Drill    string     `json:"drill,omitempty"`
}

func viewError(err error) errorView {
	v := errorView{Error: oneLine(err.Error()), Exit: codeFor(err)}
	var e *api.Error
	if !errors.As(err, &e) {
		return v
	}
	v.Code, v.Stored, v.Action, v.Op, v.Topic, v.Region = e.Code, e.Code.Stored(), e.Code.Action(), e.Op, e.Topic, e.Region
	v.Field, v.Value, v.Reason, v.Rule, v.Revision, v.Hint = e.Field, e.Value, e.Reason, e.Rule, e.Revision, e.Hint
	v.Retry, v.Drill = e.RetryAfter.Seconds(), e.Drill
	if e.Log != (api.LogID{}) {
		v.MayBeIn = e.Log.String()
	}
	return v
}

// printError writes an error on one line of stderr, unless everything was already said.
func (a *app) printError(err error) {
	var o *outcome
	switch {
	case err == nil || errors.As(err, &o):
	case a.json():
		enc := json.NewEncoder(a.err)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(viewError(err)) // where stderr is gone there is nobody to tell
	default:
		fmt.Fprintln(a.err, "domicile: "+oneLine(err.Error()))
	}
}

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}
