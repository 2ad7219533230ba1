package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/check/checktest"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
)

// asTool is the environment variable that makes the test binary run devinfoctl.
const asTool = "DEVINFOCTL_TEST_AS_TOOL"

func TestMain(m *testing.M) {
	if os.Getenv(asTool) != "" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// aliveNetns is a network namespace that exists as long as the process.
const aliveNetns = "/proc/self/ns/net"

// liveNode is this machine with directories of its own. By default its devices come from a captured host.
type liveNode struct {
	config.Node
	t    testing.TB
	file string // node settings
	bin  string // CNI_PATH
}

func newNode(t *testing.T) *liveNode {
	t.Helper()
	sysfs := filepath.Join(t.TempDir(), "sys")
	difftest.Must(t, capturetest.Load(t, "mlx5-switchdev").Unpack(sysfs))
	return newNodeIn(t, t.TempDir(), sysfs)
}

func newNodeIn(t testing.TB, dir, sysfs string) *liveNode {
	t.Helper()
	n := &liveNode{config.DefaultNode(), t, filepath.Join(dir, "node.json"), filepath.Join(dir, "bin")}
	n.DeviceInfoDir, n.DevicePluginDir, n.CDIDir = filepath.Join(dir, "cni"), filepath.Join(dir, "dp"), filepath.Join(dir, "cdi")
	n.StateDir, n.Sysfs = filepath.Join(dir, "state"), sysfs
	n.must(os.Mkdir(n.bin, 0o755))
	settings, err := json.Marshal(n.Node)
	n.must(err)
	n.must(os.WriteFile(n.file, settings, 0o644))
	return n
}

func (n *liveNode) must(err error) {
	n.t.Helper()
	difftest.Must(n.t, err)
}

// put records an entry on this node, see [checktest.Record]. An entry without a device gets a VF.
func (n *liveNode) put(e journal.Entry) journal.Key {
	n.t.Helper()
	boot, err := journal.BootID()
	n.must(err)
	if e.Device.Type == "" {
		e.Device = journal.Identity{Type: "pci", ID: "0000:03:00.5"}
	}
	return checktest.Record(n.t, n.Node, boot, e)
}

// claim writes cni-dra-driver's record of a claim, and returns its directory.
func (n *liveNode) claim(text string) (dir string) {
	n.t.Helper()
	dir = filepath.Join(filepath.Dir(n.file), "claims")
	difftest.Write(n.t, filepath.Join(dir, "u1.json"), text, 0o600)
	return dir
}

// driverRuns serves the socket of cni-dra-driver beside its state directory until stop is called or the test ends.
func driverRuns(t *testing.T, claims string) (stop func()) {
	t.Helper()
	dir, err := os.Open(filepath.Dir(claims))
	difftest.Must(t, err)
	defer dir.Close()
	socket, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/dra.sock", dir.Fd())) // the path itself may be too long
	difftest.Must(t, err)
	socket.(*net.UnixListener).SetUnlinkOnClose(false) // as if the driver was killed
	t.Cleanup(func() { socket.Close() })
	return func() { socket.Close() }
}

// noNetns returns the path of a network namespace that does not exist.
func (n *liveNode) noNetns() string { return filepath.Join(n.bin, "no-such") }

// plugin installs a plugin that logs its call and then runs the shell script.
func (n *liveNode) plugin(name, script string) {
	n.t.Helper()
	text := "#!/bin/sh\necho \"" + name + " $CNI_COMMAND $CNI_CONTAINERID [$CNI_NETNS]\" >> " + filepath.Join(n.bin, "log") + "\n" + script + "\n"
	n.must(os.WriteFile(filepath.Join(n.bin, name), []byte(text), 0o755))
}

func (n *liveNode) calls() string {
	n.t.Helper()
	log, err := os.ReadFile(filepath.Join(n.bin, "log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.t.Fatal(err)
	}
	return string(log)
}

// ctl runs devinfoctl on the node. It removes the test's directories from the output.
func (n *liveNode) ctl(args ...string) string {
	n.t.Helper()
	got := ctl(append([]string{"--node-config", n.file}, args...)...).seen()
	return strings.ReplaceAll(got, filepath.Dir(n.file), "")
}

// command returns a command that runs devinfoctl in a process of its own.
func (n *liveNode) command(args ...string) *exec.Cmd {
	n.t.Helper()
	self, err := os.Executable()
	n.must(err)
	cmd := exec.Command(self, append([]string{"--node-config", n.file}, args...)...)
	cmd.Env = append(os.Environ(), asTool+"=1", "NO_COLOR=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

// Only root can read the directories of the plugin and of cni-dra-driver. The commands say so, whatever they lack.
func TestUnreadableRecordsHaveRemedy(t *testing.T) {
	n := newNode(t)
	boot, err := journal.BootID()
	n.must(err)
	attachment := n.put(journal.Entry{Key: container("c0ffee"), Netns: aliveNetns, Complete: true}).Path(n.StateDir)
	for _, uid := range []string{"u1", "u2"} {
		n.must(journal.Open(n.StateDir, boot).Hold(&journal.Claim{UID: uid, Leases: []journal.DeviceLease{{ID: "pci-0000:03:00.4", Mode: journal.Shared}}}))
	}
	claims := n.claim(`{"schema": 1, "namespace": "shop", "name": "net", "uid": "u1", "attachments": [{"network": "net-b", "ifName": "net1", "phase": "Prepared", "list": {}}]}`)
	difftest.Write(t, filepath.Join(claims, "offer"), `{"devices": [{"name": "net-br0", "kind": "bridge", "ifName": "br0", "sharing": "shared"}]}`, 0o644)
	driverRuns(t, claims)
	n.giveAway()
	difftest.Contains(t, n.unprivileged("--dra-state-dir", "nowhere", "list").stderr, "--dra-state-dir: ") // gc --claim would end the leases of a claim without a record
	of := func(command string) outcome {
		return n.unprivileged(append([]string{"--dra-state-dir", claims}, strings.Fields(command)...)...)
	}
	restore := func() {}
	t.Cleanup(func() { restore() })
	for path, commands := range map[string]string{
		"": "list,check,gc --dry-run,offered,topology", filepath.Dir(attachment): "list,list x,check,gc --dry-run,gc --yes,doctor", attachment: "list,check,gc --dry-run,gc --yes,doctor",
		filepath.Join(n.StateDir, "claims"): "list,list x,check,doctor,gc --claim u2 --dry-run", filepath.Join(n.StateDir, "claims/u1"): "list,check,doctor",
		filepath.Join(n.StateDir, "claims/u2"): "list,doctor,gc --claim u2 --dry-run", claims: "list,check,doctor,offered", filepath.Join(claims, "u1.json"): "list,check,doctor,offered",
	} {
		if path != "" {
			stat, err := os.Stat(path)
			n.must(errors.Join(err, os.Chmod(path, 0)))
			difftest.Contains(t, of("topology").stderr, "permission denied")
			restore = func() { n.must(os.Chmod(path, stat.Mode())) }
		}
		for command := range strings.SplitSeq(commands, ",") {
			o := of(command)
			if blind := o.exit == clierr.Blind && o.stdout == "" && strings.Contains(o.stderr, "run as root, because only root can read "); blind != (path != "") || !blind && o.exit != 0 {
				t.Errorf("%s, %q is unreadable: %+v", command, path, o)
			}
		}
		restore()
	}
}

func TestCheckLooksIntoTheNetworkNamespace(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		n := newNode(t)
		const netns = "/run/pod" // linktest's own path differs in length between runs
		n.must(os.Symlink(linktest.NewNetns(t), netns))
		linktest.AddVeth(t, "host0", "net1", netns)
		info := &devinfo.Info{Type: "memif", Version: "1.1.0", Memif: &devinfo.Memif{Role: "slave", Path: "/run/m", Mode: "ip"}}
		for _, ifName := range []string{"net1", "net2"} {
			n.put(journal.Entry{
				Key: journal.Key{ContainerID: "c0ffee", IfName: ifName}, Netns: netns, InNetns: true, Complete: true,
				File: ifName, Device: journal.Identity{Type: "memif", ID: "/run/m"},
			})
			n.must(store.Open(n.DeviceInfoDir).Write(ifName, info.Encode()))
		}
		difftest.Contains(t, columns(n.ctl("check", "c0ff")), "net-a/c0ffee/net1: Ok\n", "|interface|net1|-|net1|/run/pod|same\n",
			"net-a/c0ffee/net2: InterfaceGone\n", "|interface|net2|-|-|/run/pod|gone\n",
			"problem: interface net2 is no longer in /run/pod, where ADD found it\n", "exit 1\n")
	})
}

// A socket that is not there is told from a directory that containers may not have, and from a socket that is there.
func TestListTellsWhichSocketsAreWithheld(t *testing.T) {
	n := newNode(t)
	n.SocketDirs = []string{filepath.Join(filepath.Dir(n.file), "sockets")}
	settings, err := json.Marshal(n.Node)
	n.must(err)
	n.must(os.WriteFile(n.file, settings, 0o644))
	for name, make := range map[string]func(socket string) error{
		"there": func(socket string) error {
			return errors.Join(os.MkdirAll(filepath.Dir(socket), 0o755), os.WriteFile(socket, nil, 0o600))
		},
		"absent": func(socket string) error { return os.MkdirAll(filepath.Dir(socket), 0o755) },
		"nodir":  func(string) error { return nil },
	} {
		socket := filepath.Join(n.SocketDirs[0], "uid-"+name, "s")
		n.must(make(socket))
		info := &devinfo.Info{Type: "memif", Version: "1.1.0", Memif: &devinfo.Memif{Role: "slave", Path: socket, Mode: "ip"}}
		n.put(journal.Entry{
			Key: journal.Key{ContainerID: name}, Netns: aliveNetns, Complete: true, Args: "K8S_POD_UID=uid-" + name,
			File: name, Info: info.Encode(), Device: journal.Identity{Type: "memif", ID: socket},
		})
	}
	for name, want := range map[string]string{"there": "", "absent": "/s does not exist on the node", "nodir": "no such file or directory"} {
		var got struct{ Attachments []node.Attachment }
		n.must(json.Unmarshal([]byte(n.ctl("list", name, "-o", "json")), &got))
		withheld := got.Attachments[0].Withheld
		if len(withheld) > 1 || (len(withheld) == 1) != (want != "") || want != "" && (!strings.HasSuffix(withheld[0].Why, want) || (withheld[0].Mounts != "") != (name == "nodir")) {
			t.Errorf("%s: %+v", name, withheld)
		}
	}
}

// A device whose policy cannot be read does not hide the others, and does not matter where it is not listed. A capture would lack it.
func TestUnreadableDeviceIsListed(t *testing.T) {
	n := newNode(t)
	for namespace, device := range map[string]string{"lab": "0000:03:00.5", "shop": "0000:03:00.3"} {
		n.put(journal.Entry{Key: container(namespace), Netns: aliveNetns, Complete: true, File: namespace, Args: "K8S_POD_NAMESPACE=" + namespace + ";K8S_POD_NAME=web",
			Info:   fmt.Appendf(nil, `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "%s"}}`, device),
			Device: journal.Identity{Type: "pci", ID: device}})
	}
	n.must(os.Mkdir(filepath.Join(n.Sysfs, "bus/pci/devices/0000:03:00.5/sriov_numvfs"), 0o755)) // a read fails
	for args, want := range map[string]struct {
		exit, listed int
	}{"list -o json": {clierr.Blind, 2}, "list -o json -n lab": {clierr.Blind, 1}, "list -o json -n shop": {0, 1}, "list": {0, 0}} {
		o := ctl(append([]string{"--node-config", n.file}, strings.Fields(args)...)...)
		if o.exit != want.exit || strings.Count(o.stdout, `"containerID"`) != want.listed || strings.Contains(o.stdout, "sriov_numvfs") != (want.listed > 0 && want.exit != 0) {
			t.Errorf("%s: %+v", args, o)
		}
	}
	to := filepath.Join(n.bin, "host.txtar")
	difftest.Contains(t, n.ctl("capture", "-o", to), "! devinfoctl: capture: ", "sriov_numvfs", "exit 3\n")
	difftest.Holds(t, n.bin)
}

// columns replaces the spaces between the columns of a table.
func columns(table string) string { return regexp.MustCompile(" {2,}").ReplaceAllString(table, "|") }

// Without root, check lists the facts that it cannot read and compares the rest.
func TestCheckWithoutRootListsUnreadableFacts(t *testing.T) {
	n := newNode(t)
	netns := someoneElsesNetns(t)
	n.put(journal.Entry{Key: container("c0ffee"), Netns: netns, File: "one", InNetns: true, Complete: true})
	n.giveAway()
	o := n.unprivileged("check")
	difftest.Contains(t, columns(o.stdout),
		"interface|net1|-|-|"+netns+"|unknown\n",
		"pci.pci-address|0000:03:00.5|0000:03:00.5|0000:03:00.5|/sys/bus/pci/devices/0000:03:00.5|same\n",
		"not compared: the interface in "+netns+": entering the network namespace takes root\n")
	if o.exit != clierr.Blind || !strings.HasPrefix(o.stdout, "net-a/c0ffee/net1: Unknown\n") || !strings.Contains(o.stderr, "run as root") {
		t.Errorf("%+v", o)
	}
	if o = n.unprivileged("list"); o.exit != clierr.Blind || !strings.Contains(o.stdout, "Unknown") {
		t.Errorf("%+v", o)
	}
}

// someoneElsesNetns returns the network namespace of a process that lives as long as the test. Only root may enter
// it.
func someoneElsesNetns(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if errors.Is(err, syscall.EPERM) && os.Getenv("DEVINFO_NETNS") != "must" {
		t.Skipf("no namespaces: %v", err)
	}
	difftest.Must(t, err)
	t.Cleanup(func() { difftest.Must(t, stdin.Close(), cmd.Wait()) })
	return fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
}

const nobody = 65534

// giveAway makes the user of unprivileged the owner of the node's files.
func (n *liveNode) giveAway() {
	n.t.Helper()
	n.must(filepath.WalkDir(filepath.Dir(n.file), func(path string, _ os.DirEntry, err error) error {
		if err != nil || os.Geteuid() != 0 {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	}))
}

// unprivileged runs devinfoctl as an ordinary user. If the test runs as root it uses the user nobody.
func (n *liveNode) unprivileged(args ...string) outcome {
	n.t.Helper()
	cmd := n.command(args...)
	if os.Geteuid() == 0 {
		self, err := os.Open(cmd.Path) // the binary's directory is closed to other users
		n.must(err)
		defer self.Close()
		n.must(os.Chmod(filepath.Dir(filepath.Dir(n.file)), 0o755))
		n.must(os.Chmod(filepath.Dir(n.file), 0o755))
		cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{self}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		n.t.Fatal(err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}
