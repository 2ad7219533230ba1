// Package clierr has errors with a remedy and an exit code.
package clierr

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf16"
)

// The exit codes of devinfoctl and kubectl devinfo. The help of both contains them too.
const (
	Found = 1 // the command has found a problem, or nothing to show, such as a pod without attachments
	Usage = 2 // the command line is invalid
	Blind = 3 // the command failed: the named object does not exist, or part of what it needs could not be read
)

type Error struct {
	Err    error
	Remedy string // "" = the message suffices
	Code   int    // 0 = Blind
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ErrFound ends a command that has printed a problem. Report prints nothing for it.
var ErrFound = &Error{Err: errors.New("something is wrong"), Code: Found}

// ErrBlind ends a command that has printed which data it could not read.
var ErrBlind = &Error{Err: errors.New("something could not be looked at"), Code: Blind}

// For adds a remedy to an error, with exit code Blind.
func For(err error, remedy string) error { return &Error{Err: err, Remedy: remedy} }

// Rights returns the remedy for a permission error of an agent that runs as the user uid. It returns "" for other
// errors. For user 0 the remedy names the possible causes.
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

// Misuse returns the error of an invalid command line.
func Misuse(remedy, format string, args ...any) error {
	return &Error{fmt.Errorf(format, args...), remedy, Usage}
}

// Report prints an error with its remedy and returns the exit code. understood is false if the command line was not
// valid yet; an error without a remedy is then a usage error from cobra.
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
	fmt.Fprintf(Terminal(to), "%s: %s\n", program, err.Error())
	if e.Remedy != "" {
		fmt.Fprintf(Terminal(to), "  %s\n", e.Remedy)
	}
	return cmp.Or(e.Code, Blind)
}

// Few joins the first names, at most most, and appends the number of the other ones.
func Few(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Printable makes text of one line safe for a terminal. It replaces each unprintable character, such as an escape, a control
// character of 8 bits or an override of the writing direction, by its escape in JSON: "\u009b".
func Printable(text string) string { return safe(text, "") }

// Terminal returns a writer for a terminal: Printable for text of several lines. JSON stays the same value.
func Terminal(to io.Writer) io.Writer { return terminal{to} }

type terminal struct{ to io.Writer }

func (t terminal) Write(p []byte) (int, error) {
	if _, err := io.WriteString(t.to, safe(string(p), "\n\t")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// safe escapes unprintable characters except the kept ones. Bytes that are not UTF-8 become U+FFFD.
func safe(text, kept string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) || strings.ContainsRune(kept, r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
