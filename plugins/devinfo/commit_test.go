package devinfo_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/sysfs"
	plugin "devinfo-cni.io/plugins/devinfo"
	"devinfo-cni.io/test/difftest"
)

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// settled lets storyMachine read the world in this process.
func settled(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.host("mlx5-legacy", "", nil)
	for name, value := range map[string]string{storyHost: hostFile, storyLog: childrenLog, storyBoot: "boot-0", "DEVINFO_NODE_CONFIG": nodeFile} {
		t.Setenv(name, value)
	}
	return w
}

// quiet is the host of a call without a log.
func quiet(out io.Writer) *plugin.Host {
	h := storyMachine()
	h.Stdout, h.Log = out, slog.New(slog.DiscardHandler)
	return h
}

// run calls the plugin in this process. It returns what the plugin says when it cannot print an error.
func run(h *plugin.Host, env map[string]string, stdin io.Reader) (exit int, stderr string) {
	var messages bytes.Buffer
	return plugin.Run(h, func(name string) string { return env[name] }, stdin, &messages), messages.String()
}

func inProcess(h *plugin.Host, verb, ifName, more string) (exit int, stderr string) {
	env := map[string]string{"CNI_COMMAND": verb, "CNI_CONTAINERID": "c0ffee", "CNI_IFNAME": ifName, "CNI_NETNS": podNetns, "CNI_PATH": binDir}
	return run(h, env, strings.NewReader(`{"cniVersion": "1.1.0", "name": "net-a", "type": "devinfo", `+more+`}`))
}

// An ADD that fails gives back what it can of the former one. Here the directory of CDI specs is lost meanwhile.
func TestFailedADDRestoresFileWithoutSpec(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		settled(t)
		add := func(more string, out io.Writer) (int, string) {
			return inProcess(quiet(out), "ADD", "net1", `"deviceID": "0000:3b:00.3", `+more)
		}
		exit, _ := add(`"runtimeConfig": {"CNIDeviceInfoFile": "`+infoDir+`/f"}, "cdi": true`, io.Discard)
		difftest.Equal(t, exit, 0)
		former := difftest.Read(t, infoDir+"/f")
		exit, said := add(`"runtimeConfig": {"CNIDeviceInfoFile": "`+infoDir+`/g"}`, writerFunc(func([]byte) (int, error) {
			check(t, os.RemoveAll(cdiDir))
			difftest.Write(t, cdiDir, "", 0o600)
			return 0, errors.New("closed")
		}))
		difftest.Same(t, "exit code without a result", exit, 1)
		difftest.Contains(t, said, "print the error: closed")
		difftest.Equal(t, difftest.Names(t, infoDir), []string{"f"})
		difftest.Same(t, "f", difftest.Read(t, infoDir+"/f"), former)
	})
}

// sriov-cni's lock may end with the network namespace that it names. ADD waits for that, but not for a pod or a claim.
func TestADDWaitsForLockOfSRIOV(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		settled(t)
		asked := 0
		h := quiet(io.Discard)
		h.Journal.SRIOVLocks = "/run/locks"
		h.Journal.NetnsGone = func(string) (bool, error) { asked++; return asked > 2, nil }
		difftest.Write(t, "/run/locks/0000:3b:00.4", "/run/netns/other", 0o600)
		began := time.Now()
		exit, _ := inProcess(h, "ADD", "net7", `"deviceID": "0000:3b:00.4", "deviceInfoFile": "auto", "deviceInfo": {"type": "pci"}`)
		if took := time.Since(began); exit != 0 || asked != 3 || took < 100*time.Millisecond {
			t.Errorf("exit code %d, the lock was read %d times in %v", exit, asked, took)
		}
		difftest.Contains(t, difftest.Read(t, stateDir+"/attachments/net-a@c0ffee@net7"), `"declared":{"type":"pci"}`)
	})
}

// Each read of the kernel fails once. ADD then fails, or says so in its log, or gives all the same what it gives without
// the failure.
func TestFailedReadOfKernelIsSaid(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		w := settled(t)
		w.host("mlx5-legacy", "", []txtar.File{
			{Name: "sys/devices/virtual/vfio/42/dev", Data: []byte("240:0\n")}, {Name: "sys/devices/virtual/misc/vfio/dev", Data: []byte("10:196\n")},
		})
		difftest.Write(t, nodeFile, strings.Replace(defaultNode, "{", `{"allowedDevices": ["0000:3b:00.0"], `, 1), 0o644)
		for ifName, more := range map[string]string{
			"net1": `"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "/run/netns/pod"}]}`,
			"net7": `"deviceID": "0000:3b:00.2"`,
			"net8": `"deviceID": "0000:3b:00.4", "cdi": true`,
		} {
			more += `, "deviceInfoFile": "auto"`
			good := ""
			capturetest.EachFailure(storyMachine().Finder.Sys.Files(), func(sys fs.FS, failed *string) {
				h := storyMachine()
				h.Finder.Sys = sysfs.New(sys)
				var out, log bytes.Buffer
				h.Stdout, h.Log = &out, slog.New(slog.NewTextHandler(&log, nil))
				exit, _ := inProcess(h, "ADD", ifName, more)
				given := out.String() + warnings(log.String())
				for _, path := range difftest.Files(t, infoDir, cdiDir, stateDir+"/leases") {
					given += path + "\n"
					if !strings.HasPrefix(path, stateDir) {
						given += difftest.Read(t, path)
					}
				}
				switch {
				case *failed == "":
					good = given
				case exit == 1 && (!strings.Contains(out.String(), "input/output error") || strings.Contains(given, infoDir)):
					t.Errorf("%s: %s: after the error there is\n%s", ifName, *failed, given)
				case exit == 0 && given != good && !strings.Contains(log.String(), "input/output error"):
					t.Errorf("%s: %s: ADD says nothing of the failure, and gives\n%s", ifName, *failed, given)
				}
				exit, _ = inProcess(quiet(io.Discard), "DEL", ifName, more)
				difftest.Equal(t, exit, 0)
			})
			difftest.Contains(t, good, infoDir)
		}
	})
}
