package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/journal"
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
	fatal(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	fatal(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	fatal(t, err)
	term.resize(columns, rows)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	fatal(t, cmd.Start())
	fatal(t, slave.Close())
	go term.read()
	go func() { term.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, if all went well
		_ = master.Close()
	})
	return term
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (term *terminal) resize(columns, rows uint16) {
	term.t.Helper()
	fatal(term.t, unix.IoctlSetWinsize(int(term.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}))
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

var escapes = regexp.MustCompile("\x1b\\[[?0-9;]*[A-Za-z]")

// screen is what is to be seen: the last picture, from the home position on.
func (term *terminal) screen() string {
	text := term.written()
	text = text[strings.LastIndex(text, home)+1:]
	return strings.ReplaceAll(escapes.ReplaceAllString("\x1b"+text, ""), "\r\n", "\n")
}

func (term *terminal) waitFor(want string) {
	term.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for term.screen() != want {
		if time.Now().After(deadline) {
			term.t.Fatalf("the screen (-want +got):\n%s", cmp.Diff(want, term.screen()))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

const head = "POD     NETWORK  INTERFACE  TYPE  DEVICE        STATE\n"

func TestWatchOnATerminal(t *testing.T) {
	n := newNode(t)
	term := onTerminal(t, n.command("list", "--watch", "--interval", "100ms"), 80, 24)
	term.waitFor("no attachments")
	key := n.put(journal.Entry{Key: container("c0ffee"), Netns: aliveNetns, File: "one", Complete: true})
	term.waitFor(head + "c0ffee  net-a    net1       pci   0000:03:00.5  ok")
	quiet := term.written()
	time.Sleep(350 * time.Millisecond) // three looks: without a change nothing is drawn
	if more := strings.TrimPrefix(term.written(), quiet); more != "" {
		t.Errorf("drawn again without a change: %q", more)
	}
	n.must(store.Open(n.DeviceInfoDir).Remove("one"))
	term.waitFor(head + "c0ffee  net-a    net1       pci   0000:03:00.5  file missing")
	n.put(journal.Entry{Key: container("decade"), Netns: n.noNetns(), Complete: true})
	term.waitFor(head + "c0ffee  net-a    net1       pci   0000:03:00.5  file missing\n" +
		"decade  net-a    net1       pci   0000:03:00.5  netns gone")
	term.resize(54, 24)
	term.waitFor("POD     NETWORK  INTERFACE  DEVICE        STATE\n" +
		"c0ffee  net-a    net1       0000:03:00.5  file missing\n" +
		"decade  net-a    net1       0000:03:00.5  netns gone")
	term.resize(54, 2)
	term.waitFor("POD     NETWORK  INTERFACE  DEVICE        STATE\n… and 2 more")
	n.must(n.drop(key))
	term.resize(80, 24)
	term.waitFor(head + "decade  net-a    net1       pci   0000:03:00.5  netns gone")
	term.end()
}

// end interrupts the program as a user does, by a key.
func (term *terminal) end() {
	t := term.t
	t.Helper()
	_, err := term.master.WriteString("\x03")
	fatal(t, err)
	select {
	case err := <-term.ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("SIGINT did not end it")
	}
	within(t, "the last words", func() bool { return strings.HasSuffix(term.written(), leaveScreen) })
	if text := term.written(); !strings.HasPrefix(text, enterScreen) || strings.Contains(text, "\x1b[2J") {
		t.Errorf("it does not leave the screen as it was, or flickers: %q", text)
	}
}

// lines reads what a program prints, line by line.
func lines(t *testing.T, cmd *exec.Cmd) (next func() string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	fatal(t, err)
	cmd.Stderr = os.Stderr
	fatal(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, if all went well
	all := make(chan string)
	go func() {
		for scan := bufio.NewScanner(out); scan.Scan(); {
			all <- scan.Text()
		}
		close(all)
	}()
	return func() string {
		select {
		case line := <-all:
			return line
		case <-time.After(2 * time.Minute):
			t.Fatal("no more lines")
			return ""
		}
	}
}

var timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

func TestWatchInAPipePrintsChanges(t *testing.T) {
	for format, want := range map[string][]string{
		"table": {
			"TIME added c0ffee net-a net1 pci 0000:03:00.5 ok",
			"TIME changed c0ffee net-a net1 pci 0000:03:00.5 from ok to file missing",
			"TIME removed c0ffee net-a net1 pci 0000:03:00.5",
		},
		"json": {
			`{"event":"added","time":"TIME","attachment":{"network":"net-a","containerID":"c0ffee","ifName":"net1","type":"pci","device":"0000:03:00.5","file":"/cni/one","netns":"/proc/self/ns/net","since":"TIME","state":"ok"}}`,
			`{"event":"changed","time":"TIME","attachment":{"network":"net-a","containerID":"c0ffee","ifName":"net1","type":"pci","device":"0000:03:00.5","file":"/cni/one","netns":"/proc/self/ns/net","since":"TIME","state":"file missing","why":"/cni/one is gone"},"before":"ok"}`,
			`{"event":"removed","time":"TIME","attachment":{"network":"net-a","containerID":"c0ffee","ifName":"net1","type":"pci","device":"0000:03:00.5","file":"/cni/one","netns":"/proc/self/ns/net","since":"TIME","state":"file missing","why":"/cni/one is gone"}}`,
		},
	} {
		n := newNode(t)
		key := n.put(journal.Entry{Key: container("c0ffee"), Netns: aliveNetns, File: "one", Complete: true, Time: time.Unix(1, 0)})
		cmd := n.command("list", "--watch", "--interval", "100ms", "-o", format)
		next := lines(t, cmd)
		steps := []func() error{
			func() error { return nil },
			func() error { return store.Open(n.DeviceInfoDir).Remove("one") },
			func() error { return n.drop(key) },
		}
		for step, do := range steps {
			n.must(do())
			got := timestamp.ReplaceAllString(strings.ReplaceAll(next(), filepath.Dir(n.file), ""), "TIME")
			if diff := cmp.Diff(want[step], got); diff != "" {
				t.Errorf("%s, line %d (-want +got):\n%s", format, step, diff)
			}
		}
		n.must(cmd.Process.Signal(os.Interrupt))
		if rest := next(); rest != "" {
			t.Errorf("%s: and then %q", format, rest)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: it ended with %v", format, err)
		}
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
		if diff := cmp.Diff(want, fit(copied, width)); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", width, diff)
		}
	}
}
