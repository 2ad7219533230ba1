// Package failure gives errors the codes of CNI and remedies. The plugin prints them as CNI errors; programs that clean
// up for it print their text.
package failure

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
)

// The codes of the plugin's errors: the codes of CNI (SPEC.md, "Error"), and from 100 on devinfo's own.
// Code 1 is an unsupported cniVersion.
const (
	Unsupported  = types.ErrUnsupportedField            // 2: a known key has an unsupported value
	Environment  = types.ErrInvalidEnvironmentVariables // 4: CNI_ARGS and other variables
	IO           = types.ErrIOFailure                   // 5: files, netlink, a delegate that died
	Decoding     = types.ErrDecodingFailure             // 6: invalid JSON
	Config       = types.ErrInvalidNetworkConfig        // 7: configuration, node settings, prevResult
	Netns        = types.ErrInvalidNetNS                // 8: CNI_NETNS does not exist, or is this process's own namespace
	TryAgain     = types.ErrTryAgainLater               // 11: interrupted by a signal
	NotAvailable = uint(50)                             // STATUS: ADD could not succeed
	Limited      = uint(51)                             // a delegate's STATUS: as 50, and existing containers may lack connectivity

	NotFound    = uint(100) // a required device or interface is missing
	FileMissing = uint(101) // CHECK: a file that ADD wrote is missing, its journal entry is corrupt, or ADD was killed
	Mismatch    = uint(102) // two sources name different devices; CHECK: the interface was replaced
	InvalidInfo = uint(103) // the device information breaks the specification
	Held        = uint(104) // another pod, or a claim, has the device
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

// New returns an error with a code and a remedy; "" = the remedy of the error's kind.
func New(code uint, err error, remedy string) error {
	return &failure{code: code, err: err, remedy: remedy}
}

// Join returns the first error that is not nil. The errors after it become its details.
func Join(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	return &failure{code: Code(errs[0]), err: errs[0], later: errs[1:]}
}

// Translate returns the CNI error to print. The first failure is the message. The details contain a delegate's
// details, the remedy, and later failures. The texts are safe for a terminal, whatever they quote.
func Translate(err error) error {
	if err == nil {
		return nil
	}
	msg, details := err.Error(), []string(nil)
	if delegate, ok := errors.AsType[*types.Error](err); ok {
		context := strings.TrimSuffix(strings.TrimSuffix(msg, delegate.Error()), ": ")
		msg, details = strings.TrimPrefix(context+": "+delegate.Msg, ": "), []string{delegate.Details}
	}
	details = append(details, Remedy(err))
	for e := err; e != nil; e = errors.Unwrap(e) {
		if f, ok := e.(*failure); ok {
			for _, l := range f.later {
				details = append(details, "then: "+l.Error())
			}
		}
	}
	details = slices.DeleteFunc(details, func(d string) bool { return d == "" })
	return types.NewError(Code(err), clierr.Printable(msg), clierr.Printable(strings.Join(details, "; ")))
}

// Remedy returns the remedy of an error: the one given with the error, else that of its kind.
func Remedy(err error) string {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if f, ok := e.(*failure); ok && f.remedy != "" {
			return f.remedy
		}
	}
	for _, kind := range kinds() {
		if kind.is(err) {
			return kind.remedy
		}
	}
	return ""
}

// Code returns the code of the outermost failure, else a delegate's code, else that of the error's kind, else IO.
func Code(err error) uint {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	if delegate, ok := errors.AsType[*types.Error](err); ok && delegate.Code != 0 {
		return delegate.Code
	}
	for _, kind := range kinds() {
		if kind.is(err) {
			return kind.code
		}
	}
	return IO
}

type kind struct {
	is     func(error) bool
	code   uint
	remedy string
}

// kinds returns the errors of other packages, with their codes and, if the message does not contain one, a remedy.
func kinds() []kind {
	return []kind{
		{is[*config.Problem], Unsupported, ""},
		{is[*discovery.ConflictError], Mismatch, check.RemedyConflict},
		{is[*discovery.MissingError], NotFound, "check that it is plugged in and that its name is right (lspci -D, vdpa dev show, /sys/bus/auxiliary/devices)"},
		{is[*discovery.UndescribableError], NotFound, ""},
		{is[*devinfo.InvalidError], InvalidInfo, ""},
		{is[*devinfo.VersionError], InvalidInfo, "install a devinfo that supports this version, or remove the file"},
		{is[*store.CorruptError], InvalidInfo, ""},
		{is[*store.NameError], Config, ""},
		{is[*journal.HeldError], Config, "choose one that no other attachment uses; only attachments of one pod may share a socket directory"},
		{is[*journal.ConcurrentChangeError], TryAgain, "try again; a runtime must not run two calls for one attachment at the same time"},
		{is[*store.BusyError], TryAgain, "try again"},
		{is[*journal.FormatError], Config, check.Newer.Remedy()},
		{is[*journal.ExposedError], Config, ""},
		{is[*check.ForeignSpecError], Mismatch, check.RemedyForeignSpec},
		{func(err error) bool { return errors.Is(err, link.ErrNoNetns) }, Netns, ""},
	}
}

// OfCheck adds the code and the remedy to an error of the comparison. In any other state the code is that of the cause.
func OfCheck(err *check.Error) error {
	code, known := map[check.State]uint{
		check.FileMissing: FileMissing, check.Adding: FileMissing, check.Corrupt: FileMissing,
		check.WrongDevice: Mismatch, check.DeviceLost: NotFound, check.InterfaceLost: NotFound, check.Stale: Netns, check.Refused: Held,
	}[err.State]
	if !known {
		code = Code(err.Err)
	}
	return New(code, err, err.Remedy())
}

func is[T error](err error) bool {
	_, is := errors.AsType[T](err)
	return is
}

// OfDelegate adds the delegate and its verb to an error. A delegate's CNI error keeps its code and message. In other
// cases the code is CNI's I/O failure (5), or its decoding failure (6) if the delegate printed no CNI result.
func OfDelegate(verb string, err error) error {
	of, ok := errors.AsType[*cniexec.PluginError](err)
	if !ok {
		return err
	}
	err = fmt.Errorf("delegates[%d] (%s): %s: %w", of.At, of.Plugin, verb, of.Err)
	code, remedy, ran := IO, "", &cniexec.Error{Reason: cniexec.ReasonOutput}
	errors.As(err, &ran) // if err has no *cniexec.Error, libcni could not read the result
	switch ran.Reason {
	case cniexec.ReasonPlugin:
		if own, ok := errors.AsType[*types.Error](err); ok && own.Code != 0 {
			return err
		}
		remedy = "the delegate gave its error no code; see its log"
	case cniexec.ReasonDied:
		remedy = "the delegate ended without a CNI error; see its log"
	case cniexec.ReasonOutput:
		code, remedy = Decoding, "report this to the delegate's authors"
	case cniexec.ReasonMissing:
		remedy = "install the plugin in a directory of CNI_PATH"
	}
	return New(code, err, remedy)
}
