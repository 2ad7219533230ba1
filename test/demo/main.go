// Demo shows the plugin's work from ADD to DEL with the real programs: cnitool as the runtime, reference plugins, and
// first the network card of this machine. It also checks the results that it shows.
//
//	make demo
//
// It runs in its own namespaces (package sandbox), so it leaves nothing behind. Namespaces of an ordinary user do not
// contain the machine's card. For such a user macvlan is on a veth, and the device comes from a captured host.
package main

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/sandbox"
	"devinfo-cni.io/test/undertest"
)

const (
	pod    = "/run/netns/pod"
	ifName = "net1"
	own    = "/run/devinfo" // files of the demo itself
	nets   = own + "/net.d" // and the replacement plugin
)

// userspace replaces userspace-cni. It has no dataplane, and its result has no interface.
const userspace = `#!/bin/sh
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.1.0"}'
`

// containerID is the ID that cnitool generates for the pod.
var containerID = func() string {
	sum := sha512.Sum512([]byte(pod))
	return fmt.Sprintf("cnitool-%x", sum[:10])
}()

// failed counts failed checks.
var failed int

func check(ok bool, what string, details ...any) {
	if ok {
		fmt.Printf("  ok     %s\n", what)
		return
	}
	failed++
	fmt.Printf("  WRONG  %s\n", what)
	for _, d := range details {
		fmt.Printf("         %v\n", d)
	}
}

// play runs one scene. It returns an error if the scene cannot be run.
func (s *scene) play(number int, host *capturefile.Host) error {
	fmt.Printf("%s\n%d. %s\n\n%s\n", strings.Repeat("─", 78), number, s.title, s.about)
	settings, err := s.prepare(host)
	if err != nil {
		return err
	}
	path := s.path()
	command := "cnitool add " + s.network + " " + pod
	if caps := s.capArgs(); caps != "" {
		command = "CAP_ARGS='" + caps + "' " + command
	}
	fmt.Printf("\nnetwork %s:\n%s\n\n%s\n", s.network, indent(s.conflist), indent("$ CNI_IFNAME="+ifName+" "+command))
	result, err := s.cnitool("add")
	if err != nil {
		return err
	}
	fmt.Printf("%s\n\n%s:\n", indent(strings.TrimSpace(result)), path)
	file, err := os.ReadFile(path)
	if err != nil {
		fmt.Printf("  %v\n", err)
	}
	fmt.Printf("%s\n\n", indent(strings.TrimSpace(string(file))))
	s.checkFile(path)
	s.checkResult(result)
	_, err = s.cnitool("check")
	check(err == nil, "CHECK finds all in order", err)
	_, err = s.cnitool("del")
	check(err == nil, "DEL succeeds", err)
	return s.checkGone(path, settings)
}

// prepare writes the network and the node settings. All paths are in the sandbox.
func (s *scene) prepare(host *capturefile.Host) (config.Node, error) {
	settings := config.DefaultNode()
	settings.DeviceInfoDir = "/run/k8s.cni.cncf.io/devinfo/cni"
	settings.DevicePluginDir = "/run/k8s.cni.cncf.io/devinfo/dp"
	if host != nil {
		settings.Sysfs = own + "/sys-" + s.network
		if err := undertest.Unpack(host, settings.Sysfs); err != nil {
			return settings, err
		}
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return settings, err
	}
	return settings, errors.Join(
		os.WriteFile(own+"/node.json", text, 0o644),
		os.WriteFile(filepath.Join(nets, s.network+".conflist"), []byte(s.conflist), 0o644))
}

// path returns the expected path of the device-info file.
func (s *scene) path() string {
	const dir = "/run/k8s.cni.cncf.io/devinfo/cni/"
	if s.auto {
		return dir + s.network + "-" + containerID + "_" + ifName
	}
	return dir + s.network + "_" + ifName // the name does not matter
}

// capArgs returns the runtimeConfig that the runtime passes on.
func (s *scene) capArgs() string {
	if s.auto {
		return ""
	}
	args := `{"CNIDeviceInfoFile": "` + s.path() + `"`
	if s.deviceID != "" {
		args += `, "deviceID": "` + s.deviceID + `"`
	}
	return args + "}"
}

// cnitool runs one verb. It prints the plugins' standard error.
func (s *scene) cnitool(verb string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.Command(filepath.Join(sandbox.Bin, "cnitool"), verb, s.network, pod)
	cmd.Env = []string{
		"CNI_PATH=" + sandbox.Bin + ":" + nets, "NETCONFPATH=" + nets, "CNI_IFNAME=" + ifName,
		"DEVINFO_NODE_CONFIG=" + own + "/node.json", "CAP_ARGS=" + s.capArgs(), "PATH=" + os.Getenv("PATH"),
	}
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if err != nil {
		return "", fmt.Errorf("cnitool %s: %w: %s", verb, err, bytes.TrimSpace(errs.Bytes()))
	}
	if errs.Len() > 0 {
		fmt.Println(indent(strings.TrimSpace(errs.String())))
	}
	return out.String(), nil
}

// checkFile compares the file with the expected one. The file of the machine's own card may contain additional keys.
func (s *scene) checkFile(path string) {
	info, err := devinfo.ReadFile(path)
	if err != nil {
		check(false, "the device-info file is valid", err)
		return
	}
	if s.host == "" && info.PCI != nil {
		info.PCI.RDMADevice, info.PCI.Representor = "", ""
	}
	want := string(s.file.Encode())
	check(string(info.Encode()) == want, "the device-info file is valid, and says what it should", "want: "+want)
}

// checkResult checks the data that Multus and KubeVirt need: an interface with our name in the pod's namespace, and
// the device's address.
func (s *scene) checkResult(text string) {
	var result struct {
		Interfaces []struct{ Name, Sandbox, PCIID, SocketPath string }
	}
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		check(false, "the result is JSON", err)
		return
	}
	texts, socket := s.file.Texts(), ""
	if s.file.Type == devinfo.TypeVhostUser || s.file.Type == devinfo.TypeMemif {
		socket = texts["path"]
	}
	found := false
	for _, i := range result.Interfaces {
		found = found || i.Name == ifName && i.Sandbox == pod && i.PCIID == texts["pci-address"] && i.SocketPath == socket
	}
	check(found, "the result has "+ifName+" in the pod, and names the same device")
	if s.link {
		check(linkExists() == nil, ifName+" is in the pod")
	}
}

// checkGone checks that DEL has removed everything.
func (s *scene) checkGone(path string, settings config.Node) error {
	_, err := os.Lstat(path)
	gone := errors.Is(err, fs.ErrNotExist)
	if s.link {
		var none netlink.LinkNotFoundError
		gone = gone && errors.As(linkExists(), &none)
	}
	var rest []string
	for _, dir := range []string{settings.DeviceInfoDir, settings.StateDir, "/var/lib/cni/results"} {
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				rest = append(rest, name)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	what := "the file is gone, and so is the plugin's own record"
	if s.link {
		what = "the file is gone, " + ifName + " and the plugin's own record too"
	}
	check(gone && len(rest) == 0, what, rest)
	return nil
}

// linkExists returns an error if the pod's namespace lacks the interface.
func linkExists() error {
	return linktest.InNetns(pod, func() error {
		_, err := netlink.LinkByName(ifName)
		return err
	})
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

var (
	bin   = flag.String("bin", "bin", "`directory` of devinfo, cnitool and macvlan")
	hosts = flag.String("hosts", "testdata/hosts", "`directory` of captured hosts")
)

func main() {
	flag.Parse()
	sandbox.Need(*bin, "make demo", "devinfo", "cnitool", "macvlan")
	sandbox.Run(*bin, demo)
}

func demo(signals <-chan os.Signal, ownNet bool) error {
	captured := map[string]*capturefile.Host{}
	for _, name := range []string{"igb-sriov", "vdpa-vf"} {
		h, err := capturefile.Load(filepath.Join(*hosts, name+".txtar"))
		if err != nil {
			return err
		}
		captured[name] = h
	}
	if err := errors.Join(os.MkdirAll(nets, 0o755), os.WriteFile(nets+"/userspace", []byte(userspace), 0o755), linktest.MakeNetns(pod)); err != nil {
		return err
	}
	first, err := cardScene(ownNet)
	if err != nil {
		return err
	}
	for n, s := range append([]scene{first}, scenes...) {
		if n == 1 && !ownNet {
			// The remaining scenes do not need the machine's network.
			if err := sandbox.Leave(); err != nil {
				return err
			}
		}
		if err := s.play(n+1, captured[s.host]); err != nil {
			return fmt.Errorf("scene %d: %w", n+1, err)
		}
		select {
		case sig := <-signals:
			return fmt.Errorf("%v", sig)
		default:
		}
	}
	if failed > 0 {
		return errors.New("not everything was as it should be: see \"WRONG\" above")
	}
	fmt.Printf("\nAll as it should be, and nothing of it is left.\n")
	return nil
}
