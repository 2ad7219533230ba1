// Package testpmd gives commands to DPDK's testpmd, and has it send packets and count those
// that come back. It also runs other applications: it is the kit of the tests that run them.
package testpmd

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/pkg/difftest"
)

// Patience is for a machine that is busy with more than two programs which never sleep.
const Patience = 2 * time.Minute

// Arguments are those after the device's: no hugepages, its prompt, and the main thread and its
// worker on all processors that we may use.
func Arguments(t *testing.T) []string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	difftest.Must(t, err)
	_, list, _ := strings.Cut(string(status), "\nCpus_allowed_list:\t")
	list, _, _ = strings.Cut(list, "\n")
	return []string{"--no-huge", "--no-shconf", "-m", "64", fmt.Sprintf("--lcores=0@(%s),1@(%s)", list, list), "--", "-i", "--no-mlockall", "--total-num-mbufs=2048"}
}

// An Application is a command that runs.
type Application struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu  sync.Mutex
	out strings.Builder
}

// Run starts a command, which ends with the test at the latest.
func Run(t *testing.T, cmd *exec.Cmd) *Application {
	t.Helper()
	a := &Application{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = a, a
	difftest.Must(t, cmd.Start())
	go func() { _ = cmd.Wait(); close(a.ended) }()
	t.Cleanup(func() {
		a.End()
		if t.Failed() {
			t.Logf("%s\n%s", cmd, a.Said())
		}
	})
	return a
}

// Write takes what the command prints.
func (a *Application) Write(text []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.Write(text)
}

// Said returns what the command has printed.
func (a *Application) Said() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.String()
}

// End ends the command by SIGTERM, or kills it if it hangs.
func (a *Application) End() {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.ended:
	case <-time.After(20 * time.Second):
		a.Kill()
	}
}

// Kill ends the command by SIGKILL.
func (a *Application) Kill() {
	_ = a.cmd.Process.Kill()
	<-a.ended
}

// A Prompt is where testpmd takes commands.
type Prompt struct {
	*Application
	stdin io.Writer
}

// Start runs a command that leads to the prompt until the end of the test, which kills it. Its
// output must not be kept back: stdbuf -oL.
func Start(t *testing.T, cmd *exec.Cmd) *Prompt {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	difftest.Must(t, err)
	p := &Prompt{Run(t, cmd), stdin}
	t.Cleanup(p.Kill)
	return p
}

// ask gives a command again and again until the answer has the text, and is false if it had
// not within the time.
func (p *Prompt) ask(t *testing.T, within time.Duration, command, want string) bool {
	t.Helper()
	from := len(p.Said())
	for deadline := time.Now().Add(within); !strings.Contains(p.Said()[from:], want); {
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

// Must gives a command until the answer has the text.
func (p *Prompt) Must(t *testing.T, command, want string) {
	t.Helper()
	if !p.ask(t, Patience, command, want) {
		t.Fatalf("%s: no answer has %q", command, want)
	}
}

// Tell gives commands that have no answer.
func (p *Prompt) Tell(commands ...string) { fmt.Fprintln(p.stdin, strings.Join(commands, "\n")) }

// Burst sends 32 packets to the peers, or to a switch that is none of ours, which send them back:
// all have then received and sent them. DPDK's vhost now and then misses what comes right after it
// has connected: then the burst is sent again.
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
		for _, p := range all { // who looks at a ring that is gone may crash
			p.Must(t, "stop", "Packet forwarding not started")
		}
		if arrived {
			return
		}
	}
	t.Fatal("no burst came back")
}
