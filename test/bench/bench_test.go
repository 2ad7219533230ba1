// Package bench_test compares the cost of the plugin with Multus and with simple reference plugins. A run measures the
// plugins in turn, and divides the medians of their times, because absolute times vary from hour to hour. The test fails
// if the median of a ratio over all runs exceeds its limit, because ratios vary from run to run.
//
//	make bench
//
// It runs in its own namespaces, with all state on tmpfs. DEVINFO_BENCH is the number of runs, and DEVINFO_BENCH_FORMER an
// older build of the plugin to compare with.
package bench_test

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
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

const (
	pod      = "/run/netns/pod"
	ifName   = "net1"
	own      = "/run/devinfo"
	programs = own + "/installed"
	infos    = "/run/k8s.cni.cncf.io/devinfo/cni"
	former   = "devinfo-former" // name of the older build
	crowd    = 100              // number of simultaneous ADDs
	rounds   = 200              // how often each program starts in a run
	warmUp   = 5                // rounds that do not count
)

var must = difftest.Must

func TestPluginIsWithinLimits(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("DEVINFO_BENCH"))
	if err != nil {
		t.Skip("it takes an idle machine: make bench")
	}
	linktest.Run(t, func(t *testing.T) {
		runtime.GOMAXPROCS(2)
		setUp(t)
		b := &bench{T: t, runs: map[string][]float64{}}
		for range runs {
			b.version()
			b.addDel()
			b.many()
			b.memory()
			b.delegating()
			b.journals()
		}
		b.report()
	})
}

// A row is one measurement. A row without a limit is only for comparison.
type row struct {
	metric, unit string
	limit        float64
}

// A bench collects the measurements of several runs.
type bench struct {
	*testing.T
	rows []row
	runs map[string][]float64 // by metric
}

func (b *bench) add(metric string, measured float64, unit string, limit float64) {
	if b.runs[metric] == nil {
		b.rows = append(b.rows, row{metric, unit, limit})
	}
	b.runs[metric] = append(b.runs[metric], measured)
}

// report prints the median of each row, and fails the test for each above its limit. The load before shows whether the
// machine was idle: other processes interrupt the longer of two programs more often, so its ratio is too high.
func (b *bench) report() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "metric\tmedian\truns\tlimit\n")
	for _, r := range b.rows {
		all, limit := b.runs[r.metric], ""
		if r.limit > 0 {
			limit = fmt.Sprintf("%.2f", r.limit)
		}
		fmt.Fprintf(w, "%s\t%.2f %s\t%.2f-%.2f\t%s\n", r.metric, median(all), r.unit, slices.Min(all), slices.Max(all), limit)
		if r.limit > 0 && median(all) > r.limit {
			b.Errorf("%s: %.2f is more than %.2f", r.metric, median(all), r.limit)
		}
	}
	w.Flush()
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

// setUp creates the situation after sriov-cni: a VF of the captured host, and net1 in a pod. Here net1 is one end of
// a veth pair with an address.
func setUp(t *testing.T) {
	t.Helper()
	load, err := os.ReadFile("/proc/loadavg")
	must(t, err)
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	must(t, err, unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, "mode=0755"), linktest.MakeNetns(pod))
	fmt.Printf("%d processors, Linux %s, %s; load average before: %s", runtime.NumCPU(), bytes.TrimSpace(release), runtime.Version(), load)
	undertest.Sys(t, "mlx5-legacy", own+"/sys")
	install(t)
	settings(t, own+"/node.json", "/var/lib/cni/devinfo")
	linktest.AddVeth(t, "host0", ifName, pod)
	must(t, linktest.InNetns(pod, func() error {
		l, err := netlink.LinkByName(ifName)
		address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 56, 217, 2), Mask: net.CIDRMask(24, 32)}}
		return cmp.Or(err, netlink.AddrAdd(l, address))
	}))
}

// settings writes node settings with this state directory.
func settings(t *testing.T, file, state string) {
	t.Helper()
	node := fmt.Sprintf(`{"deviceInfoDir": %q, "sysfs": %q, "cdiDir": %q, "stateDir": %q}`, infos, own+"/sys", own+"/cdi", state)
	difftest.Write(t, file, node, 0o644)
}

// install copies the programs as an installation does. A file that the linker has just written starts a quarter
// slower until it is read from the disk again.
func install(t *testing.T) {
	t.Helper()
	names := []string{"bench/multus", "bench/peak", "devinfo", "tuning", "macvlan"}
	bin := undertest.Peers(t, names...)
	for _, name := range names {
		difftest.Write(t, filepath.Join(programs, filepath.Base(name)), difftest.Read(t, filepath.Join(bin, name)), 0o755)
	}
	if path := os.Getenv("DEVINFO_BENCH_FORMER"); path != "" {
		difftest.Write(t, filepath.Join(programs, former), difftest.Read(t, path), 0o755)
	}
}

const prevResult = `"prevResult": {
  "cniVersion": "1.0.0",
  "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:01", "sandbox": "` + pod + `"}],
  "ips": [{"interface": 0, "address": "10.56.217.2/24", "gateway": "10.56.217.1"}],
  "dns": {}
}`

// A plugin runs in a chain. config returns the keys that only its configuration has.
type plugin struct {
	name   string
	config func(container string) string
	ifName string // "" = net1, which exists and is in the prevResult
	node   string // file with node settings; "" = node.json
}

// added is the interface that macvlan creates on the host's end of the veth pair.
const added = "net2"

const macvlanConfig = `"master": "host0", "mode": "bridge"`

var (
	devinfo    = plugin{name: "devinfo", config: device}
	tuning     = plugin{name: "tuning", config: func(string) string { return `"sysctl": {"net.core.somaxconn": "500"}` }}
	macvlan    = plugin{name: "macvlan", ifName: added, config: func(string) string { return macvlanConfig }}
	delegating = plugin{name: "devinfo", ifName: added, config: func(container string) string {
		return device(container) + `, "followLower": false, "delegates": [{"type": "macvlan", ` + macvlanConfig + `}]`
	}}
	multus = plugin{name: "multus", ifName: added, config: func(string) string {
		return `"cniDir": "` + own + `/multus", "delegates": [{"cniVersion": "1.0.0", "name": "macvlan", "type": "macvlan", ` + macvlanConfig + `}]`
	}}
)

func device(container string) string {
	return `"capabilities": {"CNIDeviceInfoFile": true}, "deviceID": "0000:3b:00.2",
"runtimeConfig": {"CNIDeviceInfoFile": "` + infos + "/" + container + `"}`
}

// A job is one call that can be repeated.
type job struct{ program, stdin, verb, container, ifName, node string }

func (j job) env() []string {
	return []string{"CNI_COMMAND=" + j.verb, "CNI_CONTAINERID=" + j.container, "CNI_NETNS=" + pod, "CNI_IFNAME=" + j.ifName,
		"CNI_PATH=" + programs, "DEVINFO_NODE_CONFIG=" + j.node, "GOMAXPROCS=2"}
}

var jobs int // number of configurations that have been written

// calls returns a job for each verb.
func (p plugin) calls(t *testing.T, container string, verbs ...string) (list []job) {
	t.Helper()
	config := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "bench", "type": %q, %s`, p.name, p.config(container))
	if p.ifName == "" {
		config += ", " + prevResult
	}
	jobs++
	j := job{filepath.Join(programs, p.name), fmt.Sprint(own, "/stdin", jobs), "", container, cmp.Or(p.ifName, ifName), cmp.Or(p.node, own+"/node.json")}
	difftest.Write(t, j.stdin, config+"}", 0o644)
	for _, j.verb = range verbs {
		list = append(list, j)
	}
	return list
}

// try runs a job once. It must not warn.
func (j job) try(t *testing.T) {
	t.Helper()
	stdin, err := os.Open(j.stdin)
	must(t, err)
	defer stdin.Close()
	cmd := exec.Command(j.program)
	cmd.Stdin, cmd.Env = stdin, j.env()
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("level=WARN")) {
		t.Fatalf("%s %s: %v: %s", j.program, j.verb, err, out)
	}
}

// start starts a job without reading its output, so that only the job itself is measured.
func (j job) start() (*os.Process, error) {
	stdin, err := os.Open(j.stdin)
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	return os.StartProcess(j.program, []string{j.program}, &os.ProcAttr{Env: j.env(), Files: []*os.File{stdin, null, null}})
}

// A task is a set of jobs that start at the same time.
type task []job

// milliseconds returns the time until the last job ends.
func (k task) milliseconds(t *testing.T) float64 {
	t.Helper()
	var errs []error
	var started []*os.Process
	begin := time.Now()
	for _, j := range k {
		p, err := j.start()
		must(t, err)
		started = append(started, p)
	}
	for _, p := range started {
		state, err := p.Wait()
		if err == nil && !state.Success() {
			err = errors.New(state.String())
		}
		errs = append(errs, err)
	}
	ms := float64(time.Since(begin)) / 1e6
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%s %s: %v", k[0].program, k[0].verb, err)
	}
	return ms
}

// alone returns a task for each job.
func alone(jobs ...job) (tasks []task) {
	for _, j := range jobs {
		tasks = append(tasks, task{j})
	}
	return tasks
}

// measure runs the turns in changing order. A turn is a sequence of tasks, such as ADD and DEL. It returns the median time of
// each task of each turn.
func measure(t *testing.T, rounds int, turns ...[]task) (medians [][]float64) {
	t.Helper()
	runtime.GC()
	for _, tasks := range turns {
		medians = append(medians, make([]float64, len(tasks)))
		for _, k := range tasks { // once with output
			for _, j := range k {
				j.try(t)
			}
		}
	}
	times := map[[2]int][]float64{}
	for round := range rounds + warmUp {
		for n := range turns {
			n = (n + round) % len(turns)
			for at, k := range turns[n] {
				if ms := k.milliseconds(t); round >= warmUp {
					times[[2]int{n, at}] = append(times[[2]int{n, at}], ms)
				}
			}
		}
	}
	for at, list := range times {
		medians[at[0]][at[1]] = median(list)
	}
	return medians
}

// ours are the plugins that are compared: ours, tuning, and ours of the older build, if there is one.
func ours() []plugin {
	list := []plugin{devinfo, tuning}
	if os.Getenv("DEVINFO_BENCH_FORMER") != "" {
		list = append(list, plugin{name: former, config: device, node: own + "/former.json"})
	}
	return list
}

// compare adds the ratios of a verb's times.
func (b *bench) compare(metric string, at int, times [][]float64, limit float64) {
	b.add(metric, times[0][at]/times[1][at], "x tuning", limit)
	if len(times) > 2 {
		b.add(metric+", former build", times[0][at]/times[2][at], "x former", 1.08)
	}
	b.add(metric+" of tuning", times[1][at], "ms", 0)
}

func (b *bench) version() {
	var turns [][]task
	for _, p := range ours() {
		turns = append(turns, alone(p.calls(b.T, "one", "VERSION")...))
	}
	b.compare("VERSION", 0, measure(b.T, rounds, turns...), 1.10)
}

// addDel measures ADD and DEL in a chain.
func (b *bench) addDel() {
	settings(b.T, own+"/former.json", "/var/lib/cni/"+former)
	var turns [][]task
	for _, p := range ours() {
		turns = append(turns, alone(p.calls(b.T, "one", "ADD", "DEL")...))
	}
	times := measure(b.T, rounds, turns...)
	b.compare("chained ADD", 0, times, 1.35)
	b.compare("chained DEL", 1, times, 1.20)
}

// many starts ADDs for many containers at the same time.
func (b *bench) many() {
	var turns [2][2]task // ADDs and DELs of devinfo and tuning
	for n, p := range []plugin{devinfo, tuning} {
		for c := range crowd {
			for verb, j := range p.calls(b.T, fmt.Sprint("c", c), "ADD", "DEL") {
				turns[n][verb] = append(turns[n][verb], j)
			}
		}
	}
	times := measure(b.T, 20, turns[0][:], turns[1][:])
	b.compare(fmt.Sprint(crowd, " ADDs at once"), 0, times, 1.40)
}

// memory measures the median of the peaks of several ADDs. The kernel counts per processor, so that a value is off by up
// to 32 pages.
func (b *bench) memory() {
	for _, p := range []plugin{devinfo, tuning} {
		var peaks []float64 // in MB
		for n := range 20 {
			calls := p.calls(b.T, fmt.Sprint("m", n), "ADD", "DEL")
			cmd := exec.Command(programs+"/peak", calls[0].stdin, calls[0].program)
			cmd.Env = calls[0].env()
			out, err := cmd.Output()
			must(b.T, err)
			kib, err := strconv.Atoi(strings.TrimSpace(string(out)))
			must(b.T, err)
			peaks = append(peaks, float64(kib)*1024/1e6)
			calls[1].try(b.T)
		}
		b.add("peak RSS of ADD of "+p.name, median(peaks), "MB", map[string]float64{devinfo.name: 6.5}[p.name])
	}
}

// delegating measures an ADD with macvlan as the delegate of devinfo, as the delegate of Multus, and in a chain with
// tuning. Multus runs without a cluster, so it reads no pod.
func (b *bench) delegating() {
	calls := func(p plugin) []job { return p.calls(b.T, "delegating", "ADD", "DEL") }
	first, second := calls(macvlan), calls(tuning)
	times := measure(b.T, rounds/2, alone(calls(delegating)...), alone(calls(multus)...), alone(first[0], second[0], second[1], first[1]))
	ours, theirs, chained := times[0][0], times[1][0], times[2][0]+times[2][1]
	b.add("ADD that delegates to macvlan", ours/theirs, "x Multus", 0.72)
	b.add("the same ADD", ours/chained, "x macvlan, then tuning", 1.40)
	b.add("ADD of Multus that delegates to macvlan", theirs, "ms", 0)
}

// journals measures the effect of the number of attachments on the node.
func (b *bench) journals() {
	bootID, err := journal.BootID()
	must(b.T, err)
	var among [2]plugin
	const all = 10000
	for n, size := range []int{10, all} {
		state := fmt.Sprint(own, "/state-", size)
		among[n] = plugin{name: "devinfo", config: device, node: state + ".json"}
		settings(b.T, among[n].node, state)
		must(b.T, os.RemoveAll(state)) // of the previous run
		j := journal.Open(state, bootID)
		for i := range size {
			key := journal.Key{Network: "bench", ContainerID: fmt.Sprint("other", i), IfName: ifName}
			e := &journal.Entry{Key: key, Netns: pod, File: fmt.Sprint("other", i), Dir: infos, Complete: true}
			must(b.T, j.Put(e, nil))
			e.Unlock()
		}
	}
	verbs := func(p plugin) []task { return alone(p.calls(b.T, "one", "ADD", "DEL")...) }
	times := measure(b.T, rounds, verbs(among[0]), verbs(among[1]))
	b.add("ADD among 10,000 attachments", times[1][0]/times[0][0], "x among 10", 1.1)
	gc := among[1]
	gc.config = func(string) string { // all are valid
		valid := make([]string, all)
		for i := range valid {
			valid[i] = fmt.Sprintf(`{"containerID": "other%d", "ifname": "net1"}`, i)
		}
		return `"cniVersion": "1.1.0", "cni.dev/valid-attachments": [` + strings.Join(valid, ", ") + `]`
	}
	b.add("GC of 10,000 valid attachments", measure(b.T, 20, alone(gc.calls(b.T, "", "GC")...))[0][0]/1000, "s", 0.3)
}
