package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

// doctor prints a line for each check, and a problem only for the broken parts.
func TestDoctorPrintsEachCheckAndEachProblem(t *testing.T) {
	n := newNode(t)
	n.put(journal.Entry{Key: container("c0ffee"), Netns: aliveNetns, Complete: true})
	n.put(journal.Entry{Key: container("decade"), Netns: n.noNetns(), Complete: true, Args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"})
	n.plugin("devinfo", `echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'`)
	got := n.ctl("doctor", "--cni-path", n.bin, "--cni-conf-dir", n.bin, "--nri-socket", n.file, "--pod-resources", n.noNetns(), "--sriov-locks", n.noNetns())
	difftest.Contains(t, got,
		"error    attachments  pod shop/web-0, net-a/decade/net1: Stale: network namespace /bin/no-such is gone\n  Remedy: ",
		"ok       plugin       ", "ok       settings     ", "info     networks     ", "warning  directories  /cdi: ", "ok       runtime      ",
		"unknown  sight        devices of pods: /bin/no-such: no such file or directory\n  Remedy: ", "exit 1\n")
	difftest.Lacks(t, got, "c0ffee") // is as it should be
	// Without the kubelet nothing tells that a device is free.
	difftest.Lacks(t, n.ctl("inspect", "0000:03:00.2"), "next pod", "exit")
}

// doctor runs as root in the agents' pods. Tenants may be able to write to some of the directories mounted there.
func TestDoctorInPodRunsOnlyProgramsOfRoot(t *testing.T) {
	n := newNode(t)
	n.must(os.Chmod(n.bin, 0o777)) //nolint:gosec // others can write to it
	n.plugin("devinfo", `echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'`)
	args := []string{"--node-config", n.file, "doctor", "--cni-conf-dir", n.bin, "--cni-path"}
	for path, refused := range map[string]bool{n.bin: true, "/usr/bin:" + n.bin: true, "/usr/bin": false} {
		var stdout, stderr bytes.Buffer
		in := &tool{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, inPod: true}
		code := in.run(append(args, path))
		if (code == clierr.Usage) != refused || strings.Contains(stderr.String(), "users other than root can replace its contents\n") != refused || n.calls() != "" {
			t.Errorf("%s: exit code %d, called: %q: %s", path, code, n.calls(), stderr.String())
		}
	}
	if n.ctl(append(args[2:], n.bin)...); n.calls() == "" {
		t.Error("outside of a pod the administrator's own directory is not believed")
	}
}

// The records and the offer of a driver stay on the node after its removal. The kubelet unprepares claims only while it
// runs.
func TestDoctorReportsAbsentDriver(t *testing.T) {
	n := newNode(t)
	claims := filepath.Join(t.TempDir(), "state")
	difftest.Write(t, filepath.Join(claims, "u1.json"), `{"schema": 1, "namespace": "shop", "name": "net", "uid": "u1", "pod": {"namespace": "shop", "name": "web", "uid": "p1"},
		"attachments": [{"request": "r", "pool": "n1", "device": "cni", "ifName": "net1", "list": {}, "phase": "Prepared"}]}`, 0o600)
	difftest.Write(t, filepath.Join(claims, "offer"), `{"rules": "/r", "devices": [{"name": "net-cni0", "kind": "bridge", "ifName": "cni0", "sharing": "shared"}]}`, 0o600)
	stop := driverRuns(t, claims)
	for _, away := range []bool{false, true} {
		if away {
			stop()
		}
		for command, text := range map[string]string{
			"doctor":  "error    attachments  cni-dra-driver does not run on this node: claims of its pods cannot be unprepared, so that these pods stay in Terminating\n  Remedy: start it",
			"offered": "devinfoctl: warning: cni-dra-driver does not run on this node, so it offers no devices",
		} {
			got := n.ctl("--dra-state-dir", claims, command)
			if strings.Contains(got, text) != away || strings.Contains(got, "net-cni0") != (!away && command == "offered") {
				t.Errorf("%s, away %t: %s", command, away, got)
			}
		}
	}
}

// In the driver's container the node's root is at /host, and its links, such as /var/run, must lead to files below
// it.
func TestDoctorReadsNodeBelowHostRoot(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		n := newNode(t)
		root := filepath.Dir(n.file)
		settings := n.Node
		settings.StateDir, settings.DeviceInfoDir, settings.CDIDir, settings.Sysfs = "/state", "/var/run/cni", "/var/run/cdi", "/sys"
		n.StateDir = filepath.Join(root, "state")
		n.put(journal.Entry{Key: container("decade"), Netns: "/run/netns/gone", Complete: true})
		boot, err := journal.BootID()
		n.must(err)
		data, err := json.Marshal(settings)
		n.must(err)
		n.must(os.Rename(n.Sysfs, filepath.Join(root, "sys")))
		for name, text := range map[string]string{"proc/sys/kernel/random/boot_id": boot, "etc/cni/devinfo/node.json": string(data), "run/cdi/x": "", "run/netns/x": "", "etc/cni/net.d/x": "", "opt/cni/bin/x": ""} {
			difftest.Write(t, filepath.Join(root, name), text, 0o644)
		}
		n.must(os.MkdirAll(filepath.Join(root, "var"), 0o755))
		n.must(os.Symlink("/run", filepath.Join(root, "var/run")))
		doctor := func() string {
			out, _ := n.command("--host-root", root, "--node-config", "/etc/cni/devinfo/node.json", "doctor").CombinedOutput()
			return string(out)
		}
		difftest.Contains(t, doctor(),
			"error    attachments  net-a/decade/net1: Stale: network namespace /run/netns/gone is gone\n  Remedy: ",
			"error    plugin       the devinfo plugin is not in /opt/cni/bin\n  Remedy: ",
			"ok       directories  ")
		valid, _ := n.command("--host-root", root, "validate", "etc/cni/devinfo/node.json").CombinedOutput()
		difftest.Contains(t, string(valid), "node.json: settings: valid") // a relative path begins at the root
		difftest.Write(t, filepath.Join(root, "etc/cni/devinfo/node.json"), `{"logLevel": "loud"}`, 0o644)
		// Doctor continues with the defaults.
		difftest.Contains(t, doctor(), "error    settings     node settings ", `logLevel: "loud"`, "directories  ")
	})
}

// Scrubbing renames pods and claims, also in the offer that cni-dra-driver records.
func TestScrubbedCaptureKeepsTheOffer(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/golden/offers.txtar")
	difftest.Must(t, err)
	host, _ := changedHost(t, archive.Files)
	public := filepath.Join(t.TempDir(), "public.txtar")
	if o := ctl("--capture", host, "capture", "--scrub", "-o", public); o.exit != 0 {
		t.Fatal(o.stderr)
	}
	o := ctl("--capture", public, "topology")
	if o.exit != 0 || strings.Contains(o.stdout, "shop") || strings.Count(o.stdout, ", claim ") != 4 || strings.Count(o.stdout, "held by ") != 6 || !strings.Contains(o.stdout, "has it from device plugin") {
		t.Errorf("%+v", o)
	}
}

// Levels have colours on a terminal only.
func TestDoctorHasColoursOnTerminalOnly(t *testing.T) {
	for name, test := range map[string]struct {
		env    string
		colour bool
	}{"terminal": {"TERM=xterm", true}, "a terminal without colours": {"TERM=dumb", false}, "not wanted": {"NO_COLOR=1", false}} {
		t.Setenv("TERM", "xterm")
		t.Setenv("NO_COLOR", "")
		key, value, _ := strings.Cut(test.env, "=")
		t.Setenv(key, value)
		screen, terminal := pty(t)
		host := hosts + "mlx5-legacy.txtar"
		run([]string{"--capture", host, "doctor", "--problems"}, strings.NewReader(""), terminal, terminal)
		line := make([]byte, 4096)
		n, err := screen.Read(line)
		difftest.Must(t, err)
		if got := string(line[:n]); strings.HasPrefix(got, "\x1b[33mwarning\x1b[0m  usable") != test.colour || strings.Contains(got, "\x1b") != test.colour {
			t.Errorf("%s: %q", name, got)
		}
		difftest.Lacks(t, ctl("--capture", host, "doctor").stdout, "\x1b")
	}
}

// pty returns both sides of a new terminal.
func pty(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	difftest.Must(t, err)
	difftest.Must(t, unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	difftest.Must(t, err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	difftest.Must(t, err)
	t.Cleanup(func() { _ = screen.Close(); _ = terminal.Close() })
	return screen, terminal
}
