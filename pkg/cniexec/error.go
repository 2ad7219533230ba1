package cniexec

import (
	"bytes"
	"fmt"
)

// Reason is the kind of failure of an [Error].
type Reason string

// With ReasonMissing and ReasonNode the plugin has not run.
const (
	ReasonPlugin  Reason = "plugin"  // the plugin printed a CNI error, a *types.Error, which Error wraps
	ReasonDied    Reason = "died"    // the plugin exited without a CNI error
	ReasonTimeout Reason = "timeout" // the plugin was killed at its time limit
	ReasonOutput  Reason = "output"  // the plugin printed no CNI result, or more than MaxOutput
	ReasonMissing Reason = "missing" // the plugin is not installed
	ReasonNode    Reason = "node"    // the node could not start the plugin
)

// Error is the reason why a plugin was not run, or failed. Paths in it are relative to [Exec.Root].
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// NotRun reports whether the plugin was not started, so it has changed nothing.
func (e *Error) NotRun() bool { return e.Reason == ReasonMissing || e.Reason == ReasonNode }

func failed(reason Reason, format string, args ...any) *Error {
	return &Error{reason, fmt.Errorf(format, args...)}
}

// abridged returns the beginning of an output, for use in a message.
func abridged(text []byte) []byte {
	if text = bytes.TrimSpace(text); len(text) > enough {
		return append(text[:enough:enough], "..."...)
	}
	return text
}
