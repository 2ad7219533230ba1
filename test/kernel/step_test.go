package kernel_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/link/linktest"
)

// A mishap is what the world may do between two steps of an ADD.
type mishap struct {
	script string
	add    string // the beginning of the failure of ADD, "code: message"; "ok"
	file   string // what the device-info file holds after an ADD that succeeds; "" = there is none
}

const (
	notOurs  = "5: " + infoFile + ": not a regular file (mode "
	unplug   = `find /run/sys -depth -name ` + vf + ` -exec rm -r {} +`
	atLease  = stateDir + "/leases/file/net-c0ffee_net1"
	between  = "11: attachment net/c0ffee/net1: another call has added or deleted it meanwhile"
	itsTemps = infoDir + "/.net-c0ffee_net1.devinfo " + stateDir + "/attachments/.net@c0ffee@net1.devinfo"
)

var mishaps = map[string]mishap{
	"the file is removed":       {`rm ` + infoFile, "ok", vfFile},
	"the file is garbage":       {`echo garbage > ` + infoFile, "ok", vfFile},
	"the file is huge":          {`truncate -s 1G ` + infoFile, "5: " + infoFile + ": too large: more than 1 MiB", ""},
	"the file is a pipe":        {`rm ` + infoFile + `; mkfifo ` + infoFile, notOurs + "prw-r--r--)", ""},
	"the file is a link":        {`ln -sf /run/victim ` + infoFile, notOurs + "Lrwxrwxrwx)", ""},
	"the directory is gone":     {`rm -r ` + infoDir, "ok", vfFile},
	"the device is unplugged":   {unplug, "ok", ""}, // a warning
	"/sys is gone":              {`rm -r /run/sys`, "ok", ""},
	"the journal is gone":       {`rm -r ` + stateDir, between, ""},
	"our entry is garbage":      {`echo garbage > ` + oddEntry, "ok", vfFile},
	"our entry is a pipe":       {`rm ` + oddEntry + `; mkfifo ` + oddEntry, between, ""},
	"a lease dangles":           {`ln -s ../../../attachments/net@thief@net1 ` + atLease + `/net@thief@net1`, "ok", vfFile},
	"the settings are garbage":  {`echo garbage > ` + nodeFile, "ok", vfFile},
	"temporary files are there": {`touch ` + itsTemps, "ok", vfFile},
}

// Something happens before the first delegate, between two, or after the last. ADD does
// what it was asked, or fails and undoes all; the DEL after it leaves nothing.
func TestMishapsBetweenTwoSteps(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		if err := os.WriteFile("/run/victim", []byte("victim"), 0o644); err != nil {
			t.Fatal(err)
		}
		for what, m := range mishaps {
			for at := range 3 {
				t.Log(what, at)
				mend := keep(t)
				script(t, m.script+"\n"+result)
				conf := delegates(slices.Insert([]string{bridgeConf, `{"type": "child"}`}, at, scripted)...)
				add := call(t, "ADD", pod, conf)
				if m.add == "ok" {
					add.ok(t)
					same(t, "device-info file", read(t, infoFile), m.file)
				} else {
					add.failsLike(t, m.add)
					same(t, "files left by ADD", files(t, infoDir, stateDir), "")
					same(t, "interfaces in the pod", podLinks(t, pod), "")
					same(t, "addresses", addresses(t), "")
				}
				mend()
				call(t, "DEL", pod, conf).ok(t)
				same(t, "interfaces in the pod", podLinks(t, pod), "")
				nothingLeft(t)
				same(t, "the victim", read(t, "/run/victim"), "victim")
			}
		}
	})
}

// keep keeps /sys and the node settings, until mend puts them back.
func keep(t *testing.T) (mend func()) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const kept = "/run/kept"
	check(os.Rename("/run/sys", kept))
	check(os.CopyFS("/run/sys", os.DirFS(kept)))
	settings := read(t, nodeFile)
	return func() {
		t.Helper()
		check(os.RemoveAll("/run/sys"))
		check(os.Rename(kept, "/run/sys"))
		check(os.WriteFile(nodeFile, []byte(settings), 0o644))
	}
}

// Where the configuration is strict, a device that goes meanwhile fails ADD.
func TestDeviceUnpluggedDuringAStrictADD(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		for at := range 3 {
			mend := keep(t)
			script(t, unplug+"\n"+result)
			conf := delegates(slices.Insert([]string{bridgeConf, `{"type": "child"}`}, at, scripted)...)
			strict := strings.Replace(conf, "{", `{"strict": true, `, 1)
			call(t, "ADD", pod, strict).failsLike(t, "100: deviceID names the PCI function "+vf+", which is not on this node")
			same(t, "interfaces in the pod", podLinks(t, pod), "")
			nothingLeft(t)
			call(t, "DEL", pod, strict).ok(t)
			nothingLeft(t)
			mend()
		}
	})
}

// A runtime that gives up on a pod may take its namespace away under an ADD.
func TestNetnsVanishesBetweenTwoSteps(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		const gone = `8: interface "net1" in NETNS: no such network namespace: no such file or directory`
		for at, want := range []string{`999: delegates[1] (bridge): ADD: failed to open netns "NETNS"`, gone, gone} {
			pod, _ := shortLived(t)
			script(t, `umount -l $CNI_NETNS; rm $CNI_NETNS`+"\n"+result)
			conf := delegates(slices.Insert([]string{bridgeConf, `{"type": "child"}`}, at, scripted)...)
			call(t, "ADD", pod, conf).failsLike(t, want)
			nothingLeft(t)
			call(t, "DEL", pod, conf).ok(t)
			call(t, "DEL", "", conf).ok(t)
			nothingLeft(t)
		}
	})
}

// A delegate that goes meanwhile has to come back before DEL can have it undo what it did.
func TestDelegateUninstalledBetweenTwoSteps(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		const child, kept = cniDir + "/child", "/run/child"
		missing := `CNI plugin "child": not installed: it must be in ` + cniDir + ` or ` + binDir(t)
		for at := range 3 {
			script(t, "mv "+child+" "+kept+"\n"+result)
			conf := delegates(slices.Insert([]string{bridgeConf, `{"type": "child"}`}, at, scripted)...)
			add := call(t, "ADD", pod, conf)
			if at == 2 { // the child has run
				add.ok(t)
				call(t, "DEL", pod, conf).fails(t, 5, "delegates[1] (child): DEL: "+missing)
			} else {
				add.fails(t, 5, "delegates[2] (child): ADD: "+missing)
				nothingLeft(t)
				call(t, "DEL", pod, conf).ok(t)
			}
			same(t, "interfaces in the pod", podLinks(t, pod), "")
			if err := os.Rename(kept, child); err != nil {
				t.Fatal(err)
			}
			call(t, "DEL", pod, conf).ok(t)
			nothingLeft(t)
		}
	})
}

// Whoever controls the path in CNI_NETNS may lead it to our own namespace meanwhile.
func TestNetnsThatBecomesOursGivesOneAnswer(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod, leads := linktest.NewNetns(t), "/run/leads"
		vfs := delegates(scripted)
		socket := strings.Replace(vfs, `"deviceID": "`+vf+`"`, `"deviceInfo": {"type": "memif", "memif": {"role": "master", "path": "/run/m", "mode": "ethernet"}}`, 1)
		for _, conf := range []string{vfs, socket} {
			if err := errors.Join(os.RemoveAll(leads), os.Symlink(pod, leads)); err != nil {
				t.Fatal(err)
			}
			script(t, "ln -sfn /proc/self/ns/net "+leads+"\n"+result)
			add := call(t, "ADD", leads, conf)
			answers := json.NewDecoder(strings.NewReader(add.stdout))
			var first, second json.RawMessage
			if err := answers.Decode(&first); err != nil {
				t.Fatal(err)
			}
			if err := answers.Decode(&second); err != io.EOF {
				t.Errorf("ADD prints %s and then %s, %v", first, second, err)
			}
			t.Log(add.exit, string(first))
			call(t, "DEL", pod, conf).ok(t)
			nothingLeft(t)
		}
	})
}
