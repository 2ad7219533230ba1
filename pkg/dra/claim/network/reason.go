package network

import (
	"errors"
	"fmt"
	"io/fs"

	"devinfo-cni.io/pkg/core/cniexec"
)

// ReasonInfo is an invalid device-info file. Package cniexec defines the other reasons.
const ReasonInfo cniexec.Reason = "info"

// NodeError wraps an error that prevented the network from running.
func NodeError(err error) error { return &cniexec.Error{Reason: cniexec.ReasonNode, Err: err} }

// WrapReason adds a prefix to err and keeps its reason. It returns nil for nil.
func WrapReason(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &cniexec.Error{Reason: ReasonOf(err), Err: fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)}
}

// ReasonOf returns the reason of an error, or "" for nil. An error without a reason is from libcni, and is
// about a plugin's output or about a file.
func ReasonOf(err error) cniexec.Reason {
	run, is := errors.AsType[*cniexec.Error](err)
	switch {
	case err == nil:
		return ""
	case is:
		return run.Reason
	case errors.As(err, new(*fs.PathError)):
		return cniexec.ReasonNode
	}
	return cniexec.ReasonOutput
}
