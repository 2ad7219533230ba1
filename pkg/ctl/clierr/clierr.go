// Package clierr has errors for people: what is wrong, what to do about it, and the exit code that
// it means.
package clierr

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode"
)

// The exit codes of devinfoctl and kubectl devinfo. The help of both names them too.
const (
	Found = 1 // something is not as it should be, or what was looked at has nothing
	Usage = 2 // the command line is invalid
	Blind = 3 // something is not there, could not be read, or not be done
)

// Error is one that somebody can do something about.
type Error struct {
	Err    error
	Remedy string // "" = the message says it
	Code   int    // 0 = Blind
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ErrFound ends a command that has printed what is wrong: nothing more is said.
var ErrFound = &Error{Err: errors.New("something is wrong"), Code: Found}

// ErrBlind ends a command that has printed what it could not look at.
var ErrBlind = &Error{Err: errors.New("something could not be looked at"), Code: Blind}

// For is an error of what could not be read or done.
func For(err error, remedy string) error { return &Error{Err: err, Remedy: remedy} }

// Rights is what may help an agent that was not permitted something as the user of that number; "" = the
// error is another one. What user 0 lacks it does not know.
func Rights(err error, uid int) string {
	const daemonSet = "in its DaemonSet with the securityContext that deploy/ has"
	switch {
	case !errors.Is(err, fs.ErrPermission):
		return ""
	case uid != 0:
		return "run as root, or " + daemonSet
	}
	return "a user namespace, a missing capability, SELinux or AppArmor may deny that to user 0: run " + daemonSet
}

// Misuse is the error for an invalid command line.
func Misuse(remedy, format string, args ...any) error {
	return &Error{fmt.Errorf(format, args...), remedy, Usage}
}

// Report prints an error of a program, once and with its remedy, and gives the exit code. Before
// the command line was understood an error without a remedy is cobra's.
func Report(to io.Writer, program string, understood bool, err error) int {
	if err == nil {
		return 0
	}
	e := new(Error)
	if errors.As(err, &e) && (e == ErrFound || e == ErrBlind) {
		return e.Code
	}
	if e.Err == nil && !understood {
		e = &Error{Remedy: "see " + program + " --help", Code: Usage}
	}
	fmt.Fprintf(to, "%s: %s\n", program, Lines(err.Error()))
	if e.Remedy != "" {
		fmt.Fprintf(to, "  %s\n", Printable(e.Remedy))
	}
	return cmp.Or(e.Code, Blind)
}

// Lines are lines of text that is safe for a terminal.
func Lines(text string) string { return safe(text, "\n") }

// Printable is text, of one line, that is safe for a terminal.
func Printable(text string) string { return safe(text, "") }

// safe replaces what does not print, but for what is kept.
func safe(text, kept string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || strings.ContainsRune(kept, r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
