package api

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code says what went wrong. Act on the code, never on the text.
type Code string

// The code table. Codes are never reused for another meaning.
const (
	// The request itself: fix it, nothing was stored.
	UnknownTopic          Code = "UNKNOWN_TOPIC"
	UnknownRegion         Code = "UNKNOWN_REGION"
	BadName               Code = "BAD_NAME"
	BadID                 Code = "BAD_ID"
	BadKey                Code = "BAD_KEY"
	BadHeader             Code = "BAD_HEADER"
	BadTag                Code = "BAD_TAG"
	UnknownTag            Code = "UNKNOWN_TAG"
	MissingTag            Code = "MISSING_TAG"
	CombinationNotAllowed Code = "COMBINATION_NOT_ALLOWED"
	BodyEmpty             Code = "BODY_EMPTY"
	BodyTooLarge          Code = "BODY_TOO_LARGE"
	HeadersTooLarge       Code = "HEADERS_TOO_LARGE"
	IDReused              Code = "ID_REUSED"
	PositionInvalid       Code = "POSITION_INVALID"
	PositionExpired       Code = "POSITION_EXPIRED"
	CursorAhead           Code = "CURSOR_AHEAD_OF_LOG"
	BadRequest            Code = "BAD_REQUEST"
	ConfigInvalid         Code = "CONFIG_INVALID"
	NotInThisVersion      Code = "NOT_IN_THIS_VERSION"

	// A rule refused it: nothing was stored, retrying changes nothing.
	ResidencyDenied     Code = "RESIDENCY_DENIED"
	TransitDenied       Code = "TRANSIT_DENIED"
	ReadDenied          Code = "READ_DENIED"
	HomeOutsideBoundary Code = "HOME_OUTSIDE_BOUNDARY"
	PolicyError         Code = "POLICY_ERROR"
	PolicySkew          Code = "POLICY_SKEW"
	PermissionDenied    Code = "PERMISSION_DENIED"
	ManifestMismatch    Code = "MANIFEST_MISMATCH"
	HomeLost            Code = "HOME_LOST" // the topic's on_home_loss says stop

	// A state that passes: retry later with the same id, nothing was stored.
	HomeUnreachable   Code = "HOME_UNREACHABLE"
	NotReady          Code = "NOT_READY"
	PolicyUnavailable Code = "POLICY_UNAVAILABLE"
	Overloaded        Code = "OVERLOADED"
	StorageFull       Code = "STORAGE_FULL"
	StorageFailed     Code = "STORAGE_FAILED"
	ShuttingDown      Code = "SHUTTING_DOWN"
	VersionMismatch   Code = "VERSION_MISMATCH"

	// Nobody can say whether it was stored: retry with the same id.
	OutcomeUnknown Code = "OUTCOME_UNKNOWN"

	// An operator's act would lose records that are not copied yet; nothing was done.
	NotCopied Code = "NOT_COPIED"
	// The topic's or the principal's quota is used up; nothing was stored.
	QuotaExceeded Code = "QUOTA_EXCEEDED"
	// A region that the topic's sync set needs is missing; nothing was stored.
	SyncShort Code = "SYNC_SHORT"

	// The placement of logs: what the authority, a home or a target refused. Nothing
	// was changed.
	PlacementRefused     Code = "PLACEMENT_REFUSED"     // a rule forbids it; Value is the rule's id
	Conflict             Code = "CONFLICT"              // decided on a state that is no longer the present one
	Contested            Code = "CONTESTED"             // two authorities gave the log to two homes
	Fenced               Code = "FENCED"                // this region may write the log no longer: its right lapsed, or the epoch ended here
	NotHome              Code = "NOT_HOME"              // another region is the log's home
	AuthorityUnreachable Code = "AUTHORITY_UNREACHABLE" // fewer voters than a majority answer

	// What was asked belongs to an epoch that has ended; nothing was done.
	StaleEpoch Code = "STALE_EPOCH"
	// Where an epoch of the log ended must be known first; nothing was stored.
	HistoryNeeded Code = "HISTORY_NEEDED"
)

// Stored says whether a failed call may have left a record behind.
type Stored string

// The three answers to "was it stored?".
const (
	StoredNo      Stored = "no"
	StoredYes     Stored = "yes"
	StoredUnknown Stored = "unknown"
)

// Action is what the caller should do next.
type Action string

// The actions a code can ask for.
const (
	ActionRetry    Action = "retry_same_id"
	ActionFix      Action = "fix_request"
	ActionRegion   Action = "go_to_region"
	ActionPolicy   Action = "ask_policy_owner"
	ActionOperator Action = "ask_operator"
)

type codeInfo struct {
	stored Stored
	action Action
}

var codes = map[Code]codeInfo{
	UnknownTopic: {StoredNo, ActionFix}, UnknownRegion: {StoredNo, ActionFix}, BadName: {StoredNo, ActionFix},
	BadID: {StoredNo, ActionFix}, BadKey: {StoredNo, ActionFix}, BadHeader: {StoredNo, ActionFix},
	BadTag: {StoredNo, ActionFix}, UnknownTag: {StoredNo, ActionFix}, MissingTag: {StoredNo, ActionFix},
	CombinationNotAllowed: {StoredNo, ActionFix}, BodyEmpty: {StoredNo, ActionFix}, BodyTooLarge: {StoredNo, ActionFix},
	HeadersTooLarge: {StoredNo, ActionFix}, IDReused: {StoredNo, ActionFix}, PositionInvalid: {StoredNo, ActionFix},
	PositionExpired: {StoredNo, ActionFix}, CursorAhead: {StoredNo, ActionOperator}, BadRequest: {StoredNo, ActionFix},
	ConfigInvalid: {StoredNo, ActionFix}, NotInThisVersion: {StoredNo, ActionFix},
	ResidencyDenied: {StoredNo, ActionPolicy}, TransitDenied: {StoredNo, ActionRegion}, ReadDenied: {StoredNo, ActionPolicy},
	HomeOutsideBoundary: {StoredNo, ActionPolicy}, PolicyError: {StoredNo, ActionPolicy}, PolicySkew: {StoredNo, ActionRetry},
	PermissionDenied: {StoredNo, ActionOperator}, ManifestMismatch: {StoredNo, ActionOperator}, HomeLost: {StoredNo, ActionOperator},
	HomeUnreachable: {StoredNo, ActionRetry}, NotReady: {StoredNo, ActionRetry}, PolicyUnavailable: {StoredNo, ActionRetry},
	Overloaded: {StoredNo, ActionRetry}, StorageFull: {StoredNo, ActionRetry}, StorageFailed: {StoredNo, ActionRetry},
	ShuttingDown: {StoredNo, ActionRetry}, VersionMismatch: {StoredNo, ActionOperator},
	OutcomeUnknown: {StoredUnknown, ActionRetry},
	NotCopied:      {StoredNo, ActionOperator}, QuotaExceeded: {StoredNo, ActionRetry}, SyncShort: {StoredNo, ActionRetry},
	PlacementRefused: {StoredNo, ActionOperator}, Conflict: {StoredNo, ActionFix}, Contested: {StoredNo, ActionOperator},
	Fenced: {StoredNo, ActionRetry}, NotHome: {StoredNo, ActionRegion}, AuthorityUnreachable: {StoredNo, ActionRetry},
	StaleEpoch: {StoredNo, ActionOperator}, HistoryNeeded: {StoredNo, ActionRetry},
}

// Known reports whether the code is in the table.
func (c Code) Known() bool { _, ok := codes[c]; return ok }

// Stored is the table's answer to "was it stored?". A code outside the table is
// from a newer version: the honest answer is unknown.
func (c Code) Stored() Stored {
	if i, ok := codes[c]; ok {
		return i.stored
	}
	return StoredUnknown
}

// Action is the table's advice. Unknown codes are retried with the same id.
func (c Code) Action() Action {
	if i, ok := codes[c]; ok {
		return i.action
	}
	return ActionRetry
}

// Retryable reports whether the same request may be sent again as it is.
func (c Code) Retryable() bool { return c.Action() == ActionRetry }

// Refusal reports whether a written rule, not a state, was the reason.
func (c Code) Refusal() bool {
	a := c.Action()
	return a == ActionPolicy || a == ActionRegion || c == PermissionDenied || c == NotCopied || c == PlacementRefused
}

// CertificateExpired is the Value of a PermissionDenied whose reason is that the caller's
// certificate has ended.
const CertificateExpired = "certificate expired"

// Error is the one error type that reaches people and clients. Value never holds
// content of a record (body, key, id, header value).
type Error struct {
	Code       Code
	Op         string // what was being tried
	Topic      string
	Region     string // the region the error is about
	Log        LogID  // of OutcomeUnknown: the log that may hold the record; zero: not known
	Field      string
	Value      string
	Hint       string        // the way out
	RetryAfter time.Duration // 0: no advice
	For        time.Duration // how long the state has lasted; 0: not known
	Revision   string        // policy revision that decided, if one did
	Reason     string        // of a refusal by policy: the stable code of what decided, as D201_FORBIDDEN
	Rule       string        // the author's rule that decided, as package/id; "": none did
	Drill      string        // id of a drill that held links of the region that was asked; "": of none
	Err        error
}

// Error is one line: operation, code, field, value, what decided, cause, hint.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op + ": ")
	}
	b.WriteString(string(e.Code))
	if e.Topic != "" {
		fmt.Fprintf(&b, " topic=%s", e.Topic)
	}
	if e.Region != "" {
		fmt.Fprintf(&b, " region=%s", e.Region)
	}
	if e.Log != (LogID{}) {
		fmt.Fprintf(&b, " log=%s", e.Log)
	}
	if e.Field != "" {
		fmt.Fprintf(&b, " field=%s", e.Field)
	}
	if e.Value != "" {
		fmt.Fprintf(&b, " value=%q", e.Value)
	}
	if e.Reason != "" {
		fmt.Fprintf(&b, " reason=%s", e.Reason)
	}
	if e.Rule != "" {
		fmt.Fprintf(&b, " rule=%s", e.Rule)
	}
	if e.For > 0 {
		fmt.Fprintf(&b, " for=%s", e.For.Round(time.Second))
	}
	if e.Drill != "" {
		fmt.Fprintf(&b, " drill=%s", e.Drill)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, " (%s)", e.Hint)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, &Error{Code: c}) match by code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// CodeOf is the code of an error: "" for nil, OutcomeUnknown for any error that is
// not ours, since nothing else can be said of it.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return OutcomeUnknown
}
