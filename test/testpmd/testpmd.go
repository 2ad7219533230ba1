// Package testpmd gives commands to DPDK's testpmd, and has it send packets and count those
// that come back. It is a kit of the tests that run applications.
package testpmd

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is for a machine that is busy with more than two programs which never sleep.
const Patience = 2 * time.Minute

// Arguments are those after the device's: no hugepages, its prompt, and the main thread and its
// worker on all processors that we may use.
func Arguments(t *testing.T) []string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(status), "\nCpus_allowed_list:\t")
	list, _, _ = strings.Cut(list, "\n")
	return []string{"--no-huge", "--no-shconf", "-m", "64", fmt.Sprintf("--lcores=0@(%s),1@(%s)", list, list), "--", "-i", "--no-mlockall", "--total-num-mbufs=2048"}
}

// A Prompt is where it takes commands.
type Prompt struct {
	cmd   *exec.Cmd
	stdin io.Writer
	ended chan struct{}

	mu  sync.Mutex
	out strings.Builder
}

// Start runs a command that leads to the prompt until the end of the test. Its output must not
// be kept back: stdbuf -oL.
func Start(t *testing.T, cmd *exec.Cmd) *Prompt {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &Prompt{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s\n%s", cmd, p.said(0))
		}
	})
	return p
}

// Write takes what the command prints.
func (p *Prompt) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(text)
}

func (p *Prompt) said(from int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()[from:]
}

// Kill ends the command.
func (p *Prompt) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// ask gives a command again and again until the answer has the text, and is false if it had
// not within the time.
func (p *Prompt) ask(t *testing.T, within time.Duration, command, want string) bool {
	t.Helper()
	from := len(p.said(0))
	for deadline := time.Now().Add(within); !strings.Contains(p.said(from), want); {
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
