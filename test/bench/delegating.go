package main

import (
	"fmt"
	"os"

	"devinfo-cni.io/pkg/core/journal"
)

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
			add, err := p.call("ADD", "delegating")
			if err != nil {
				return err
			}
			del, err := p.call("DEL", "delegating")
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
	t.add(row{"ADD that delegates to macvlan", ours / theirs, "x Multus", 0.65, 0.55})
	t.add(row{"the same ADD", ours / chained, "x macvlan, then tuning", 1.40, 1.25})
	t.add(row{"ADD of Multus that delegates to macvlan", theirs, "ms", 0, 0})
	t.add(row{"ADD of macvlan, then tuning", chained, "ms", 0, 0})
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
			if err := j.Record(e, nil); err != nil {
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
	t.add(row{"ADD among 10,000 attachments", median(times["among-10000ADD"]) / median(times["among-10ADD"]), "x among 10", 1.1, 1.0})
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
	t.add(row{"GC of 10,000 valid attachments", ms[0] / 1000, "s", 0.3, 0.1})
	return nil
}
