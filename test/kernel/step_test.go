package kernel_test

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/node"
)

// A mishap is a change of the node between two steps of an ADD.
type mishap struct {
	script string
	add    string // beginning of ADD's failure, "code: message"; "ok" = it succeeds
	file   string // content of the device-info file after a successful ADD; "" = no file
	strict bool   // the configuration is strict
}

const (
	itsEntry = stateDir + "/attachments/net@c0ffee@net1"
	notOurs  = "5: " + infoFile + ": not a regular file (mode "
	unplug   = `find /run/sys -depth -name ` + vf + ` -exec rm -r {} +`
	atLease  = stateDir + "/leases/file/net-c0ffee_net1"
	between  = "11: attachment net/c0ffee/net1: another call has added or deleted it at the same time"
	itsTemps = infoDir + "/.net-c0ffee_net1.devinfo " + stateDir + "/attachments/.net@c0ffee@net1.devinfo"
)

var mishaps = map[string]mishap{
	"the file is removed":       {`rm ` + infoFile, "ok", vfFile, false},
	"the file is garbage":       {`echo garbage > ` + infoFile, "ok", vfFile, false},
	"the file is huge":          {`truncate -s 1G ` + infoFile, "5: " + infoFile + ": too large: more than 1 MiB", "", false},
	"the file is a pipe":        {`rm ` + infoFile + `; mkfifo ` + infoFile, notOurs + "prw-r--r--)", "", false},
	"the file is a link":        {`ln -sf /run/victim ` + infoFile, notOurs + "Lrwxrwxrwx)", "", false},
	"the directory is gone":     {`rm -r ` + infoDir, "ok", vfFile, false},
	"the device is unplugged":   {unplug, "ok", "", false}, // a warning
	"strictly unplugged":        {unplug, "100: deviceID names the PCI function " + vf + ", which is not on this node", "", true},
	"/sys is gone":              {`rm -r /run/sys`, "ok", "", false},
	"the journal is gone":       {`rm -r ` + stateDir, between, "", false},
	"our entry is garbage":      {`echo garbage > ` + itsEntry, "ok", vfFile, false},
	"our entry is a pipe":       {`rm ` + itsEntry + `; mkfifo ` + itsEntry, between, "", false},
	"a lease dangles":           {`ln -s ../../../attachments/net@thief@net1 ` + atLease + `/net@thief@net1`, "ok", vfFile, false},
	"the settings are garbage":  {`echo garbage > ` + node.Settings, "ok", vfFile, false},
	"temporary files are there": {`touch ` + itsTemps, "ok", vfFile, false},
}

// The mishap happens before the first delegate, between two, or after the last. ADD succeeds, or fails and undoes
// everything. The DEL after it leaves no state.
func TestMishapsBetweenTwoStepsLeaveNoState(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		must(t, os.WriteFile("/run/victim", []byte("victim"), 0o644))
		for what, m := range mishaps {
			for at := range 3 {
				t.Log(what, at)
				mend := keep(t)
				script(t, m.script+"\n"+result, "")
				conf := delegates(slices.Insert([]string{bridgeConf, `{"type": "child"}`}, at, scripted)...)
				if m.strict {
					conf = strings.Replace(conf, "{", `{"strict": true, `, 1)
				}
				add := call(t, "ADD", pod, conf)
				if m.add == "ok" {
					add.ok(t)
					same(t, "device-info file", read(t, infoFile), m.file)
				} else {
					add.failsLike(t, m.add)
					nothingLeft(t, pod)
				}
				mend()
				delLeavesNothing(t, pod, conf)
				same(t, "the victim", read(t, "/run/victim"), "victim")
			}
		}
	})
}

// keep saves /sys and the node settings, until mend restores them.
func keep(t *testing.T) (mend func()) {
	t.Helper()
	const kept = "/run/kept"
	must(t, os.Rename(node.Sys, kept))
	must(t, os.CopyFS(node.Sys, os.DirFS(kept)))
	settings := read(t, node.Settings)
	return func() {
		t.Helper()
		must(t, os.RemoveAll(node.Sys))
		must(t, os.Rename(kept, node.Sys))
		must(t, os.WriteFile(node.Settings, []byte(settings), 0o644))
	}
}

// A runtime that gives up on a pod may remove its namespace during an ADD.
func TestNetnsRemovedBetweenTwoStepsFailsADD(t *testing.T) {
	onStage(t, func(t *testing.T, _ string) {
		const gone = `8: interface "net1" in NETNS: no such network namespace: no such file or directory`
		for at, want := range []string{`999: delegates[1] (bridge): ADD: failed to open netns "NETNS"`, gone, gone} {
			pod := t.TempDir() + "/netns"
			must(t, os.WriteFile(pod, nil, 0o444))
			must(t, unix.Mount(linktest.NewNetns(t), pod, "", unix.MS_BIND, ""))
			script(t, `umount -l $CNI_NETNS; rm $CNI_NETNS`+"\n"+result, "")
			conf := delegates(slices.Insert([]string{bridgeConf, `{"type": "child"}`}, at, scripted)...)
			call(t, "ADD", pod, conf).failsLike(t, want)
			nothingLeft(t)
			call(t, "DEL", pod, conf).ok(t)
			call(t, "DEL", "", conf).ok(t)
			nothingLeft(t)
		}
	})
}

// A user who controls the path in CNI_NETNS may redirect it to the plugin's own namespace.
func TestRedirectedNetnsGivesOneResult(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		leads := "/run/leads"
		vfs := delegates(scripted)
		socket := strings.Replace(vfs, `"deviceID": "`+vf+`"`, `"deviceInfo": {"type": "memif", "memif": {"role": "master", "path": "/run/m", "mode": "ethernet"}}`, 1)
		for _, conf := range []string{vfs, socket} {
			must(t, os.RemoveAll(leads), os.Symlink(pod, leads))
			script(t, "ln -sfn /proc/self/ns/net "+leads+"\n"+result, "")
			add := call(t, "ADD", leads, conf)
			answers := json.NewDecoder(strings.NewReader(add.stdout))
			var first, second json.RawMessage
			must(t, answers.Decode(&first))
			if err := answers.Decode(&second); err != io.EOF {
				t.Errorf("ADD prints %s and then %s, %v", first, second, err)
			}
			t.Log(add.exit, string(first))
			delLeavesNothing(t, pod, conf)
		}
	})
}

// delegates returns a configuration with delegates, as a runtime passes it.
func delegates(children ...string) string {
	return `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "deviceID": "` + vf + `",
		"capabilities": {"CNIDeviceInfoFile": true}, "runtimeConfig": {"CNIDeviceInfoFile": "` + infoFile + `"},
		"delegates": [` + strings.Join(children, ",") + `]}`
}

// preparedInfo writes a file at the runtime's path, as Multus does.
func preparedInfo(t *testing.T) {
	t.Helper()
	difftest.Write(t, infoFile, prepared, 0o644)
}

const prepared = `{"type":"pci","version":"1.0.0","pci":{"pci-address":"0000:01:10.0","x-vendor":1}}`

// asPrepared checks that of an attachment's state only the prepared file exists.
func asPrepared(t *testing.T, pod string) {
	t.Helper()
	same(t, "device-info file", read(t, infoFile), prepared)
	must(t, os.Remove(infoFile))
	nothingLeft(t, pod)
}
