//go:build vm

package vm_test

import (
	"fmt"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/test/undertest"
)

// costOf runs ADD, and its DEL, of the binary under strace and gives what ADD asks
// for on files, directories and sockets. Memory and threads are the Go runtime's
// business, which varies.
func costOf(t *testing.T, netns, deviceID, nodeConfig, want string) cost {
	t.Helper()
	const trace = "/tmp/trace"
	plugin := func(verb string, command ...string) {
		t.Helper()
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = []string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=pod1", "CNI_NETNS=" + netns, "CNI_IFNAME=net1", "CNI_PATH=" + plugins, "DEVINFO_NODE_CONFIG=" + nodeConfig}
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "cost", "type": "devinfo",
			"runtimeConfig": {"CNIDeviceInfoFile": "%s/cost", "deviceID": %q}}`, infoDir, deviceID))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", verb, err, out)
		}
	}
	plugin("ADD", "strace", "-f", "-qq", "-y", "-e", "trace=%file,%network,getdents64,ioctl,setns", "-e", "signal=none", "-o", trace, plugins+"/devinfo")
	same(t, "device-info file", read(t, infoDir+"/cost"), indent(t, want))
	plugin("DEL", plugins+"/devinfo")
	return parse(t, read(t, trace))
}

// cost is what an ADD asks of the kernel.
type cost struct {
	Calls  map[string]int // by system call
	Listed []string       // the directories of sysfs that were read, in order
}

var (
	callLine = regexp.MustCompile(`(?m)^\d+ +(\w+)\((.*)$`)
	listed   = regexp.MustCompile(`^\d+<([^>]*)>.*entries.* = [1-9]`)
	sibling  = regexp.MustCompile(`virtfn\d|0000:41:1[0-9a-f]\.[2-7]|0000:3b:00\.[2-46-7]|0000:3b:(0[1-9a-f]|1)`)
)

// parse fails the test if a sibling of the VF is so much as looked at.
func parse(t *testing.T, trace string) (c cost) {
	t.Helper()
	c.Calls = map[string]int{}
	for _, m := range callLine.FindAllStringSubmatch(trace, -1) {
		c.Calls[m[1]]++
		if at := listed.FindStringSubmatch(m[2]); m[1] == "getdents64" && at != nil {
			c.Listed = append(c.Listed, at[1])
		}
		if sibling.MatchString(m[2]) && m[1] != "execve" {
			t.Errorf("a sibling is looked at: %s", m[0])
		}
	}
	return c
}

func (c cost) String() string {
	n := 0
	for _, calls := range c.Calls {
		n += calls
	}
	return fmt.Sprintf("%d system calls %v, lists %s", n, c.Calls, c.Listed)
}

// A VF of an igb, in legacy mode, with its interface in the pod, costs the same
// with one sibling and with six.
func TestCostIsTheSameWithMoreVFs(t *testing.T) {
	needs(t, "igb")
	t.Cleanup(func() { vfsBack(t) })
	t.Cleanup(func() { nothingLeft(t) })
	var few, many cost
	for _, n := range []int{1, 2, 7} { // the first makes the directories
		numVFs(t, pf, n, map[string]string{"0000:41:10.0": "first"})
		name := fmt.Sprint("pod", n)
		netns := pod(t, name)
		run(t, "ip", "link", "set", "first", "netns", name, "name", "net1")
		few, many = many, costOf(t, netns, "0000:41:10.0", "", pciInfo("0000:41:10.0", pf))
		t.Logf("%d VFs: %s", n, many)
	}
	if !reflect.DeepEqual(few, many) {
		t.Errorf("2 VFs: %s\n7 VFs: %s", few, many)
	}
	const root = "/sys/devices/pci0000:40/0000:40:00.0/"
	if want := []string{root + "0000:41:10.0/net", root + "0000:41:10.0", root + pf + "/net"}; !slices.Equal(many.Listed, want) {
		t.Errorf("lists %s, want %s", many.Listed, want)
	}
}

// The same with 1024 VFs, of a host in a folder: no emulated NIC has as many.
func TestCostIsTheSameWith1024VFs(t *testing.T) {
	needs(t)
	t.Cleanup(func() { nothingLeft(t) })
	netns := pod(t, "pod1")
	const vf = "0000:3b:00.5" // the fourth
	var few, many cost
	for _, n := range []int{4, 4, 1024} { // the first makes the directories
		sys := t.TempDir()
		must(t, undertest.Unpack(hosttxttest.ManyVFs(n), sys))
		write(t, "/tmp/node.json", fmt.Sprintf(`{"sysfs": %q}`, sys))
		few, many = many, costOf(t, netns, vf, "/tmp/node.json",
			`{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:00.5", "rdma-device": "mlx5_5", "pf-pci-address": "0000:3b:00.0"}}`)
		for i, dir := range many.Listed {
			many.Listed[i] = strings.TrimPrefix(dir, sys)
		}
		t.Logf("%d VFs: %s", n, many)
	}
	if !reflect.DeepEqual(few, many) {
		t.Errorf("4 VFs: %s\n1024 VFs: %s", few, many)
	}
}
