package main

import (
	"fmt"
	"os"
	"strings"

	"devinfo-cni.io/pkg/core/journal"
)

// takeTurns runs ADD and DEL of the plugins in turn, so that ADD always creates the attachment and DEL always removes
// it. It returns the times in milliseconds by name and verb. Keys that end in "cpu" hold processor times.
func takeTurns(plugins ...plugin) (map[string][]float64, error) {
	times := map[string][]float64{}
	jobs := map[string]job{}
	for _, p := range plugins {
		for _, verb := range []string{"ADD", "DEL"} {
			j, err := p.call(verb, "one")
			if err != nil {
				return nil, err
			}
			if out, err := j.try(); err != nil {
				return nil, err
			} else if strings.Contains(out, "level=WARN") {
				return nil, fmt.Errorf("%s warns: %s", p.name, out)
			}
			jobs[p.name+verb] = j
		}
	}
	for round := range *rounds + 5 {
		for n := range plugins {
			p := plugins[(n+round)%len(plugins)]
			for _, verb := range []string{"ADD", "DEL"} {
				wall, processor, err := milliseconds(jobs[p.name+verb])
				if err != nil {
					return nil, fmt.Errorf("%s %s: %w", p.name, verb, err)
				}
				if round >= 5 {
					times[p.name+verb] = append(times[p.name+verb], wall)
					times[p.name+verb+"cpu"] = append(times[p.name+verb+"cpu"], processor)
				}
			}
		}
	}
	return times, nil
}

// formerName is the name of the plugin of an older build.
const formerName = "devinfo-former"

// addDel measures ADD and DEL in a chain.
func addDel(t *table) error {
	plugins := []plugin{devinfo, tuning}
	if *former != "" {
		plugins = append(plugins, plugin{name: formerName, config: devinfo.config, node: own + "/former.json"})
		if err := settings(own+"/former.json", "/var/lib/cni/"+formerName); err != nil {
			return err
		}
	}
	times, err := takeTurns(plugins...)
	if err != nil {
		return err
	}
	if *former != "" {
		for _, verb := range []string{"ADD", "DEL"} {
			t.add(row{"chained " + verb + ", former build", median(times["devinfo"+verb]) / median(times[formerName+verb]), "x former", 1.08})
		}
	}
	add, del := median(times["tuningADD"]), median(times["tuningDEL"])
	t.add(row{"chained ADD", median(times["devinfoADD"]) / add, "x tuning ADD", 1.35})
	t.add(row{"chained DEL", median(times["devinfoDEL"]) / del, "x tuning DEL", 1.20})
	for _, verb := range []string{"ADD", "DEL"} {
		ratio := median(times["devinfo"+verb+"cpu"]) / median(times["tuning"+verb+"cpu"])
		t.add(row{"chained " + verb + ", processor time", ratio, "x tuning " + verb, 0})
	}
	t.add(row{"tuning ADD", add, "ms", 0})
	t.add(row{"tuning DEL", del, "ms", 0})
	return nil
}

// many starts ADDs for many containers at the same time.
func many(t *table) error {
	var ours, theirs, undo []job
	for n := range crowd {
		name := fmt.Sprint("c", n)
		add, del, err := devinfo.calls(name)
		if err != nil {
			return err
		}
		other, err := tuning.call("ADD", name)
		if err != nil {
			return err
		}
		ours, undo, theirs = append(ours, add), append(undo, del), append(theirs, other)
	}
	var times [2][]float64
	for range max(10, *rounds/10) {
		for n, jobs := range [][]job{ours, theirs} {
			ms, _, err := milliseconds(jobs...)
			if err != nil {
				return err
			}
			times[n] = append(times[n], ms)
		}
		files, err := os.ReadDir(infos)
		if err != nil || len(files) != crowd {
			return fmt.Errorf("%d ADDs at once left %d files: %v", crowd, len(files), err)
		}
		if _, _, err := milliseconds(undo...); err != nil {
			return err
		}
	}
	t.add(row{fmt.Sprint(crowd, " ADDs at once"), median(times[0]) / median(times[1]), "x tuning", 1.40})
	t.add(row{fmt.Sprint(crowd, " ADDs at once, tuning"), median(times[1]), "ms", 0})
	return nil
}

// added is the interface that macvlan creates on the host's end of the veth pair.
const added = "net2"

const macvlanConfig = `"master": "host0", "mode": "bridge"`

var (
	macvlan  = plugin{name: "macvlan", ifName: added, config: func(string) string { return macvlanConfig }}
	managing = plugin{name: "delegating", program: "devinfo", ifName: added, config: func(container string) string {
		return device("0000:3b:00.2", container) + `, "followLower": false, "delegates": [{"type": "macvlan", ` + macvlanConfig + `}]`
	}}
	multus = plugin{name: "multus", ifName: added, config: func(string) string {
		return `"cniDir": "` + own + `/multus", "delegates": [{"cniVersion": "1.0.0", "name": "macvlan", "type": "macvlan", ` + macvlanConfig + `}]`
	}}
)

// delegating measures an ADD with macvlan as the delegate of devinfo, as the delegate of Multus, and in a chain with
// tuning. Multus runs without a cluster, so it reads no pod.
func delegating(t *table) error {
	var turns [3][2][]job // ADDs and DELs of each chain
	for n, chain := range [][]plugin{{managing}, {multus}, {macvlan, tuning}} {
		for _, p := range chain {
			add, del, err := p.calls("delegating")
			if err != nil {
				return err
			}
			turns[n][0], turns[n][1] = append(turns[n][0], add), append([]job{del}, turns[n][1]...)
		}
	}
	var times [3][]float64
	for round := range *rounds/2 + 3 {
		for n := range turns {
			n = (n + round) % len(turns)
			ms, err := oneByOne(turns[n][0], round == 0)
			if err == nil {
				_, err = oneByOne(turns[n][1], round == 0)
			}
			if err != nil {
				return err
			}
			if round >= 3 {
				times[n] = append(times[n], ms)
			}
		}
	}
	ours, theirs, chained := median(times[0]), median(times[1]), median(times[2])
	t.add(row{"ADD that delegates to macvlan", ours / theirs, "x Multus", 0.72})
	t.add(row{"the same ADD", ours / chained, "x macvlan, then tuning", 1.40})
	t.add(row{"ADD of Multus that delegates to macvlan", theirs, "ms", 0})
	t.add(row{"ADD of macvlan, then tuning", chained, "ms", 0})
	return nil
}

// oneByOne returns the total time. loud adds the output to the error.
func oneByOne(jobs []job, loud bool) (total float64, err error) {
	for _, j := range jobs {
		if loud {
			if _, err := j.try(); err != nil {
				return 0, err
			}
			continue
		}
		ms, _, err := milliseconds(j)
		if err != nil {
			return 0, fmt.Errorf("%s %s: %w", j.program, j.env[0], err)
		}
		total += ms
	}
	return total, nil
}

// journals measures the effect of the number of attachments on the node.
func journals(t *table) error {
	bootID, err := journal.BootID()
	if err != nil {
		return err
	}
	const few, all = 10, 10000
	for _, n := range []int{few, all} {
		state := fmt.Sprint(own, "/state-", n)
		if err := os.RemoveAll(state); err != nil { // of the previous run
			return err
		}
		j := journal.Open(state, bootID)
		for i := range n {
			key := journal.Key{Network: "bench", ContainerID: fmt.Sprint("other", i), IfName: ifName}
			e := &journal.Entry{Key: key, Netns: pod, File: fmt.Sprint("other", i), Dir: infos, Complete: true}
			if err := j.Put(e, nil); err != nil {
				return err
			}
			e.Unlock()
		}
		if err := settings(node(n), state); err != nil {
			return err
		}
	}
	with := func(n int) plugin {
		return plugin{name: fmt.Sprint("among-", n), program: "devinfo", config: devinfo.config, node: node(n)}
	}
	times, err := takeTurns(with(few), with(all))
	if err != nil {
		return err
	}
	t.add(row{"ADD among 10,000 attachments", median(times["among-10000ADD"]) / median(times["among-10ADD"]), "x among 10", 1.1})
	return collection(t, with(all), all)
}

func node(attachments int) string { return fmt.Sprint(own, "/node-", attachments, ".json") }

// collection measures a GC with only valid attachments.
func collection(t *table, p plugin, n int) error {
	p.name, p.config = "gc", func(string) string {
		valid := ""
		for i := range n {
			valid += fmt.Sprintf(`, {"containerID": "other%d", "ifname": "net1"}`, i)
		}
		return `"cniVersion": "1.1.0", "cni.dev/valid-attachments": [` + valid[2:] + `]`
	}
	gc, err := p.call("GC", "")
	if err != nil {
		return err
	}
	if _, err := gc.try(); err != nil {
		return err
	}
	ms, err := medians(20, []job{gc})
	if err != nil {
		return err
	}
	t.add(row{"GC of 10,000 valid attachments", ms[0] / 1000, "s", 0.3})
	return nil
}
