package main

import (
	"fmt"
	"os"
	"strings"
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
			t.add(row{"chained " + verb + ", former build", median(times["devinfo"+verb]) / median(times[formerName+verb]), "x former", 1.08, 1})
		}
	}
	add, del := median(times["tuningADD"]), median(times["tuningDEL"])
	t.add(row{"chained ADD", median(times["devinfoADD"]) / add, "x tuning ADD", 1.30, 1.20})
	t.add(row{"chained DEL", median(times["devinfoDEL"]) / del, "x tuning DEL", 1.15, 1.05})
	for _, verb := range []string{"ADD", "DEL"} {
		ratio := median(times["devinfo"+verb+"cpu"]) / median(times["tuning"+verb+"cpu"])
		t.add(row{"chained " + verb + ", processor time", ratio, "x tuning " + verb, 0, 0})
	}
	t.add(row{"tuning ADD", add, "ms", 0, 0})
	t.add(row{"tuning DEL", del, "ms", 0, 0})
	return nil
}

// many starts ADDs for many containers at the same time.
func many(t *table) error {
	var ours, theirs, undo []job
	for n := range crowd {
		name := fmt.Sprint("c", n)
		add, err := devinfo.call("ADD", name)
		if err != nil {
			return err
		}
		del, err := devinfo.call("DEL", name)
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
	t.add(row{fmt.Sprint(crowd, " ADDs at once"), median(times[0]) / median(times[1]), "x tuning", 1.35, 1.25})
	t.add(row{fmt.Sprint(crowd, " ADDs at once, tuning"), median(times[1]), "ms", 0, 0})
	return nil
}
