package kernel_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// childLog is where the child plugin notes its calls, a line each.
const childLog = "/run/child.log"

// A play is what the configuration of the child plugin tells it to do on ADD:
// {"type": "child", "play": {"until": "/run/go"}}.
type play struct {
	Until string          `json:"until"` // wait until this file exists
	Spoil string          `json:"spoil"` // write another VF's device information there
	PCIID string          `json:"pciID"` // have it in the result
	Error json.RawMessage `json:"error"` // print it and fail
}

// playChild is the child plugin: the test binary under the name "child".
func playChild() {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	stdin, err := io.ReadAll(os.Stdin)
	must(err)
	var conf struct {
		CNIVersion    string          `json:"cniVersion"`
		RuntimeConfig json.RawMessage `json:"runtimeConfig"`
		PrevResult    json.RawMessage `json:"prevResult"`
		Play          play            `json:"play"`
	}
	must(json.Unmarshal(stdin, &conf))
	verb := os.Getenv("CNI_COMMAND")
	must(note(verb, os.Getenv("CNI_ARGS"), string(conf.RuntimeConfig)))
	if verb != "ADD" {
		return
	}
	if conf.Play.Until != "" {
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if _, err := os.Stat(conf.Play.Until); err == nil {
				break
			}
		}
		must(note("ADD ends"))
	}
	if conf.Play.Spoil != "" {
		must(os.WriteFile(conf.Play.Spoil, []byte(`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:01:10.2"}}`), 0o644))
	}
	switch {
	case conf.Play.Error != nil:
		fmt.Println(string(conf.Play.Error))
		os.Exit(1)
	case conf.Play.PCIID != "":
		fmt.Printf(`{"cniVersion": %q, "interfaces": [{"name": %q, "sandbox": %q, "pciID": %q}]}`+"\n",
			conf.CNIVersion, os.Getenv("CNI_IFNAME"), os.Getenv("CNI_NETNS"), conf.Play.PCIID)
	case conf.PrevResult != nil:
		fmt.Println(string(conf.PrevResult))
	default:
		fmt.Printf(`{"cniVersion": %q, "interfaces": [{"name": %q, "sandbox": %q}]}`+"\n",
			conf.CNIVersion, os.Getenv("CNI_IFNAME"), os.Getenv("CNI_NETNS"))
	}
}

func note(words ...string) error {
	log, err := os.OpenFile(childLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	_, err = fmt.Fprintln(log, strings.TrimSpace(strings.Join(words, " ")))
	return err
}

// childCalls gives the lines since it was last asked.
func childCalls(t *testing.T) string {
	t.Helper()
	calls := read(t, childLog)
	must(t, os.RemoveAll(childLog))
	return calls
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
