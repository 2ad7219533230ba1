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
	infos  = "/run/k8s.cni.cncf.io/devinfo/cni"
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

var (
	bin   = flag.String("bin", "bin", "`directory` of devinfo, cnitool and macvlan")
	hosts = flag.String("hosts", "testdata/hosts", "`directory` of captured hosts")
)

func main() {
	flag.Parse()
	sandbox.Run(*bin, demo)
}

func demo(ownNet bool) error {
	err := errors.Join(os.MkdirAll(nets, 0o755), os.WriteFile(nets+"/userspace", []byte(userspace), 0o755), linktest.MakeNetns(pod))
	first, onCard, cardErr := cardScene(ownNet)
	if err = errors.Join(err, cardErr); err != nil {
		return err
	}
	for n, s := range append([]scene{first}, scenes...) {
		if n == 1 && onCard {
			if err := sandbox.Leave(); err != nil { // the remaining scenes do not need the machine's network
				return err
			}
		}
		fmt.Printf("%s\n%d. %s\n\n%s\n", strings.Repeat("─", 78), n+1, s.title, s.about)
		if err := s.play(); err != nil {
			return fmt.Errorf("scene %d: %w", n+1, err)
		}
	}
	if failed > 0 {
		return errors.New("not everything was as it should be: see \"WRONG\" above")
	}
	fmt.Printf("\nAll as it should be, and nothing of it is left.\n")
	return nil
}

// failed counts failed checks.
var failed int

func check(ok bool, what string, detail any) {
	if ok {
		fmt.Printf("  ok     %s\n", what)
		return
	}
	failed++
	fmt.Printf("  WRONG  %s\n         %v\n", what, detail)
}

// play runs one scene. It returns an error if the scene cannot be run.
func (s *scene) play() error {
	settings, err := s.prepare()
	if err != nil {
		return err
	}
	command := "cnitool add " + s.network + " " + pod
	if caps := s.capArgs(); caps != "" {
		command = "CAP_ARGS='" + caps + "' " + command
	}
	fmt.Printf("\nnetwork %s:\n%s\n\n%s\n", s.network, indent(s.conflist()), indent("$ CNI_IFNAME="+ifName+" "+command))
	result, err := s.cnitool("add")
	if err != nil {
		return err
	}
	file, err := os.ReadFile(s.path())
	fmt.Printf("%s\n\n%s:\n%s\n\n", indent(result), s.path(), indent(string(file)))
	check(err == nil && s.describes(file), "the device-info file is valid, and says what it should", fmt.Sprintf("want: %s", s.file.Encode()))
	check(s.identifies(result), "the result has "+ifName+" in the pod, and names the same device", result)
	if s.link {
		check(linkExists(), ifName+" is in the pod", "")
	}
	_, err = s.cnitool("check")
	check(err == nil, "CHECK finds all in order", err)
	_, err = s.cnitool("del")
	check(err == nil, "DEL succeeds", err)
	var left []string
	for _, pattern := range []string{infos + "/*", settings.StateDir + "/attachments/*", "/var/lib/cni/results/*"} {
		names, _ := filepath.Glob(pattern)
		left = append(left, names...)
	}
	check(left == nil && !linkExists(), "the file, the interface and the plugin's own record are gone", left)
	return nil
}

// prepare writes the network and the node settings. All paths are in the sandbox.
func (s *scene) prepare() (config.Node, error) {
	settings := config.DefaultNode()
	settings.DeviceInfoDir = infos
	settings.DevicePluginDir = "/run/k8s.cni.cncf.io/devinfo/dp"
	var err error
	if s.host != "" {
		settings.Sysfs = own + "/sys-" + s.network
		host, loadErr := capturefile.Load(filepath.Join(*hosts, s.host+".txtar"))
		if loadErr != nil {
			return settings, loadErr
		}
		err = undertest.Unpack(host, settings.Sysfs)
	}
	text, _ := json.Marshal(settings) // strings and lists of them always encode
	return settings, errors.Join(err,
		os.WriteFile(own+"/node.json", text, 0o644),
		os.WriteFile(filepath.Join(nets, s.network+".conflist"), []byte(s.conflist()), 0o644))
}

// path returns the expected path of the device-info file.
func (s *scene) path() string {
	if s.auto {
		return infos + "/" + s.network + "-" + containerID + "_" + ifName
	}
	return infos + "/" + s.network + "_" + ifName // the name does not matter
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
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("cnitool %s: %w: %s", verb, err, bytes.TrimSpace(errs.Bytes()))
	}
	if errs.Len() > 0 {
		fmt.Println(indent(errs.String()))
	}
	return out.String(), nil
}

// describes compares a device-info file with the expected one. The file of the machine's own card may contain
// additional keys.
func (s *scene) describes(file []byte) bool {
	info, err := devinfo.Parse(file)
	if err != nil || info.Validate().Err() != nil {
		return false
	}
	if s.host == "" && info.PCI != nil {
		info.PCI.RDMADevice, info.PCI.Representor = "", ""
	}
	return bytes.Equal(info.Encode(), s.file.Encode())
}

// identifies reports whether a result has the data that Multus and KubeVirt need: an interface with our name in the
// pod's namespace, and the device's address.
func (s *scene) identifies(text string) bool {
	var result struct {
		Interfaces []struct{ Name, Sandbox, PCIID, SocketPath string }
	}
	_ = json.Unmarshal([]byte(text), &result) // then it has no interface
	texts, socket := s.file.Texts(), ""
	if s.file.Type == devinfo.TypeVhostUser || s.file.Type == devinfo.TypeMemif {
		socket = texts["path"]
	}
	for _, i := range result.Interfaces {
		if i.Name == ifName && i.Sandbox == pod && i.PCIID == texts["pci-address"] && i.SocketPath == socket {
			return true
		}
	}
	return false
}

// linkExists reports whether the pod's namespace has the interface.
func linkExists() bool {
	return linktest.InNetns(pod, func() error {
		_, err := netlink.LinkByName(ifName)
		return err
	}) == nil
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
}
