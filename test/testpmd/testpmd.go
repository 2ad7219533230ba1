// Package testpmd controls DPDK's testpmd, which sends packets and counts returned ones. It also runs other
// applications for tests.
package testpmd

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/test/difftest"
)

// Patience is the time limit on a machine that is busy with more than two programs.
const Patience = 2 * time.Minute

// Arguments returns the arguments after the device's. They select no hugepages and an interactive prompt. The main
// thread and its worker may run on all available processors.
func Arguments(t *testing.T) []string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	difftest.Must(t, err)
	_, list, _ := strings.Cut(string(status), "\nCpus_allowed_list:\t")
	list, _, _ = strings.Cut(list, "\n")
	return []string{"--no-huge", "--no-shconf", "-m", "64", fmt.Sprintf("--lcores=0@(%s),1@(%s)", list, list), "--", "-i", "--no-mlockall", "--total-num-mbufs=2048"}
}

// An Application is a running command.
type Application struct {
	difftest.Log // its output
	cmd          *exec.Cmd
	ended        chan struct{}
}

// Run starts a command. The end of the test kills it at the latest.
func Run(t *testing.T, cmd *exec.Cmd) *Application {
	t.Helper()
	a := &Application{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = a, a
	difftest.Must(t, cmd.Start())
	go func() { _ = cmd.Wait(); close(a.ended) }()
	t.Cleanup(func() {
		a.End()
		if t.Failed() {
			t.Logf("%s\n%s", cmd, a)
		}
	})
	return a
}

// End stops the command with SIGTERM, or kills it if it does not end.
func (a *Application) End() {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.ended:
	case <-time.After(20 * time.Second):
		a.Kill()
	}
}

// Kill ends the command with SIGKILL.
func (a *Application) Kill() {
	_ = a.cmd.Process.Kill()
	<-a.ended
}

// A Prompt sends commands to testpmd.
type Prompt struct {
	*Application
	stdin io.Writer
}

// Start runs a command with a prompt until the end of the test. Its output must not be buffered, see stdbuf -oL.
func Start(t *testing.T, cmd *exec.Cmd) *Prompt {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	difftest.Must(t, err)
	p := &Prompt{Run(t, cmd), stdin}
	t.Cleanup(p.Kill)
	return p
}

// ask repeats a command until the output contains the text. It returns false if the text does not appear in time.
func (p *Prompt) ask(t *testing.T, within time.Duration, command, want string) bool {
	t.Helper()
	from := len(p.String())
	for deadline := time.Now().Add(within); !strings.Contains(p.String()[from:], want); {
		select {
		case <-p.ended:
			t.Fatalf("%s: testpmd has ended", command)
		case <-time.After(200 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return false
		}
		fmt.Fprintln(p.stdin, command)
	}
	return true
}

// Must repeats a command until the output contains the text, or fails the test.
func (p *Prompt) Must(t *testing.T, command, want string) {
	t.Helper()
	if !p.ask(t, Patience, command, want) {
		t.Fatalf("%s: no answer has %q", command, want)
	}
}

// Tell sends commands without waiting for output.
func (p *Prompt) Tell(commands ...string) { fmt.Fprintln(p.stdin, strings.Join(commands, "\n")) }

// Burst sends 32 packets to the peers, or to an external switch if there are none. They send the packets back, and
// all must have received and sent them. DPDK's vhost sometimes loses packets just after it has connected, so Burst
// repeats the burst.
func Burst(t *testing.T, app *Prompt, peers ...*Prompt) {
	t.Helper()
	const counted = "RX-packets: 32         RX-missed: 0          RX-bytes:  2048\n  RX-errors: 0\n  RX-nombuf:  0         \n  TX-packets: 32 "
	all := append([]*Prompt{app}, peers...)
	for range 10 {
		for _, p := range all {
			p.Must(t, "show port info 0", "Link status: up")
			p.Tell("clear port stats 0")
		}
		for _, p := range peers {
			p.Tell("set fwd io", "start")
		}
		app.Tell("set fwd rxonly", "start tx_first 1")
		arrived := true
		for _, p := range all {
			arrived = arrived && p.ask(t, Patience/10, "show port stats 0", counted)
		}
		for _, p := range all { // a program may crash when it reads a ring that no longer exists
			p.Must(t, "stop", "Packet forwarding not started")
		}
		if arrived {
			return
		}
	}
	t.Fatal("no burst came back")
}
