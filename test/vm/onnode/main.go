// Onnode runs commands on the node of ../cluster, which has no sshd:
//
//	onnode -serve ADDRESS             on the node: runs requested commands as root
//	onnode ADDRESS COMMAND [ARG...]   runs COMMAND there, with the variables E2E_* of this process
//
// The command uses the caller's standard input, output and error, and the caller has its exit status. A status of 255
// means that the connection broke. When the caller ends, the command is killed with the other processes of its process
// group. If the program's name is pause it waits forever, as the sandboxes' image.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// A request is the first line of a connection. The command's standard input follows in pieces. Each piece has its
// length in four bytes before it, and an empty piece is the last one. If the connection ends, the caller has ended.
type request struct {
	Command   []string
	Variables []string
}

// A part is one line of the answer. The last one has the exit status.
type part struct {
	Out, Err []byte `json:",omitempty"`
	Status   *int   `json:",omitempty"`
}

func main() {
	status := 255
	err := errors.New("usage: onnode -serve ADDRESS | ADDRESS COMMAND [ARG...]")
	switch {
	case filepath.Base(os.Args[0]) == "pause":
		pause()
		return
	case len(os.Args) == 3 && os.Args[1] == "-serve":
		err = serve(os.Args[2])
	case len(os.Args) > 2:
		status, err = ask(os.Args[1], os.Args[2:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "onnode:", err)
	}
	os.Exit(status)
}

func pause() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}

func serve(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go answer(c)
	}
}

func answer(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return
	}
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil || len(asked.Command) == 0 {
		return
	}
	a := &answerer{to: json.NewEncoder(c)}
	status := 127
	if err := a.run(asked, in); err == nil {
		status = 0
	} else if exit := new(exec.ExitError); errors.As(err, &exit) && exit.Exited() {
		status = exit.ExitCode()
	} else {
		a.send(part{Err: []byte(err.Error() + "\n")})
	}
	a.send(part{Status: &status})
}

// run runs the command, and kills it when the caller ends.
func (a *answerer) run(asked request, in io.Reader) error {
	cmd := exec.Command(asked.Command[0], asked.Command[1:]...)
	cmd.Env = append(os.Environ(), asked.Variables...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = stream{a, false}, stream{a, true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		feed(stdin, in)
		stdin.Close()
		_, _ = in.Read(make([]byte, 1)) // after the input, only the end of the connection can follow
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}()
	return cmd.Wait()
}

// feed writes the received input to a command, until the command closes its standard input.
func feed(stdin io.Writer, in io.Reader) {
	for {
		var length uint32
		if err := binary.Read(in, binary.BigEndian, &length); err != nil || length == 0 {
			return
		}
		if _, err := io.CopyN(stdin, in, int64(length)); err != nil {
			stdin = io.Discard
		}
	}
}

// pieces encodes the input for feed.
type pieces struct{ to io.Writer }

func (p pieces) Write(data []byte) (int, error) {
	if err := binary.Write(p.to, binary.BigEndian, uint32(len(data))); err != nil {
		return 0, err
	}
	return p.to.Write(data)
}

// An answerer writes parts, one at a time.
type answerer struct {
	mu sync.Mutex
	to *json.Encoder
}

func (a *answerer) send(p part) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.to.Encode(p)
}

// A stream is the command's standard output or standard error.
type stream struct {
	a     *answerer
	isErr bool
}

func (s stream) Write(data []byte) (int, error) {
	p := part{Out: data}
	if s.isErr {
		p = part{Err: data}
	}
	if err := s.a.send(p); err != nil {
		return 0, err
	}
	return len(data), nil
}

func ask(address string, command []string) (status int, err error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return 255, err
	}
	defer c.Close()
	asked := request{Command: command}
	for _, variable := range os.Environ() {
		if strings.HasPrefix(variable, "E2E_") {
			asked.Variables = append(asked.Variables, variable)
		}
	}
	if err := json.NewEncoder(c).Encode(asked); err != nil {
		return 255, err
	}
	go func() {
		_, _ = io.Copy(pieces{c}, os.Stdin)
		_, _ = pieces{c}.Write(nil)
	}()
	for parts := json.NewDecoder(c); ; {
		var p part
		if err := parts.Decode(&p); err != nil {
			return 255, fmt.Errorf("the node is gone: %w", err)
		}
		_, _ = os.Stdout.Write(p.Out)
		_, _ = os.Stderr.Write(p.Err)
		if p.Status != nil {
			return *p.Status, nil
		}
	}
}
