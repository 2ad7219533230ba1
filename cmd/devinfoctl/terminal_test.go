package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/difftest"
)

var must = difftest.Must

// onTerminal is what devinfoctl writes to a terminal of so many columns.
func onTerminal(t *testing.T, columns uint16, args ...string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals: %v", err)
	}
	defer master.Close()
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	must(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: 50}))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	written := make(chan string)
	go func() {
		var text bytes.Buffer
		_, _ = io.Copy(&text, master) // EIO: it is closed
		written <- text.String()
	}()
	run(args, slave, slave, slave)
	must(t, slave.Close())
	return <-written
}

// A state has one colour, whichever command shows it; what has none has no escape.
func TestColoursAreTheSameInAllCommands(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	const good, bad = "\x1b[32mok\x1b[0m", "\x1b[31mdead\x1b[0m"
	for command, want := range map[string][]string{
		"list":     {good + "\r\n", bad + "\r\n"},
		"check":    {": " + good + "\r\n", ": " + bad + "\r\n"},
		"topology": {": " + bad + "\r\n"},
		"doctor":   {"\x1b[32mok     \x1b[0m  holders", "\x1b[31merror  \x1b[0m  attachments", "\r\ninfo     files"},
	} {
		got := onTerminal(t, 400, "--host", nodeHost, command)
		for _, text := range want {
			if !strings.Contains(got, text) || strings.Contains(got, "\x1b[m") {
				t.Errorf("%s: no %q, or an escape without a colour, in %q", command, text, got)
			}
		}
	}
}

// What matters least is left out first.
func TestANarrowTerminalLosesColumns(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	if got := onTerminal(t, 60, "--host", nodeHost, "list"); !strings.HasPrefix(got, "POD          NETWORK    INTERFACE  DEVICE       STATE\r\n") || !strings.HasSuffix(got, "missing\r\n") {
		t.Errorf("got %q", got)
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	rows := [][]string{{"NETWORK", "DEVICE", "STATE"}, {"a-very-long-network-name", "0000:03:00.5", "netns gone"}, {"b", "", "ok"}}
	for width, want := range map[int][]string{
		0:  {"NETWORK                   DEVICE        STATE", "a-very-long-network-name  0000:03:00.5  netns gone", "b                         -             ok"},
		40: {"NETWORK         DEVICE        STATE", "a-very-…k-name  0000:03:00.5  netns gone", "b               -             ok"},
		20: {"NE…RK  DE…CE  STATE", "a-…me  00……etns gone", "b      -      ok"}, // nothing is left to be cut but the line
	} {
		copied := [][]string{}
		for _, row := range rows {
			copied = append(copied, slices.Clone(row))
		}
		equal(t, fmt.Sprintf("%d columns", width), fit(copied, width), want)
	}
}
