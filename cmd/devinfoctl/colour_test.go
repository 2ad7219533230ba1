package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A state has one colour, whichever command shows it; what has none has no escape.
func TestColoursAreTheSameInAllCommands(t *testing.T) {
	const good, bad = "\x1b[32mok\x1b[0m", "\x1b[31mnetns gone\x1b[0m"
	self, err := os.Executable()
	fatal(t, err)
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
			within(t, command+": "+text, func() bool { return strings.Contains(term.written(), text) })
		}
		if strings.Contains(term.written(), "\x1b[m") {
			t.Errorf("%s: an escape without a colour in %q", command, term.written())
		}
	}
}
