package kernel_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// result is the output of a script that is a delegate.
const result = `echo '{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "'$CNI_NETNS'"}]}'`

// script installs a delegate whose ADD runs the text. Its other verbs do nothing.
func script(t *testing.T, text string) {
	t.Helper()
	file := "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\n" + text + "\n"
	must(t, os.WriteFile(cniDir+"/script", []byte(file), 0o755))
}

const scripted = `{"type": "script"}`

// failsLike checks the code and the beginning of the message of a failed call.
func (a answer) failsLike(t *testing.T, want string) {
	t.Helper()
	e := a.failure(t)
	if got := fmt.Sprintf("%d: %s", e.Code, plain(e.Msg)); a.exit != 1 || !strings.HasPrefix(got, want) {
		t.Errorf("failure:\n%s\nwant it to begin with:\n%s", got, want)
	}
}

// DEL, CHECK and GC run to their end after one or two signals.
func TestSignalLetsOtherVerbsFinish(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const wait = `touch /run/waits; until [ -e ` + goFile + ` ]; do sleep 0.01; done`
		file := "#!/bin/sh\n[ $CNI_COMMAND = ADD ] && { " + result + "; exit; }\n" + wait + "\n"
		must(t, os.WriteFile(cniDir+"/script", []byte(file), 0o755))
		conf := delegates(scripted, bridgeConf)
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			for times := range 3 {
				for _, verb := range []string{"CHECK", "DEL", "GC"} {
					for _, name := range []string{goFile, "/run/waits"} {
						must(t, os.RemoveAll(name))
					}
					if there := files(t, stateDir) != ""; !there {
						call(t, "ADD", pod, conf).ok(t)
					}
					interrupt(t, verb, pod, strings.Replace(conf, "{", `{"cni.dev/valid-attachments": [], `, 1), sig, times)
					if verb != "CHECK" {
						nothingLeft(t, pod)
					}
				}
			}
		}
	})
}

// interrupt sends signals to a call while its delegate runs. The delegate then ends, and the call must succeed.
func interrupt(t *testing.T, verb, pod, conf string, sig syscall.Signal, times int) {
	t.Helper()
	cmd := devinfo(verb, pod, conf)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	eventually(t, "the delegate runs", func() bool { _, err := os.Stat("/run/waits"); return err == nil })
	for range times {
		must(t, cmd.Process.Signal(sig))
		taken(t, cmd.Process.Pid)
	}
	releaseChild(t)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s, %d times %v: %v: %s", verb, times, sig, err, &out)
	}
}

// The journal must keep the largest accepted configuration and its result for DEL.
func TestLargestConfigurationCanBeAddedAndDeleted(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const limit = 8 << 20
		list, end := `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "delegates": [{"type": "script", "note": "`, `"}]}`
		full := list + strings.Repeat("<", limit-len(list)-len(end)) + end // \u003c takes six times the space
		script(t, `printf '{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "%s", "more": "' $CNI_NETNS; head -c 9900000 /dev/zero | tr '\0' x; echo '"}]}'`)
		call(t, "ADD", pod, full+" ").fails(t, 7, "network configuration: has more than 8 MiB")
		prev := call(t, "ADD", pod, full).ok(t)
		delLeavesNothing(t, pod, strings.TrimSuffix(full, "}")+`, "prevResult": `+prev+`}`)
	})
}
