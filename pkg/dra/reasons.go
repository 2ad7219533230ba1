package dra

import (
	"errors"
	"fmt"
	"io/fs"

	"devinfo-cni.io/pkg/cniexec"
)

// The reasons for which a run of a CNI network fails: see [Metrics].
const (
	ReasonPlugin  = string(cniexec.ReasonPlugin)  // the plugin says so, with a CNI error
	ReasonDied    = string(cniexec.ReasonDied)    // the plugin ended without a CNI error
	ReasonTimeout = string(cniexec.ReasonTimeout) // the plugin hung
	ReasonMissing = string(cniexec.ReasonMissing) // there is no such plugin
	ReasonOutput  = string(cniexec.ReasonOutput)  // the plugin printed no CNI result
	ReasonInfo    = "info"                        // the plugin wrote an invalid device-info file
	ReasonNode    = string(cniexec.ReasonNode)    // this node cannot do it: a disk is full, say
)

// execError is an error with its reason.
type execError struct {
	reason string
	err    error
}

func (e *execError) Error() string { return e.err.Error() }
func (e *execError) Unwrap() error { return e.err }

// reasoned puts into err what it is about, and keeps its reason.
func reasoned(err error, format string, args ...any) error {
	return &execError{reasonOf(err), fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)}
}

// reasonOf is "" for nil. What has no reason comes from libcni, about what a plugin
// printed, unless it is about a file.
func reasonOf(err error) string {
	var reason *execError
	var run *cniexec.Error
	var path *fs.PathError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &reason):
		return reason.reason
	case errors.As(err, &run):
		return string(run.Reason)
	case errors.As(err, &path):
		return ReasonNode
	}
	return ReasonOutput
}
