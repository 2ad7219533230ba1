package bench_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/test/difftest"
)

const (
	formerName    = "devinfo-former" // the plugin of an older build
	crowd         = 100              // number of simultaneous ADDs
	macvlanConfig = `"master": "host0", "mode": "bridge"`
	added         = "net2" // the interface that macvlan creates on the host's end of the veth pair
)

var (
	devinfo  = plugin{name: "devinfo", config: func(container string) string { return device("0000:3b:00.2", container) }}
	tuning   = plugin{name: "tuning", config: func(string) string { return `"sysctl": {"net.core.somaxconn": "500"}` }}
	macvlan  = plugin{name: "macvlan", ifName: added, config: func(string) string { return macvlanConfig }}
	managing = plugin{name: "delegating", program: "devinfo", ifName: added, config: func(container string) string {
		return device("0000:3b:00.2", container) + `, "followLower": false, "delegates": [{"type": "macvlan", ` + macvlanConfig + `}]`
	}}
	multus = plugin{name: "multus", ifName: added, config: func(string) string {
		return `"cniDir": "` + own + `/multus", "delegates": [{"cniVersion": "1.0.0", "name": "macvlan", "type": "macvlan", ` + macvlanConfig + `}]`
	}}
)

func device(address, container string) string {
	return `"capabilities": {"CNIDeviceInfoFile": true}, "deviceID": "` + address + `",
"runtimeConfig": {"CNIDeviceInfoFile": "` + infos + "/" + container + `"}`
}

func (b *table) version() {
	var turns [][]job
	for _, program := range []string{"devinfo", "tuning", formerName} {
		if program != formerName || former != "" {
			turns = append(turns, []job{{programs + "/" + program, os.DevNull, []string{"CNI_COMMAND=VERSION", "GOMAXPROCS=2"}}})
		}
	}
	ms := b.alternate(rounds, turns...)
	b.add(row{"VERSION", ms[0][0] / ms[1][0], "x tuning VERSION", 1.10})
	if former != "" {
		b.add(row{"VERSION, former build", ms[0][0] / ms[2][0], "x former", 1.08})
	}
	b.add(row{"tuning VERSION", ms[1][0], "ms", 0})
}

// addDel measures ADD and DEL in a chain. ADD always creates the attachment, and DEL always removes it.
func (b *table) addDel() {
	turns := [][]job{b.addAndDel(devinfo, "one"), b.addAndDel(tuning, "one")}
	if former != "" {
		b.settings(own+"/former.json", "/run/state/"+formerName)
		turns = append(turns, b.addAndDel(plugin{name: formerName, config: devinfo.config, node: own + "/former.json"}, "one"))
	}
	ms := b.alternate(rounds, turns...)
	for n, verb := range []string{"ADD", "DEL"} {
		gate := []float64{1.35, 1.20}[n]
		if former != "" {
			b.add(row{"chained " + verb + ", former build", ms[0][n] / ms[2][n], "x former", 1.08})
		}
		b.add(row{"chained " + verb, ms[0][n] / ms[1][n], "x tuning " + verb, gate})
		b.add(row{"tuning " + verb, ms[1][n], "ms", 0})
	}
}

// many starts ADDs for many containers at the same time.
func (b *table) many() {
	var ours, theirs, undo []job
	for n := range crowd {
		both := b.addAndDel(devinfo, fmt.Sprint("c", n))
		ours, undo, theirs = append(ours, both[0]), append(undo, both[1]), append(theirs, b.call(tuning, "ADD", fmt.Sprint("c", n)))
	}
	var times [2][]float64
	for range rounds / 10 {
		for n, jobs := range [][]job{ours, theirs} {
			times[n] = append(times[n], b.milliseconds(jobs...))
		}
		difftest.Same(b, "files of ADDs at once", len(difftest.Names(b, infos)), crowd)
		b.milliseconds(undo...)
	}
	b.add(row{fmt.Sprint(crowd, " ADDs at once"), median(times[0]) / median(times[1]), "x tuning", 1.40})
	b.add(row{fmt.Sprint(crowd, " ADDs at once, tuning"), median(times[1]), "ms", 0})
}

// memory measures the median of the peaks of several ADDs.
func (b *table) memory() {
	for _, p := range []plugin{devinfo, tuning} {
		var peaks []float64 // in MB; the kernel counts per processor, so that a value is off by up to 32 pages
		for n := range 20 {
			both := b.addAndDel(p, fmt.Sprint("m", n))
			cmd := exec.Command(programs+"/peak", both[0].stdin, both[0].program)
			cmd.Env = both[0].env
			out, err := cmd.Output()
			var kib int
			_, scanErr := fmt.Sscan(string(out), &kib)
			difftest.Must(b, err, scanErr)
			peaks = append(peaks, float64(kib)*1024/1e6)
			b.try(both[1])
		}
		r := row{"peak RSS of ADD", median(peaks), "MB", 6.5}
		if p.name != devinfo.name {
			r.metric, r.gate = r.metric+", "+p.name, 0
		}
		b.add(r)
	}
}

// delegating measures an ADD with macvlan as the delegate of devinfo, as the delegate of Multus, and in a chain with
// tuning. Multus runs without a cluster, so it reads no pod.
func (b *table) delegating() {
	var turns [][]job
	for _, chain := range [][]plugin{{managing}, {multus}, {macvlan, tuning}} {
		var jobs []job
		for n, p := range chain {
			jobs = slices.Insert(jobs, n, b.addAndDel(p, "delegating")...)
		}
		turns = append(turns, jobs)
	}
	var adds [3]float64
	for n, chain := range b.alternate(rounds/2, turns...) {
		for _, ms := range chain[:len(chain)/2] {
			adds[n] += ms
		}
	}
	b.add(row{"ADD that delegates to macvlan", adds[0] / adds[1], "x Multus", 0.72})
	b.add(row{"the same ADD", adds[0] / adds[2], "x macvlan, then tuning", 1.40})
	b.add(row{"ADD of Multus that delegates to macvlan", adds[1], "ms", 0})
	b.add(row{"ADD of macvlan, then tuning", adds[2], "ms", 0})
}

// journals measures the effect of the number of attachments on the node, and a GC with only valid attachments.
func (b *table) journals() {
	bootID, err := journal.BootID()
	difftest.Must(b, err)
	var turns [][]job
	var among plugin
	valid := ""
	for _, n := range []int{10, 10000} {
		state := fmt.Sprint(own, "/state-", n)
		among = plugin{name: fmt.Sprint("among-", n), program: "devinfo", config: devinfo.config, node: state + ".json"}
		difftest.Must(b, os.RemoveAll(state)) // of the previous run
		valid = ""
		j := journal.Open(state, bootID)
		for i := range n {
			key := journal.Key{Network: "bench", ContainerID: fmt.Sprint("other", i), IfName: ifName}
			e := &journal.Entry{Key: key, Netns: pod, File: fmt.Sprint("other", i), Dir: infos, Complete: true}
			difftest.Must(b, j.Put(e, nil))
			e.Unlock()
			valid += fmt.Sprintf(`, {"containerID": %q, "ifname": "net1"}`, key.ContainerID)
		}
		b.settings(among.node, state)
		turns = append(turns, b.addAndDel(among, "one"))
	}
	ms := b.alternate(rounds, turns...)
	b.add(row{"ADD among 10,000 attachments", ms[1][0] / ms[0][0], "x among 10", 1.1})
	among.name, among.config = "gc", func(string) string {
		return `"cniVersion": "1.1.0", "cni.dev/valid-attachments": [` + valid[2:] + `]`
	}
	ms = b.alternate(20, []job{b.call(among, "GC", "")})
	b.add(row{"GC of 10,000 valid attachments", ms[0][0] / 1000, "s", 0.3})
}
