// Package difftest has helpers for tests: compare values and texts, end a test on an error, wait, and read and write
// files.
package difftest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// Equal fails the test if got and want differ.
func Equal(t testing.TB, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Same is like Equal, with a name for the failure.
func Same(t testing.TB, what string, got, want any, options ...cmp.Option) {
	t.Helper()
	if d := cmp.Diff(want, got, options...); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// Contains fails the test for each part that the text does not contain.
func Contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}

// Lacks fails the test for each part that the text contains.
func Lacks(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("%q in\n%s", part, text)
		}
	}
}

// Says fails the test unless err is an error whose text contains all parts.
func Says(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	Contains(t, err.Error(), parts...)
}

// Is fails the test unless err is or wraps target.
func Is(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("got %v, want %v", err, target)
	}
}

// As returns the error of type E in err's chain. It ends the test if there is none.
func As[E error](t testing.TB, err error) E {
	t.Helper()
	found, ok := errors.AsType[E](err)
	if !ok {
		t.Fatalf("got %v, want %T", err, found)
	}
	return found
}

// Must ends the test on an error.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until so returns true. It ends the test with the message "never ", followed by what, after three
// minutes.
func Eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for limit := time.Now().Add(3 * time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("never %s", what)
		}
	}
}

// Read returns the content of a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	Must(t, err)
	return string(text)
}

// Write writes a file, and creates its directory.
func Write(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	Must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode))
}

// Names returns the names of the entries in a directory.
func Names(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	Must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Files returns the paths of all files below directories. It ignores missing directories.
func Files(t testing.TB, dirs ...string) (paths []string) {
	t.Helper()
	for _, dir := range dirs {
		Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && !d.IsDir() {
				paths = append(paths, path)
			}
			return err
		}))
	}
	return paths
}

// Pages returns the texts of Markdown files. Each path is a file, or a directory with its subdirectories.
func Pages(t testing.TB, paths ...string) (texts []string) {
	t.Helper()
	for _, file := range Files(t, paths...) {
		if filepath.Ext(file) == ".md" {
			texts = append(texts, Read(t, file))
		}
	}
	return texts
}

// Blocks returns the code blocks of a language, such as sh, in pages.
func Blocks(t testing.TB, path, language string) (blocks []string) {
	t.Helper()
	for _, page := range Pages(t, path) {
		for n, part := range strings.Split(page, "```") {
			if block, ok := strings.CutPrefix(part, language+"\n"); ok && n%2 == 1 {
				blocks = append(blocks, block)
			}
		}
	}
	return blocks
}

// Block returns the first code block of a language that contains a text. It ends the test if the pages have none.
func Block(t testing.TB, path, language, text string) string {
	t.Helper()
	blocks := Blocks(t, path, language)
	n := slices.IndexFunc(blocks, func(block string) bool { return strings.Contains(block, text) })
	if n < 0 {
		t.Fatalf("%s has no code block %s with %q", path, language, text)
	}
	return blocks[n]
}

// Commands returns the arguments of each call of a program in the code of pages, without those after "--". It ends the
// test if there are few.
func Commands(t testing.TB, program string, paths ...string) (commands [][]string) {
	t.Helper()
	call := regexp.MustCompile("(?:^|[ |;(/])" + program + `((?: [^\s|;&)#]+)*)`)
	for _, page := range Pages(t, paths...) {
		for n, part := range strings.Split(page, "```") {
			lines := strings.Split(part, "\n")
			if n%2 == 0 {
				lines = regexp.MustCompile("`[^`]+`").FindAllString(part, -1)
			}
			for _, line := range lines {
				line, _, _ = strings.Cut(strings.Join(strings.Fields(strings.Trim(line, "`")), " "), " #")
				for _, found := range call.FindAllStringSubmatch(line, -1) {
					own, _, _ := strings.Cut(found[1], " -- ")
					commands = append(commands, strings.Fields(own))
				}
			}
		}
	}
	if len(commands) < 10 {
		t.Fatalf("the pages call %s %d times", program, len(commands))
	}
	return commands
}

// Holds fails the test unless the directory contains exactly these names.
func Holds(t testing.TB, dir string, names ...string) {
	t.Helper()
	Same(t, "in "+dir, Names(t, dir), names)
}

// ProcessorTime returns the processor time of this process, which other load on the machine does not increase.
func ProcessorTime(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// ReadCalls returns the number of read system calls of this process. The runtime makes some of them, and pipes of other
// processes take a varying number.
func ReadCalls(t testing.TB) (calls int) {
	t.Helper()
	_, after, _ := strings.Cut(Read(t, "/proc/self/io"), "syscr: ")
	_, err := fmt.Sscan(after, &calls)
	Must(t, err)
	return calls
}

// A Log may be read while it is written.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *Log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Unprintable has characters that a terminal or a reader obeys: escape sequences of 7 and 8 bits, control characters, and
// characters that change the writing direction or the line.
const Unprintable = "\x1b[31m\x07\u009b31m\u202e\u2066\u200f\u2028\u0085\x7f"

// NotRaw fails the test if the output of a command has a character that must not reach a terminal.
func NotRaw(t testing.TB, command, output string) {
	t.Helper()
	for _, r := range output {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			t.Errorf("%q prints %q in %q", command, r, output)
		}
	}
}
