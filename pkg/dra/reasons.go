package dra

import (
	"errors"
	"fmt"
	"io/fs"

	"devinfo-cni.io/pkg/cniexec"
)

// ReasonInfo is of a run of a CNI network that has failed by an invalid device-info file; the other
// reasons are package cniexec's.
const ReasonInfo cniexec.Reason = "info"

// reasoned puts into err what it is about, and keeps its reason.
func reasoned(err error, format string, args ...any) error {
	return &cniexec.Error{Reason: reasonOf(err), Err: fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)}
}

// reasonOf is "" for nil. What has no reason comes from libcni, about what a plugin
// printed, unless it is about a file.
func reasonOf(err error) cniexec.Reason {
	var run *cniexec.Error
	var path *fs.PathError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &run):
		return run.Reason
	case errors.As(err, &path):
		return cniexec.ReasonNode
	}
	return cniexec.ReasonOutput
}
