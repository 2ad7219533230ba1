// Package bench_test compares the cost of the plugin with Multus and with simple reference plugins. A run measures the
// plugins in turn, and divides the medians of their times, because absolute times vary from hour to hour. The test fails if
// the median of a ratio over all runs exceeds its gate, because ratios vary from run to run.
//
//	make bench
//
// DEVINFO_BENCH is a pattern of the parts to run, and DEVINFO_BENCH_FORMER an older build of the plugin to compare with.
package bench_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

const (
	runs   = 5   // how often everything is measured
	rounds = 200 // how often each program starts in a run
	warmUp = 5   // rounds before them

	pod      = "/run/netns/pod"
	ifName   = "net1"
	own      = "/run/devinfo"
	programs = own + "/bin"
	infos    = "/run/k8s.cni.cncf.io/devinfo/cni"
)

var former = os.Getenv("DEVINFO_BENCH_FORMER")

// parts are the parts of the benchmark in order. Each adds rows to the table.
var parts = []struct {
	name string
	run  func(*table)
}{
	{"version", (*table).version}, {"addDel", (*table).addDel}, {"many", (*table).many}, {"memory", (*table).memory},
	{"delegating", (*table).delegating}, {"journal", (*table).journals},
}

func TestRatiosAreWithinGates(t *testing.T) {
	only, wanted := os.LookupEnv("DEVINFO_BENCH")
	if !wanted {
		t.Skip("it measures, and needs an otherwise idle machine: make bench")
	}
	linktest.Run(t, func(t *testing.T) {
		runtime.GOMAXPROCS(2)
		b := &table{T: t, machine: machine(), runs: map[string][]float64{}}
		b.setUp()
		for range runs {
			b.install()
			for _, part := range parts {
				if regexp.MustCompile(only).MatchString(part.name) {
					part.run(b)
				}
			}
		}
		b.settle()
	})
}

// install copies the programs as an installation does: a file that the linker has just written starts a quarter slower until
// it is read from the disk again. How fast a copy starts depends on its place in memory, by a tenth, so each run has its own.
func (b *table) install() {
	names := map[string]string{"bench/multus": "multus", "bench/peak": "peak", "devinfo": "devinfo", "tuning": "tuning", "macvlan": "macvlan"}
	if former != "" {
		names[former] = formerName
	}
	for name, as := range names {
		at := filepath.Join(programs, as)
		_ = os.Remove(at) // nothing is there before the first run
		difftest.Write(b, at, difftest.Read(b, filepath.Join(undertest.Peers(b, name), name)), 0o755)
	}
}

// setUp creates the situation after sriov-cni: a VF of the captured host, and net1 in a pod. Here net1 is one end of
// a veth pair with an address.
func (b *table) setUp() {
	undertest.Sys(b, "mlx5-legacy", own+"/sys")
	difftest.Must(b, linktest.MakeNetns(pod))
	linktest.AddVeth(b, "host0", ifName, pod)
	difftest.Must(b, linktest.InNetns(pod, func() error {
		l, err := netlink.LinkByName(ifName)
		difftest.Must(b, err)
		return netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 56, 217, 2), Mask: net.CIDRMask(24, 32)}})
	}))
	b.settings(own+"/node.json", "/run/state/devinfo")
}

// settings writes node settings with this state directory.
func (b *table) settings(file, state string) {
	difftest.Write(b, file, fmt.Sprintf(`{"deviceInfoDir": %q, "sysfs": %q, "cdiDir": %q, "stateDir": %q}`, infos, own+"/sys", own+"/cdi", state), 0o644)
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

// A job is one call that can be repeated.
type job struct {
	program string
	stdin   string // file
	env     []string
}

// call returns the job for a verb and a container.
func (b *table) call(p plugin, verb, container string) job {
	program := cmp.Or(p.program, p.name)
	config := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "bench", "type": %q, %s`, program, p.config(container))
	if p.ifName == "" {
		config += ", " + prevResult
	}
	j := job{program: filepath.Join(programs, program), stdin: filepath.Join(own, p.name+"-"+container), env: []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + container, "CNI_NETNS=" + pod, "CNI_IFNAME=" + cmp.Or(p.ifName, ifName),
		"CNI_PATH=" + programs, "DEVINFO_NODE_CONFIG=" + cmp.Or(p.node, own+"/node.json"), "GOMAXPROCS=2",
	}}
	difftest.Write(b, j.stdin, config+"}", 0o644)
	return j
}

// addAndDel returns the jobs for ADD and DEL of a container.
func (b *table) addAndDel(p plugin, container string) []job {
	return []job{b.call(p, "ADD", container), b.call(p, "DEL", container)}
}

func (b *table) command(j job) *exec.Cmd {
	stdin, err := os.Open(j.stdin)
	difftest.Must(b, err)
	cmd := exec.Command(j.program)
	cmd.Stdin, cmd.Env = stdin, j.env
	return cmd
}

// try runs a job once, which must succeed without a warning.
func (b *table) try(j job) {
	cmd := b.command(j)
	defer cmd.Stdin.(*os.File).Close()
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("level=WARN")) {
		b.Fatalf("%s %s: %v: %s", j.program, j.env[0], err, out)
	}
}

// milliseconds runs jobs at the same time, without their output. It returns the time until the last one ends.
func (b *table) milliseconds(jobs ...job) float64 {
	var started []*exec.Cmd
	begin := time.Now()
	for _, j := range jobs {
		cmd := b.command(j)
		difftest.Must(b, cmd.Start())
		cmd.Stdin.(*os.File).Close()
		started = append(started, cmd)
	}
	for n, cmd := range started {
		if err := cmd.Wait(); err != nil {
			b.Errorf("%s %s: %v", jobs[n].program, jobs[n].env[0], err)
		}
	}
	return float64(time.Since(begin)) / 1e6
}

// alternate runs the jobs of each sequence one by one, and the sequences in changing order. It returns the medians of the
// jobs' times in milliseconds.
func (b *table) alternate(rounds int, sequences ...[]job) [][]float64 {
	runtime.GC()
	times := make([][][]float64, len(sequences))
	for round := range rounds + warmUp {
		for n := range sequences {
			n = (n + round) % len(sequences)
			for k, j := range sequences[n] {
				if round == 0 {
					b.try(j)
					times[n] = append(times[n], nil)
				} else if ms := b.milliseconds(j); round >= warmUp {
					times[n][k] = append(times[n][k], ms)
				}
			}
		}
	}
	medians := make([][]float64, len(sequences))
	for n := range times {
		for _, list := range times[n] {
			medians[n] = append(medians[n], median(list))
		}
	}
	return medians
}

// machine returns processor, kernel, Go version and the load before the benchmark, which makes ratios too high: the longer of
// two programs is interrupted more often.
func machine() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	_, model, _ := strings.Cut(string(info), "model name")
	model, _, _ = strings.Cut(model, "\n")
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	busy, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%d x %s, Linux %s, %s; load average %s", runtime.NumCPU(), cmp.Or(strings.Trim(model, "\t :"), runtime.GOARCH), bytes.TrimSpace(release), runtime.Version(), busy)
}

// A row is one measurement. A row without a gate is only for comparison.
type row struct {
	metric   string
	measured float64 // in unit
	unit     string
	gate     float64
}

// A table collects the measurements of several runs.
type table struct {
	*testing.T
	machine string
	rows    []row
	runs    map[string][]float64 // by metric
}

func (b *table) add(r row) {
	if b.runs[r.metric] == nil {
		b.rows = append(b.rows, r)
	}
	b.runs[r.metric] = append(b.runs[r.metric], r.measured)
}

// settle prints the median of each row, and fails the test if one exceeds its gate.
func (b *table) settle() {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "metric\tmedian\truns\tgate\t\n")
	for _, gated := range []bool{true, false} {
		for _, r := range b.rows {
			if (r.gate > 0) != gated {
				continue
			}
			all := b.runs[r.metric]
			measured, verdict := median(all), "\t"
			if gated {
				verdict = fmt.Sprintf("<= %.2f\tok", r.gate)
			}
			if gated && measured > r.gate {
				verdict = fmt.Sprintf("<= %.2f\tMISS", r.gate)
				b.Fail()
			}
			fmt.Fprintf(w, "%s\t%.2f %s\t%.2f-%.2f\t%s\n", r.metric, measured, r.unit, slices.Min(all), slices.Max(all), verdict)
		}
	}
	w.Flush()
	b.Logf("%d runs of %d rounds on %s\n%s", runs, rounds, b.machine, &text)
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
