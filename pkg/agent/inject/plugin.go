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
	"time"
	"unicode"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/host/link"
)

// Annotations of a pod. The runtime passes the values from the creation of the sandbox.
const (
	injectAnnotation  = "devinfo-cni.io/inject"  // "false" disables injection for the pod
	requireAnnotation = "devinfo-cni.io/require" // comma-separated interfaces that must have device information

	networksAnnotation = "k8s.v1.cni.cncf.io/networks" // networks that Multus attaches
)

// Configure subscribes only to the events that the plugin needs, because the runtime waits for the plugin
// at each event.
func (a *Plugin) Configure(_ context.Context, _, runtime, version string) (stub.EventMask, error) {
	a.Log.Info("container runtime connected", "runtime", runtime, "version", version)
	return api.MustParseEventMask("CreateContainer,RemovePodSandbox"), nil
}

// Synchronize records the runtime's sandboxes. A refresh then removes the directories of sandboxes that
// ended while the plugin was not connected.
func (a *Plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) ([]*api.ContainerUpdate, error) {
	known := make(map[string]bool, len(pods))
	for _, p := range pods {
		known[p.GetId()] = true
	}
	a.mu.Lock()
	a.known, a.since = known, time.Now()
	a.mu.Unlock()
	a.wake()
	return nil, nil
}

// RemovePodSandbox starts a refresh that removes the directory of the sandbox.
func (a *Plugin) RemovePodSandbox(_ context.Context, p *api.PodSandbox) error {
	a.mu.Lock()
	a.ended[p.GetId()] = true
	delete(a.known, p.GetId())
	a.mu.Unlock()
	a.wake()
	return nil
}

// Orphaned reports whether the runtime does not know a sandbox that was attached before the runtime connected.
// Either the runtime is still creating the sandbox, or it was killed while creating it and will never run its
// DEL. attached is the time of ADD.
func (a *Plugin) Orphaned(sandbox string, attached time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known != nil && attached.Before(a.since) && !a.known[sandbox]
}

// wake makes keep refresh the copies immediately.
func (a *Plugin) wake() {
	select {
	case a.woken <- struct{}{}:
	default:
	}
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

// CreateContainer returns the mounts, variables and device nodes for a container. The runtime calls it for
// every container, including init containers, sidecars and containers that restart.
func (a *Plugin) CreateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	began := time.Now()
	a.mu.Lock()
	if a.known != nil {
		a.known[p.GetId()] = true
	}
	a.mu.Unlock()
	v := a.decideInTime(ctx, p, c)
	a.logDecision(p, c, v, time.Since(began))
	if v.Decision == Rejected {
		return nil, nil, fmt.Errorf("pod %s/%s, container %s: %w", p.GetNamespace(), p.GetName(), c.GetName(), v.problem)
	}
	return v.adjustment, nil, nil
}

// decideInTime returns the verdict of decide, or one with the reason Late shortly before the runtime's
// deadline.
func (a *Plugin) decideInTime(ctx context.Context, p *api.PodSandbox, c *api.Container) verdict {
	switch {
	case netnsOf(p) == "" && len(required(p)) == 0:
		return verdict{Decision: Nothing}
	case a.isOff(p):
		return verdict{Decision: Off}
	}
	decided := make(chan verdict, 1)
	go func() { decided <- a.decide(p, c) }()
	select {
	case v := <-decided:
		return v
	case <-late(ctx):
		return lacking(Late, errors.New("no decision before the container runtime's deadline: check the node for slow disks and kernel calls"), a.refuses(p))
	}
}

// late returns a channel that receives shortly before the deadline of ctx. A runtime disconnects a plugin
// that misses the deadline and creates the container without it. Without a deadline the channel never
// receives.
func late(ctx context.Context) <-chan time.Time {
	const margin = 300 * time.Millisecond
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	left := time.Until(deadline)
	return time.After(left - min(margin, left/2))
}

// decide reads the state of the pod's attachments, stages their files and collects the container's
// adjustment.
func (a *Plugin) decide(p *api.PodSandbox, c *api.Container) verdict {
	settings, err := a.Node()
	if err != nil {
		return lacking(Failed, err, a.refuses(p))
	}
	netns := netnsOf(p)
	points, others := mountPoints(c.GetMounts(), settings.DeviceInfoDir)
	nics, staged, err := a.prepare(settings, p.GetId(), netns, points)
	if err != nil {
		return lacking(Failed, err, a.refuses(p))
	}
	v := a.judge(p, nics, staged)
	if v.Decision == Rejected || !injectable(nics) {
		return v
	}
	g := newAdjustment(p, c, others)
	mounted := staged == nil && g.mount(cdispec.Mount{Host: a.stage.dir(p.GetId()), Container: cdispec.InfoDir, ReadOnly: true})
	of := pod.Identity{UID: p.GetUid(), ContainerID: p.GetId()}
	if err := a.grants(g, settings, of, netns, nics); err != nil {
		if v = lacking(Failed, err, a.MissingInfo == Reject || len(required(p)) > 0); v.Decision == Rejected {
			return v
		}
	}
	g.variables(nics, mounted)
	v.adjustment, v.withheld, v.disagree = g.ContainerAdjustment, g.withheld, disagreements(c.GetEnv(), nics)
	return v
}

// judge decides whether the container may be created. staged is the error of staging the files. If a
// device-info file is missing, MissingInfo decides. If the pod requires the interface of that file, the
// container is always rejected.
func (a *Plugin) judge(p *api.PodSandbox, nics []nic, staged error) verdict {
	refuse, must := a.MissingInfo == Reject, required(p)
	if staged != nil {
		return lacking(Failed, staged, refuse || len(must) > 0)
	}
	informed := map[string]bool{}
	var gone []error
	for _, n := range nics {
		informed[n.ifName] = n.file != nil || n.byClaim || n.gone != nil
		if n.gone != nil {
			gone = append(gone, fmt.Errorf("interface %s: %w", n.ifName, n.gone))
			refuse = refuse || slices.Contains(must, n.ifName)
		}
	}
	for _, ifName := range must {
		if !informed[ifName] {
			return lacking(Required, a.uninformed(ifName, netnsOf(p), nics), true)
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

// prepare reads the attachments of a sandbox. If the plugin injects one of them, prepare also stages their files,
// and staged is the error of the staging. It holds the mutex a.staging, so that older files cannot replace newer ones.
func (a *Plugin) prepare(settings config.Node, id, netns string, points []string) (nics []nic, staged, err error) {
	a.staging.Lock()
	defer a.staging.Unlock()
	if nics, err = a.attachments(settings, id, netns); err != nil || !injectable(nics) {
		return nics, nil, err
	}
	a.stage.recall(id, nics)
	return nics, a.stage.put(id, netns, files(nics), points), nil
}

// lacking returns the verdict for a container whose device information is missing.
func lacking(why Reason, problem error, refuse bool) verdict {
	v := verdict{Decision: Allowed, Reason: why, problem: problem}
	if refuse {
		v.Decision = Rejected
	}
	return v
}

// refuses reports whether to reject the container when the plugin fails before it has read the pod's
// networks. Pods without networks are let through, so that a faulty plugin does not block every pod of the
// node.
func (a *Plugin) refuses(p *api.PodSandbox) bool {
	return len(required(p)) > 0 || a.MissingInfo == Reject && p.GetAnnotations()[networksAnnotation] != ""
}

// uninformed returns the error for a required interface without device information.
func (a *Plugin) uninformed(ifName, netns string, nics []nic) error {
	var has []string
	why := "add the plugin devinfo to its network, or set resourceName in the network"
	for _, n := range nics {
		has = append(has, n.ifName)
		if n.ifName == ifName && n.why != "" {
			why = n.why
		}
	}
	_, err := a.Finder.Interfaces.Interface(netns, ifName)
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

// loggable makes a value from a pod safe for logs and events. It shortens and quotes the value if it is long
// or contains control characters. An annotation may have 256 KiB.
func loggable(s string) string {
	if clean := strings.ToValidUTF8(s, "?"); len(clean) <= 64 && !strings.ContainsFunc(clean, unicode.IsControl) {
		return clean
	}
	return fmt.Sprintf("%.64q...", s)
}

func (a *Plugin) isOff(p *api.PodSandbox) bool {
	in := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool { ok, _ := path.Match(pattern, p.GetNamespace()); return ok })
	}
	if len(a.Only) > 0 && !in(a.Only) || in(a.Except) {
		return true
	}
	value, ok := p.GetAnnotations()[injectAnnotation]
	if !ok {
		return false
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		a.Log.Warn("annotation ignored: its value must be true or false", "pod", p.GetNamespace()+"/"+p.GetName(), injectAnnotation, loggable(value))
	}
	return err == nil && !on
}

func (a *Plugin) logDecision(p *api.PodSandbox, c *api.Container, v verdict, took time.Duration) {
	log := a.Log.With("pod", p.GetNamespace()+"/"+p.GetName(), "container", c.GetName())
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
		a.Metrics.Withheld(w.cause)
	}
	for _, d := range v.disagree {
		log.Warn("container's devices disagree with its pod's networks", "problem", d.what, "networks", d.networks,
			"remedy", "look up devices by DEVINFO_<interface>_PCI_ADDRESS, not by position; use one resource per network, and request one device of it for each attachment")
		a.Metrics.Disagrees(d.kind)
	}
	a.Metrics.Decided(v.Decision, v.Reason, took)
}
