package cniexec

import (
	"bytes"
	"fmt"
)

// Reason says what kind of failure an [Error] is.
type Reason string

// After missing and node the plugin has not run.
const (
	ReasonPlugin  Reason = "plugin"  // the plugin says so: the error wraps its *types.Error
	ReasonDied    Reason = "died"    // it ended without a CNI error
	ReasonTimeout Reason = "timeout" // it was ended at its limit
	ReasonOutput  Reason = "output"  // it printed no CNI result, or too much
	ReasonMissing Reason = "missing" // there is no such plugin
	ReasonNode    Reason = "node"    // it could not be started
)

// An Error says why a plugin was not run, or failed. Paths in it are those that the
// plugin was to be run by, without [Exec.Root].
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// NotRun says that the plugin has done nothing.
func (e *Error) NotRun() bool { return e.Reason == ReasonMissing || e.Reason == ReasonNode }

func failed(reason Reason, format string, args ...any) *Error {
	return &Error{reason, fmt.Errorf(format, args...)}
}

// abridged is enough of an output for a message.
func abridged(text []byte) []byte {
	if text = bytes.TrimSpace(text); len(text) > enough {
		return append(text[:enough:enough], "..."...)
	}
	return text
}
