package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/difftest"
)

// A terminal is a pseudo terminal with a program on it; it remembers all that the
// program writes.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	ended  chan error

	mu   sync.Mutex
	text string
}

// onTerminal starts cmd on a terminal of so many columns and rows.
func onTerminal(t *testing.T, cmd *exec.Cmd, columns, rows uint16) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals: %v", err)
	}
	term := &terminal{t: t, master: master, cmd: cmd, ended: make(chan error, 1)}
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	term.resize(columns, rows)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, cmd.Start())
	must(t, slave.Close())
	go term.read()
	go func() { term.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, if all went well
		_ = master.Close()
	})
	return term
}

var must = difftest.Must

func (term *terminal) resize(columns, rows uint16) {
	term.t.Helper()
	must(term.t, unix.IoctlSetWinsize(int(term.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}))
}

func (term *terminal) read() {
	buffer := make([]byte, 4096)
	for {
		n, err := term.master.Read(buffer)
		if err != nil {
			return // EIO: the program has ended
		}
		term.mu.Lock()
		term.text += string(buffer[:n])
		term.mu.Unlock()
	}
}

func (term *terminal) written() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.text
}

// A state has one colour, whichever command shows it; what has none has no escape.
func TestColoursAreTheSameInAllCommands(t *testing.T) {
	const good, bad = "\x1b[32mok\x1b[0m", "\x1b[31mdead\x1b[0m"
	self, err := os.Executable()
	must(t, err)
	for command, want := range map[string][]string{
		"list":     {good + "\r\n", bad + "\r\n"},
		"check":    {": " + good + "\r\n", ": " + bad + "\r\n"},
		"topology": {": " + bad + "\r\n"},
		"doctor":   {"\x1b[32mok     \x1b[0m  holders", "\x1b[31merror  \x1b[0m  attachments", "\r\ninfo     files"},
	} {
		cmd := exec.Command(self, "--host", nodeHost, command)
		cmd.Env = append(os.Environ(), asTool+"=1", "TERM=xterm", "NO_COLOR=", "GORACE=atexit_sleep_ms=0")
		term := onTerminal(t, cmd, 400, 50)
		<-term.ended // with 1 where something is wrong
		for _, text := range want {
			difftest.Eventually(t, command+": "+text, func() bool { return strings.Contains(term.written(), text) })
		}
		if strings.Contains(term.written(), "\x1b[m") {
			t.Errorf("%s: an escape without a colour in %q", command, term.written())
		}
	}
}

// What matters least is left out first.
func TestANarrowTerminalLosesColumns(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "--host", nodeHost, "list")
	cmd.Env = append(os.Environ(), asTool+"=1", "NO_COLOR=1", "GORACE=atexit_sleep_ms=0")
	term := onTerminal(t, cmd, 60, 50)
	<-term.ended
	difftest.Eventually(t, "the list", func() bool {
		return strings.Contains(term.written(), "POD          NETWORK    INTERFACE  DEVICE       STATE\r\n") && strings.Contains(term.written(), "missing\r\n")
	})
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
