package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/hostdev"
)

// summary is the result of one check of all attachments, for the metrics.
type summary struct {
	at       time.Time // when the check ended
	states   map[string]int
	series   []series // sorted
	unnamed  int      // number of omitted series, because of MaxSeries
	orphaned []journal.Key
}

// series is the values of seriesLabels for one attachment.
type series [10]string

// seriesLabels uses the names of sriov-network-metrics-exporter (pf, vf, pciAddr) and node_exporter
// (device), so that the metrics can be joined.
var seriesLabels = []string{"pod", "namespace", "interface", "network", "type", "pciAddr", "pf", "vf", "device", "rdma_device"}

// orphaned is the class of attachments whose DEL the runtime will never run: see inject.Plugin.Orphaned.
const orphaned = "orphaned"

// classes are the values of the label state.
var classes = []string{"ok", "adding", "changed", orphaned, "stale", "corrupt", "newer", "unknown"}

// state returns the class of an attachment: orphaned if the runtime does not know its sandbox, which attachments
// made outside Kubernetes never are, and changed if something differs from what ADD recorded. there is true if the
// metrics show the attachment: its ADD is complete, and its class is ok, changed or unknown.
func (a *Agent) state(checker *check.Checker, e *journal.Entry, err error) (state string, there bool) {
	found, report := checker.Check(e, err)
	switch state = strings.ToLower(string(found)); {
	case found == check.Newer:
		state = "newer"
	case found == check.Deleting: // by cni-dra-driver, which reports it
		state = "ok"
	case !slices.Contains(classes, state) || len(report.Changed()) > 0:
		state = "changed"
	}
	there = slices.Contains([]string{"ok", "changed", "unknown"}, state) && e != nil && e.Complete
	if !there && state != "adding" {
		return state, false
	}
	sandboxes := a.sandboxes.Load()
	if _, pod := e.PodName(); sandboxes != nil && pod != "" && sandboxes.Orphaned(e.ContainerID, e.Time) {
		state = orphaned
	}
	return state, there
}

// look checks all attachments, stores the summary for the metrics and logs new orphaned attachments.
func (a *Agent) look(ctx context.Context) {
	c, err := a.summarize(ctx)
	if ctx.Err() != nil {
		return
	}
	a.report(Attachments, err)
	if err != nil {
		return // the metrics show the last summary and its time
	}
	if before := a.summary.Swap(&c); len(c.orphaned) > 0 && (before == nil || !slices.Equal(before.orphaned, c.orphaned)) {
		a.Log.Warn("the container runtime does not know the sandboxes of some attachments and may never delete them", "attachments", c.orphaned)
	}
}

func (a *Agent) summarize(ctx context.Context) (summary, error) {
	c := summary{states: map[string]int{}}
	node, checker, err := a.checker()
	if err != nil {
		return c, err
	}
	checker.Finder.Eswitches = hostdev.CacheEswitches(checker.Finder.Eswitches)
	j := journal.Open(node.StateDir, a.BootID)
	keys, err := j.All()
	if err != nil {
		return c, err
	}
	named := map[series]bool{} // a set, because two sandboxes of one pod may have equal series
	spread := pace{time.Now()}
	for _, key := range keys {
		spread.rest(ctx)
		if ctx.Err() != nil {
			return c, ctx.Err()
		}
		e, err := j.Get(key)
		if err == nil && (e == nil || e.Refused != "") { // removed by DEL after All listed it, or never added
			continue
		}
		state, there := a.state(checker, e, err)
		c.states[state]++
		if state == orphaned {
			c.orphaned = append(c.orphaned, key)
		}
		if there {
			named[seriesOf(checker.Finder, e)] = true
		}
	}
	c.series = slices.SortedFunc(maps.Keys(named), func(x, y series) int { return slices.Compare(x[:], y[:]) })
	if more := len(c.series) - a.MaxSeries; more > 0 {
		c.series, c.unnamed = slices.Clone(c.series[:a.MaxSeries]), more
	}
	c.at = time.Now()
	return c, nil
}

// seriesOf returns the labels of an attachment, based on the information that ADD recorded. Labels that
// cannot be read are empty; devinfoctl check shows the errors.
func seriesOf(f *discovery.Finder, e *journal.Entry) series {
	namespace, name := e.PodName()
	kind, facts := e.Device.Type, map[string]string{"pci-address": e.Device.ID}
	if info, err := devinfo.Parse(e.Info); err == nil {
		kind, facts = string(info.Type), info.Texts()
	}
	var address, pf, vf, own string
	if a, err := pci.Parse(facts["pci-address"]); err == nil {
		address, own = a.String(), port(f, a)
		if fn, _, _ := f.Sys.PCI(a); fn.PF != nil {
			pf = port(f, *fn.PF)
			if n, ok, _ := f.Sys.VFIndex(*fn.PF, a); ok {
				vf = strconv.Itoa(n)
			}
		}
	}
	s := series{name, namespace, e.IfName, e.Network, kind, address, pf, vf, cmp.Or(facts["representor-device"], own), facts["rdma-device"]}
	for n := range s {
		s[n] = strings.ToValidUTF8(s[n], "\uFFFD")
	}
	return s
}

// port returns the name of a PCI function's interface in the node's network namespace. It returns "" if the
// function has no interface or several, or they cannot be read.
func port(f *discovery.Finder, a pci.Address) string {
	ports, _ := hostdev.Ports(f.Sys, f.Interfaces, hostdev.Place{Bus: "pci", Name: a.String()})
	if len(ports) != 1 {
		return ""
	}
	return ports[0].Name
}
