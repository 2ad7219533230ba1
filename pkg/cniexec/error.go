package cniexec

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// Reason says what kind of failure an [Error] is.
type Reason string

// The reasons. After missing, busy and node the plugin has not run.
const (
	ReasonPlugin  Reason = "plugin"  // the plugin says so: the error wraps its *types.Error
	ReasonDied    Reason = "died"    // it ended without a CNI error
	ReasonTimeout Reason = "timeout" // it was ended at its limit
	ReasonOutput  Reason = "output"  // it printed no CNI result, or too much
	ReasonMissing Reason = "missing" // there is no such plugin
	ReasonBusy    Reason = "busy"    // an earlier plugin of the attachment still runs: the error wraps a *BusyError
	ReasonNode    Reason = "node"    // it could not be started, or its lock not be taken
)

// An Error says why a plugin was not run, or failed. Paths in it are those that the
// plugin was to be run by, without [Exec.Root].
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func failed(reason Reason, format string, args ...any) *Error {
	return &Error{reason, fmt.Errorf(format, args...)}
}

// A BusyError says that the lock of an attachment is held: an earlier plugin, whose
// caller was killed, still runs. It is mended by another try, CNI's error code 11.
type BusyError struct {
	Lock    string        // path
	Waited  time.Duration // so long
	Holders string        // "process 4711 (macvlan)", as far as we may see them; or ""
	Cause   error         // of the context, which ended the wait; nil = the limit did
}

func (e *BusyError) Error() string {
	text := "an earlier plugin of this attachment still runs"
	if e.Holders != "" {
		text += ", " + e.Holders
	}
	if e.Cause != nil {
		return fmt.Sprintf("%s, and the wait for it was ended (%v): try again", text, e.Cause)
	}
	return fmt.Sprintf("%s after %v: try again, or find out what it waits for", text, e.Waited)
}

func (e *BusyError) Unwrap() error { return e.Cause }

func notLocked(path string, err error) error {
	reason := ReasonNode
	if busy := (*BusyError)(nil); errors.As(err, &busy) {
		reason = ReasonBusy
	}
	return failed(reason, "%s: not run: %w", path, err)
}

// abridged is enough of an output for a message.
func abridged(text []byte) []byte {
	if text = bytes.TrimSpace(text); len(text) > enough {
		return append(text[:enough:enough], "..."...)
	}
	return text
}
