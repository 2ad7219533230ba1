package inject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/host/link"
)

// Annotations of a pod. The runtime passes the values from the creation of the sandbox.
const (
	injectAnnotation  = "devinfo-cni.io/inject"  // "false" disables injection for the pod
	requireAnnotation = "devinfo-cni.io/require" // comma-separated interfaces that must have device information

	networksAnnotation = "k8s.v1.cni.cncf.io/networks"      // networks that Multus attaches
	defaultAnnotation  = "v1.multus-cni.io/default-network" // the network for eth0
)

// Configure subscribes to the events that Plugin has methods for.
func (p *Plugin) Configure(_ context.Context, _, runtime, version string) (stub.EventMask, error) {
	p.Log.Info("container runtime connected", "runtime", runtime, "version", version)
	return 0, nil
}

// Synchronize records the runtime's sandboxes, so that the next refresh removes the directories of those that have ended.
func (p *Plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) ([]*api.ContainerUpdate, error) {
	known := make(map[string]bool, len(pods))
	for _, pod := range pods {
		known[pod.GetId()] = true
	}
	p.mu.Lock()
	p.known, p.since = known, time.Now()
	p.mu.Unlock()
	return nil, nil
}

// RemovePodSandbox lets the next refresh remove the directory of the sandbox.
func (p *Plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.mu.Lock()
	p.ended[pod.GetId()] = true
	delete(p.known, pod.GetId())
	p.mu.Unlock()
	return nil
}

// Orphaned reports whether the runtime does not know a sandbox that was attached before the runtime connected.
// Either the runtime is still creating the sandbox, or it was killed while creating it and will never run its
// DEL. attached is the time of ADD.
func (p *Plugin) Orphaned(sandbox string, attached time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known != nil && attached.Before(p.since) && !p.known[sandbox]
}

// verdict is the complete result for one container.
type verdict struct {
	Decision
	Reason
	adjustment *api.ContainerAdjustment
	withheld   []withheld
	disagree   []disagreement
	problem    error // cause of the decision; nil if Reason is ""
}

// CreateContainer returns the additions to a container, be it an init container, a sidecar or one that restarts.
func (p *Plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	began := time.Now()
	p.mu.Lock()
	if p.known != nil {
		p.known[pod.GetId()] = true
	}
	p.mu.Unlock()
	v := p.decideInTime(ctx, pod, c)
	p.logDecision(pod, c, v, time.Since(began))
	if v.Decision == Rejected {
		return nil, nil, fmt.Errorf("pod %s/%s, container %s: %w", pod.GetNamespace(), pod.GetName(), c.GetName(), v.problem)
	}
	return v.adjustment, nil, nil
}

// decideInTime is decide, but gives up when the budget for waiting is used up, with the reason Late.
func (p *Plugin) decideInTime(ctx context.Context, pod *api.PodSandbox, c *api.Container) verdict {
	switch {
	case netnsOf(pod) == "" && len(required(pod)) == 0:
		return verdict{Decision: Nothing}
	case p.isOff(pod):
		return verdict{Decision: Off}
	}
	deadline, ok := ctx.Deadline()
	var attached atomic.Bool
	if !ok { // no runtime waits: each sets one
		return p.decide(pod, c, &attached)
	}
	decided := make(chan verdict, 1)
	go func() { decided <- p.decide(pod, c, &attached) }()
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(-min(margin, time.Until(deadline)/2)))
	defer cancel()
	free := work
	if p.hangs.Load() {
		free = workBesideHang
	}
	select {
	case v := <-decided:
		p.hangs.Store(false)
		return v
	case <-time.After(free):
	case <-ctx.Done():
	}
	waiting, end := p.waiting.Begin(ctx)
	defer end()
	select {
	case v := <-decided:
		p.hangs.Store(false)
		return v
	case <-waiting.Done():
	}
	p.hangs.Store(true)
	go func() {
		<-decided
		p.hangs.Store(false)
	}()
	stopped := errors.Is(ctx.Err(), context.Canceled) // the agent has no time left to find out
	return lacking(Late, errors.New("no decision in time: check the node for slow disks and kernel calls"),
		attached.Load() || hasNetworks(pod) || stopped || p.MissingInfo == Reject)
}

// A decision normally takes a few milliseconds, and on a busy node up to 80, which must not be cut off. What exceeds work is
// a wait for the node, with which all pods of the node wait; together these waits take at most a second in any ten. After
// one that was given up, others have less time until one ends, so that a node that hangs does not take 100 ms for each
// container.
const (
	work           = 100 * time.Millisecond
	workBesideHang = 20 * time.Millisecond
	hold           = 500 * time.Millisecond
	holdShare      = 0.05

	// A runtime disconnects a plugin that misses the deadline, and creates the container without it.
	margin = 300 * time.Millisecond
)

// decide reads the pod's attachments, stages their files and collects the container's adjustment. It sets attached as soon
// as it knows of an attachment, from an earlier container or by a name. A pod without any does not wait until the files of
// others are staged.
func (p *Plugin) decide(sandbox *api.PodSandbox, c *api.Container, attached *atomic.Bool) verdict {
	attached.Store(p.stage.has(sandbox.GetId()))
	settings, err := p.Node()
	var l listing
	if err == nil {
		l, err = p.list(settings, attached, sandbox.GetId())
	}
	switch {
	case err != nil:
		return lacking(Failed, err, attached.Load() || hasNetworks(sandbox))
	case !attached.Load():
		return p.judge(sandbox, nil, nil)
	}
	netns := netnsOf(sandbox)
	points, others := mountPoints(c.GetMounts(), settings.DeviceInfoDir)
	nics, staged, err := p.prepare(settings, l, sandbox.GetId(), netns, points)
	if err != nil {
		return lacking(Failed, err, true) // it has attachments
	}
	v := p.judge(sandbox, nics, staged)
	if v.Decision == Rejected || !injectable(nics) {
		return v
	}
	a := newAdjustment(sandbox, c, others)
	mounted := staged == nil && a.mount(cdispec.Mount{Host: p.stage.dir(sandbox.GetId()), Container: cdispec.InfoDir, ReadOnly: true})
	of := pod.Identity{UID: sandbox.GetUid(), ContainerID: sandbox.GetId()}
	if err := p.grants(a, settings, of, netns, nics); err != nil {
		v = lacking(Failed, err, p.MissingInfo == Reject || len(required(sandbox)) > 0)
		if v.Decision == Rejected {
			return v
		}
	}
	a.variables(nics, mounted)
	v.adjustment, v.withheld, v.disagree = a.ContainerAdjustment, a.withheld, disagreements(c.GetEnv(), nics)
	return v
}

// judge decides whether the container may be created. staged is the error of staging the files. If a device-info file
// is missing, MissingInfo decides, unless the pod requires its interface.
func (p *Plugin) judge(pod *api.PodSandbox, nics []nic, staged error) verdict {
	refuse, must := p.MissingInfo == Reject, required(pod)
	if staged != nil {
		return lacking(Failed, staged, refuse || len(must) > 0)
	}
	informed := map[string]bool{}
	var gone []error
	for _, n := range nics {
		informed[n.Interface] = n.DeviceInfo != nil || n.byClaim || n.gone != nil
		if n.gone != nil {
			gone = append(gone, fmt.Errorf("interface %s: %w", n.Interface, n.gone))
			refuse = refuse || slices.Contains(must, n.Interface)
		}
	}
	for _, ifName := range must {
		if !informed[ifName] {
			return lacking(Required, p.uninformed(ifName, netnsOf(pod), nics), true)
		}
	}
	switch {
	case gone != nil:
		return lacking(FileGone, fmt.Errorf("%w: delete the pod, so that its networks are attached again", errors.Join(gone...)), refuse)
	case !injectable(nics):
		return verdict{Decision: Nothing}
	}
	return verdict{Decision: Injected}
}

// prepare reads the attachments of a sandbox. If the plugin injects one of them, or did before, prepare also stages
// their files, and staged is the error of that. It holds p.staging, and lists the files again if the sandbox was staged
// since they were listed, so that older files cannot replace newer ones.
func (p *Plugin) prepare(settings config.Node, l listing, id, netns string, points []string) (nics []nic, staged, err error) {
	p.staging.Lock()
	defer p.staging.Unlock()
	if p.staged[id] > l.after {
		l, err = p.list(settings, new(atomic.Bool), id)
	}
	if err == nil {
		nics, err = p.attachments(l, id, netns)
	}
	if err != nil || !injectable(nics) && !p.stage.has(id) {
		return nics, nil, err
	}
	p.stage.recall(id, nics)
	if staged = p.stage.put(id, netns, files(nics), points); staged == nil || p.stage.has(id) {
		p.staged[id] = p.stagings.Add(1)
	}
	return nics, staged, nil
}

// lacking returns the verdict for a container whose device information is missing.
func lacking(why Reason, problem error, refuse bool) verdict {
	v := verdict{Decision: Allowed, Reason: why, problem: problem}
	if refuse {
		v.Decision = Rejected
	}
	return v
}

// hasNetworks reports whether a pod names networks, so that its containers are rejected, whatever the policy, if the plugin
// cannot read which attachments it has. A faulty plugin must not block the other pods.
func hasNetworks(pod *api.PodSandbox) bool {
	named := pod.GetAnnotations()
	return len(required(pod)) > 0 || named[networksAnnotation] != "" || named[defaultAnnotation] != ""
}

// uninformed returns the error for a required interface without device information.
func (p *Plugin) uninformed(ifName, netns string, nics []nic) error {
	var has []string
	why := "add the plugin devinfo to its network, or set resourceName in the network"
	for _, n := range nics {
		has = append(has, n.Interface)
		if n.Interface == ifName {
			why = cmp.Or(n.entry.Reason, why)
		}
	}
	_, err := p.Finder.Interfaces.Interface(netns, ifName)
	if !slices.Contains(has, ifName) && (errors.Is(err, link.ErrNoInterface) || errors.Is(err, link.ErrNoNetns)) {
		return fmt.Errorf("the pod has no interface %s (it has %s): correct the annotation %s, or attach the network",
			loggable(ifName), cmp.Or(strings.Join(has, ", "), "none"), requireAnnotation)
	}
	return fmt.Errorf("interface %s, required by the annotation %s, has no device information: %s; "+
		"remove the interface from the annotation if it has no device, such as a bridge or veth", loggable(ifName), requireAnnotation, why)
}

func required(p *api.PodSandbox) (names []string) {
	for name := range strings.SplitSeq(p.GetAnnotations()[requireAnnotation], ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// loggable makes a value from a pod safe for logs and events. An annotation may have 256 KiB.
func loggable(s string) string { return clierr.Printable(fmt.Sprintf("%.64s", s)) }

func (p *Plugin) isOff(pod *api.PodSandbox) bool {
	in := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool { ok, _ := path.Match(pattern, pod.GetNamespace()); return ok })
	}
	if len(p.Only) > 0 && !in(p.Only) || in(p.Except) {
		return true
	}
	value, ok := pod.GetAnnotations()[injectAnnotation]
	if !ok {
		return false
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		p.Log.Warn("annotation ignored: its value must be true or false", "pod", pod.GetNamespace()+"/"+pod.GetName(), injectAnnotation, loggable(value))
	}
	return err == nil && !on
}

func (p *Plugin) logDecision(pod *api.PodSandbox, c *api.Container, v verdict, took time.Duration) {
	log := p.Log.With("pod", pod.GetNamespace()+"/"+pod.GetName(), "container", c.GetName())
	if v.problem != nil {
		log.Warn("container "+string(v.Decision), "reason", v.Reason, "error", v.problem)
	} else {
		log.Debug("container "+string(v.Decision), "took", took)
	}
	for _, w := range v.withheld {
		level := slog.LevelWarn
		if w.cause == ByMount { // the pod's author chose the mount
			level = slog.LevelInfo
		}
		log.Log(context.Background(), level, "withheld from the container", "device", w.Device, "why", w.Why, "remedy", w.Remedy)
		p.Metrics.Withheld(w.cause)
	}
	for _, d := range v.disagree {
		log.Warn("container's devices disagree with its pod's networks", "problem", d.what, "networks", d.networks,
			"remedy", "look up devices by DEVINFO_<interface>_PCI_ADDRESS, not by position; use one resource per network, and request one device of it for each attachment")
		p.Metrics.Disagrees(d.kind)
	}
	p.Metrics.Decided(v.Decision, v.Reason, took)
}
