package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/pod"
	"devinfo-cni.io/pkg/publish"
)

// publisher is what the agent knows of the annotations of its node's pods.
type publisher struct {
	said  map[publish.Pod][]publish.Network // what the API server has taken
	until time.Time                         // the journal was read, and all said, as it was then
	rest  time.Duration                     // after the last failure
}

// publish has the pods say what networks they have got or lost since it was called last. A pod that
// has none any more keeps its annotation: it ends, or waits for another sandbox.
func (a *Agent) publish(ctx context.Context) {
	p, err := &a.publisher, a.publishAll(ctx)
	if ctx.Err() != nil {
		return
	}
	a.report(Publish, err)
	if err == nil {
		p.rest = 0
		return
	}
	p.rest = min(max(2*p.rest, a.CheckInterval), time.Minute) // other nodes have met the same, and would ask at once again
	sleep(ctx, p.rest)
}

func (a *Agent) publishAll(ctx context.Context) error {
	node, err := a.Node()
	if err != nil {
		return err
	}
	p, j := &a.publisher, journal.Open(node.StateDir, a.BootID)
	modified, err := j.Changed()
	if err != nil || !p.until.IsZero() && modified.Equal(p.until) {
		return err
	}
	keys, err := j.All()
	if err != nil {
		return err
	}
	settled := time.Since(modified) > time.Second // else something may change at the same time by the clock
	pods := networksOf(j, keys)
	maps.DeleteFunc(p.said, func(of publish.Pod, _ []publish.Network) bool { return pods[of] == nil })
	if p.said == nil {
		p.said = map[publish.Pod][]publish.Network{}
	}
	var refused error
	for of, networks := range pods {
		if reflect.DeepEqual(p.said[of], networks) {
			continue
		}
		switch err := a.Options.Publish(ctx, of, networks); {
		case err == nil, errors.Is(err, publish.ErrGone):
			p.said[of] = networks
		case errors.Is(err, publish.ErrRefused):
			refused = err
		default:
			return err
		}
	}
	if settled && refused == nil {
		p.until = modified
	}
	return refused
}

// networksOf are the networks on record of each pod, ordered by interface; those by claims, of which
// the claims' status tells, are left out. Of two sandboxes of a pod, of which one is about to go, the
// later one's count.
func networksOf(j *journal.Journal, keys []journal.Key) map[publish.Pod][]publish.Network {
	type attachment struct {
		of publish.Pod
		*journal.Entry
	}
	var all []attachment
	for _, key := range keys {
		e, err := j.Get(key)
		if err != nil || e == nil || !e.Complete {
			continue // its ADD or DEL is under way, or doctor says what is wrong
		}
		args, _ := pod.ParseArgs(e.Args)
		namespace, name := args.Name()
		if uid := args.UID(); name != "" && uid != "" && args.Claim() == "" {
			all = append(all, attachment{publish.Pod{Namespace: namespace, Name: name, UID: uid}, e})
		}
	}
	slices.SortFunc(all, func(x, y attachment) int {
		return cmp.Or(cmp.Compare(x.IfName, y.IfName), y.Time.Compare(x.Time), cmp.Compare(x.Network, y.Network))
	})
	pods := map[publish.Pod][]publish.Network{}
	for _, e := range all {
		list := pods[e.of]
		if len(list) == 0 || list[len(list)-1].Interface != e.IfName {
			pods[e.of] = append(list, publish.Network{Name: e.Network, Interface: e.IfName, DeviceInfo: e.Info})
		}
	}
	return pods
}
