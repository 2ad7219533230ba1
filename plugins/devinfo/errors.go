package plugin

import (
	"errors"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/safefile"
	"devinfo-cni.io/pkg/host/link"
)

// The codes of the plugin's errors: the codes of CNI (SPEC.md, "Error"), and from 100 on devinfo's own.
// checkVersion uses code 1, an unsupported cniVersion.
const (
	codeUnsupported  = types.ErrUnsupportedField            // 2: a known key has an unsupported value
	codeEnvironment  = types.ErrInvalidEnvironmentVariables // 4: CNI_ARGS and other variables
	codeIO           = types.ErrIOFailure                   // 5: files, netlink, a delegate that died
	codeDecoding     = types.ErrDecodingFailure             // 6: invalid JSON
	codeConfig       = types.ErrInvalidNetworkConfig        // 7: configuration, node settings, prevResult
	codeNetns        = types.ErrInvalidNetNS                // 8: CNI_NETNS does not exist, or is this process's own namespace
	codeTryAgain     = types.ErrTryAgainLater               // 11: interrupted by a signal
	codeNotAvailable = uint(50)                             // STATUS: ADD could not succeed
	codeLimited      = uint(51)                             // a delegate's STATUS: as 50, and existing containers may lack connectivity

	codeNotFound    = uint(100) // a required device or interface is missing
	codeFileMissing = uint(101) // CHECK: a file that ADD wrote is missing, its journal entry is corrupt, or ADD was killed
	codeMismatch    = uint(102) // two sources name different devices; CHECK: the interface was replaced
	codeInvalidInfo = uint(103) // the device information breaks the specification
	codeHeld        = uint(104) // another pod, or a claim, has the device
)

// A failure is an error with its code, its remedy, and the errors of the cleanup that followed it.
type failure struct {
	code   uint
	err    error
	remedy string
	later  []error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func fail(code uint, err error, remedy string) error {
	return &failure{code: code, err: err, remedy: remedy}
}

// followedBy returns the first error that is not nil. The errors after it become its details.
func followedBy(first error, later ...error) error {
	var rest []error
	for _, err := range later {
		switch {
		case err == nil:
		case first == nil:
			first = err
		default:
			rest = append(rest, err)
		}
	}
	if len(rest) == 0 {
		return first
	}
	return &failure{code: codeOf(first), err: first, later: rest}
}

// translate returns the CNI error to print. The first failure is the message. The details contain a delegate's
// details, the remedy, and later failures.
func translate(err error) error {
	if err == nil {
		return nil
	}
	msg, details := err.Error(), []string(nil)
	if delegate, ok := errors.AsType[*types.Error](err); ok {
		context := strings.TrimSuffix(strings.TrimSuffix(msg, delegate.Error()), ": ")
		msg, details = strings.TrimPrefix(context+": "+delegate.Msg, ": "), []string{delegate.Details}
	}
	details = append(details, remedyOf(err))
	for e := err; e != nil; e = errors.Unwrap(e) {
		if f, ok := e.(*failure); ok {
			for _, l := range f.later {
				details = append(details, "then: "+l.Error())
			}
		}
	}
	details = slices.DeleteFunc(details, func(d string) bool { return d == "" })
	return types.NewError(codeOf(err), msg, strings.Join(details, "; "))
}

// remedyOf returns the remedy of an error: the one given with the error, else that of its kind.
func remedyOf(err error) string {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if f, ok := e.(*failure); ok && f.remedy != "" {
			return f.remedy
		}
	}
	for _, kind := range kinds {
		if kind.is(err) {
			return kind.remedy
		}
	}
	return ""
}

// codeOf returns the code of the outermost failure, else a delegate's code, else that of the error's kind, else codeIO.
func codeOf(err error) uint {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	if delegate, ok := errors.AsType[*types.Error](err); ok && delegate.Code != 0 {
		return delegate.Code
	}
	for _, kind := range kinds {
		if kind.is(err) {
			return kind.code
		}
	}
	return codeIO
}

// kinds are errors of other packages, with their codes and, if the message does not contain one, a remedy.
var kinds = []struct {
	is     func(error) bool
	code   uint
	remedy string
}{
	{as[*config.Problem], codeUnsupported, ""},
	{as[*discovery.ConflictError], codeMismatch, check.Conflict.Remedy()},
	{as[*discovery.MissingError], codeNotFound, "check that it is plugged in and that its name is right (lspci -D, vdpa dev show, /sys/bus/auxiliary/devices)"},
	{as[*discovery.UndescribableError], codeNotFound, ""},
	{as[*devinfo.InvalidError], codeInvalidInfo, ""},
	{as[*devinfo.VersionError], codeInvalidInfo, "install a devinfo that supports this version, or remove the file"},
	{as[*store.CorruptError], codeInvalidInfo, ""},
	{as[*store.NameError], codeConfig, ""},
	{as[*journal.HeldError], codeConfig, "choose one that no other attachment uses; only attachments of one pod may share a socket directory"},
	{as[*journal.ConcurrentChangeError], codeTryAgain, "try again; a runtime must not run two calls for one attachment at the same time"},
	{as[*safefile.BusyError], codeTryAgain, "try again"},
	{as[*journal.FormatError], codeConfig, check.EntryNewer.Remedy()},
	{as[*check.ForeignSpecError], codeMismatch, check.SpecForeign.Remedy()},
	{func(err error) bool { return errors.Is(err, link.ErrNoNetns) }, codeNetns, ""},
}

// checkCodes are the codes of CHECK's problems. Other problems have the code of their cause.
var checkCodes = map[check.Kind]uint{
	check.FileGone: codeFileMissing, check.SpecGone: codeFileMissing, check.Unfinished: codeFileMissing, check.EntryInvalid: codeFileMissing,
	check.FileInvalid: codeInvalidInfo,
	check.Mismatch:    codeMismatch, check.OtherDevice: codeMismatch, check.Conflict: codeMismatch, check.SpecForeign: codeMismatch,
	check.DeviceGone: codeNotFound, check.InterfaceGone: codeNotFound, check.ContainerGone: codeNetns,
}

// checkError adds the code and the remedy to an error of the comparison.
func checkError(err *check.Error) error {
	code, known := checkCodes[err.Kind]
	if !known {
		code = codeOf(err.Err)
	}
	return fail(code, err, err.Remedy())
}

func as[T error](err error) bool {
	_, is := errors.AsType[T](err)
	return is
}
