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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// A part is one line of the answer to a request, whose body is the command's standard input. The last one has the exit
// status.
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
		err = http.ListenAndServe(os.Args[2], http.HandlerFunc(answer))
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

func answer(w http.ResponseWriter, r *http.Request) {
	control, parts, mu := http.NewResponseController(w), json.NewEncoder(w), sync.Mutex{}
	_ = control.EnableFullDuplex() // HTTP/1 can
	send := func(p part) error {
		mu.Lock()
		defer mu.Unlock()
		return errors.Join(parts.Encode(p), control.Flush())
	}
	status := 127
	if err := run(r, send); err == nil {
		status = 0
	} else if exit := new(exec.ExitError); errors.As(err, &exit) && exit.Exited() {
		status = exit.ExitCode()
	} else {
		_ = send(part{Err: []byte(err.Error() + "\n")})
	}
	_ = send(part{Status: &status})
	_, _ = io.Copy(io.Discard, r.Body) // closing the connection before could lose the answer
}

// run runs the command, and kills it when the caller ends.
func run(r *http.Request, send func(part) error) error {
	asked := r.URL.Query()
	if len(asked["command"]) == 0 {
		return errors.New("no command")
	}
	cmd := exec.CommandContext(r.Context(), asked["command"][0], asked["command"][1:]...) // until the caller ends after the input
	cmd.Env = append(os.Environ(), asked["variable"]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Stdout = stream(func(data []byte) error { return send(part{Out: data}) })
	cmd.Stderr = stream(func(data []byte) error { return send(part{Err: data}) })
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(stdin, r.Body) // until the command closes its standard input
		stdin.Close()
		if _, err := io.Copy(io.Discard, r.Body); err != nil { // the caller ended before the input
			_ = cmd.Cancel()
		}
	}()
	return cmd.Wait()
}

// A stream is the command's standard output or standard error.
type stream func(data []byte) error

func (s stream) Write(data []byte) (int, error) { return len(data), s(data) }

func ask(address string, command []string) (status int, err error) {
	asked := url.Values{"command": command}
	for _, variable := range os.Environ() {
		if strings.HasPrefix(variable, "E2E_") {
			asked.Add("variable", variable)
		}
	}
	client := http.Client{Transport: &http.Transport{}} // without a proxy
	answer, err := client.Post("http://"+address+"/?"+asked.Encode(), "", os.Stdin)
	if err != nil {
		return 255, err
	}
	for parts := json.NewDecoder(answer.Body); ; {
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
