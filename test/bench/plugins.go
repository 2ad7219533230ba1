package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/sandbox"
	"devinfo-cni.io/test/undertest"
)

const (
	pod    = "/run/netns/pod"
	ifName = "net1"
	own    = "/run/devinfo"
	infos  = "/run/k8s.cni.cncf.io/devinfo/cni"
	crowd  = 100 // number of simultaneous ADDs
)

// setUp creates the situation after sriov-cni: a VF of the captured host, and net1 in a pod. Here net1 is one end of
// a veth pair with an address.
func setUp(host *capturefile.Host) error {
	if *rounds < 100 {
		return errors.New("fewer than 100 rounds say nothing")
	}
	if err := errors.Join(install(), sandbox.Leave(), undertest.Unpack(host, own+"/sys"), linktest.MakeNetns(pod), addVeth()); err != nil {
		return err
	}
	return settings(own+"/node.json", "/var/lib/cni/devinfo")
}

// settings writes node settings with this state directory.
func settings(file, state string) error {
	node := fmt.Sprintf(`{"deviceInfoDir": %q, "sysfs": %q, "cdiDir": %q, "stateDir": %q}`, infos, own+"/sys", own+"/cdi", state)
	return os.WriteFile(file, []byte(node), 0o644)
}

// programs is the directory of the installed programs.
const programs = sandbox.Bin + "/bench/installed"

// install copies the programs as an installation does. A file that the linker has just written starts a quarter
// slower until it is read from the disk again.
func install() error {
	if err := errors.Join(os.RemoveAll(programs), os.MkdirAll(programs, 0o755)); err != nil {
		return err
	}
	names := map[string]string{"bench/multus": "multus", "devinfo": "devinfo", "tuning": "tuning", "macvlan": "macvlan"}
	if *former != "" {
		names[*former] = formerName
	}
	for name, as := range names {
		text, err := os.ReadFile(filepath.Join(sandbox.Bin, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(programs, as), text, 0o755)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func addVeth() error {
	inside, err := os.Open(pod)
	if err != nil {
		return err
	}
	defer inside.Close()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "host0"}, PeerName: ifName, PeerNamespace: netlink.NsFd(int(inside.Fd()))}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	return linktest.InNetns(pod, func() error {
		l, err := netlink.LinkByName(ifName)
		if err != nil {
			return err
		}
		address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 56, 217, 2), Mask: net.CIDRMask(24, 32)}}
		return errors.Join(netlink.AddrAdd(l, address), netlink.LinkSetUp(l))
	})
}

const prevResult = `"prevResult": {
  "cniVersion": "1.0.0",
  "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:01", "sandbox": "` + pod + `"}],
  "ips": [{"interface": 0, "address": "10.56.217.2/24", "gateway": "10.56.217.1"}],
  "dns": {}
}`

// A plugin runs in a chain. config returns the keys that only its configuration has.
type plugin struct {
	name    string // name of the measurement
	program string // "" = same as name
	config  func(container string) string
	ifName  string // "" = net1, which exists and is in the prevResult
	node    string // file with node settings; "" = node.json
}

var devinfo = plugin{name: "devinfo", config: func(container string) string { return device("0000:3b:00.2", container) }}

func device(address, container string) string {
	return `"capabilities": {"CNIDeviceInfoFile": true}, "deviceID": "` + address + `",
"runtimeConfig": {"CNIDeviceInfoFile": "` + infos + "/" + container + `"}`
}

var tuning = plugin{name: "tuning", config: func(string) string { return `"sysctl": {"net.core.somaxconn": "500"}` }}

// A job is one call that can be repeated.
type job struct {
	program string
	stdin   string // file
	env     []string
}

// call returns the job for a verb and a container.
func (p plugin) call(verb, container string) (job, error) {
	program := cmp.Or(p.program, p.name)
	j := job{program: filepath.Join(programs, program), stdin: filepath.Join(own, p.name+"-"+container), env: []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + container, "CNI_NETNS=" + pod, "CNI_IFNAME=" + cmp.Or(p.ifName, ifName),
		"CNI_PATH=" + programs, "DEVINFO_NODE_CONFIG=" + cmp.Or(p.node, own+"/node.json"), "GOMAXPROCS=2",
	}}
	config := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "bench", "type": %q, %s`, program, p.config(container))
	if p.ifName == "" {
		config += ", " + prevResult
	}
	return j, os.WriteFile(j.stdin, []byte(config+"}"), 0o644)
}

// calls returns the jobs for ADD and DEL of a container.
func (p plugin) calls(container string) (add, del job, err error) {
	add, err = p.call("ADD", container)
	if err == nil {
		del, err = p.call("DEL", container)
	}
	return add, del, err
}

// try runs a job once, and returns its output.
func (j job) try() (string, error) {
	stdin, err := os.Open(j.stdin)
	if err != nil {
		return "", err
	}
	defer stdin.Close()
	cmd := exec.Command(j.program)
	cmd.Stdin, cmd.Env = stdin, j.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", j.program, j.env[0], err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// start starts a job without its output, so that only the job itself is measured.
func (j job) start() (*exec.Cmd, error) {
	stdin, err := os.Open(j.stdin)
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	cmd := exec.Command(j.program)
	cmd.Stdin, cmd.Env = stdin, j.env
	return cmd, cmd.Start()
}

// milliseconds runs jobs at the same time. It returns the time until the last one ends, and the processor time of
// all.
func milliseconds(jobs ...job) (wall, processor float64, err error) {
	var errs []error
	var started []*exec.Cmd
	begin := time.Now()
	for _, j := range jobs {
		cmd, err := j.start()
		errs = append(errs, err)
		if err == nil {
			started = append(started, cmd)
		}
	}
	for _, cmd := range started {
		errs = append(errs, cmd.Wait())
		processor += float64(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()) / 1e6
	}
	return float64(time.Since(begin)) / 1e6, processor, errors.Join(errs...)
}

// medians runs the jobs alternately in changing order, and returns the median time of each in milliseconds.
func medians(rounds int, turns ...[]job) ([]float64, error) {
	runtime.GC()
	times := make([][]float64, len(turns))
	for round := range rounds + 5 {
		for n := range turns {
			n = (n + round) % len(turns)
			t, _, err := milliseconds(turns[n]...)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", turns[n][0].program, turns[n][0].env[0], err)
			}
			if round >= 5 { // the first five rounds are a warm-up
				times[n] = append(times[n], t)
			}
		}
	}
	result := make([]float64, len(turns))
	for n := range turns {
		result[n] = median(times[n])
	}
	return result, nil
}

func version(t *table) error {
	env := []string{"CNI_COMMAND=VERSION", "GOMAXPROCS=2"}
	var turns [][]job
	all := []string{"devinfo", "tuning"}
	if *former != "" {
		all = append(all, formerName)
	}
	for _, program := range all {
		turns = append(turns, []job{{filepath.Join(programs, program), os.DevNull, env}})
	}
	ms, err := medians(*rounds, turns...)
	if err != nil {
		return err
	}
	t.add(row{"VERSION", ms[0] / ms[1], "x tuning VERSION", 1.10})
	if *former != "" {
		t.add(row{"VERSION, former build", ms[0] / ms[2], "x former", 1.08})
	}
	t.add(row{"tuning VERSION", ms[1], "ms", 0})
	return nil
}

// memory measures the median of the peaks of several ADDs.
func memory(t *table) error {
	for _, p := range []plugin{devinfo, tuning} {
		var peaks []float64 // in MB; the kernel counts per processor, so that a value is off by up to 32 pages
		for n := range 20 {
			add, del, err := p.calls(fmt.Sprint("m", n))
			if err != nil {
				return err
			}
			mb, err := peak(add)
			if err != nil {
				return fmt.Errorf("peak %s: %w", p.name, err)
			}
			peaks = append(peaks, mb)
			if _, err := del.try(); err != nil {
				return err
			}
		}
		mb := median(peaks)
		if p.name == devinfo.name {
			t.add(row{"peak RSS of ADD", mb, "MB", 6.5})
		} else {
			t.add(row{"peak RSS of ADD, " + p.name, mb, "MB", 0})
		}
	}
	return nil
}

// peak returns the peak memory of a call in MB.
func peak(j job) (mb float64, err error) {
	cmd := exec.Command(filepath.Join(sandbox.Bin, "bench/peak"), j.stdin, j.program)
	cmd.Env = j.env
	out, err := cmd.Output()
	if err != nil {
		return 0, err
	}
	var kib int
	_, err = fmt.Sscan(string(out), &kib)
	return float64(kib) * 1024 / 1e6, err
}
