//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds of pods that the test compares.
const (
	bridgeAlone = "bridge alone"
	withMacvlan = "Multus and macvlan"
	chained     = "Multus, macvlan and devinfo"
	injecting   = "Multus, macvlan, devinfo and devinfo-agent"
	byClaim     = "macvlan by claim"
)

// A setting is what the node runs while pods of some kinds start. An NRI plugin takes part in the start of every pod,
// so no setting has both daemons.
type setting struct {
	name   string
	multus bool
	daemon string // agentName, system or ""
	kinds  []string
}

var settings = []setting{
	{"nothing", false, "", []string{bridgeAlone}},
	{"multus", true, "", []string{withMacvlan, chained}},
	{"agent", true, agentName, []string{injecting}},
	{"driver", false, system, []string{byClaim}},
}

const (
	rounds  = 4  // number of times that each setting comes up
	inTurn  = 5  // pods of a kind in a round, one after another
	atOnce  = 30 // pods of a kind that are created at once
	crowded = 25 // pods with four networks each: a daemon's memory is read with their 100 attachments
)

// A podStart is the start of one pod.
type podStart struct {
	sandbox time.Duration // from the runtime's RunPodSandbox to the start of the container
	ready   time.Duration // from the creation of the pod to Ready
	retries int           // calls of RunPodSandbox, after the first one
}

// TestPodsStartWithinLimits measures the start of pods with and without our programs, interleaved in one run. It needs
// an otherwise idle machine.
func TestPodsStartWithinLimits(t *testing.T) {
	if os.Getenv("E2E_MEASURE") == "" {
		t.Skip("it measures, and needs an otherwise idle machine: make bench BENCH=pods")
	}
	needsKit(t, "they change what runs on the node")
	findCard(t)
	single, crowd := map[string][]podStart{}, map[string][]podStart{}
	use := map[string]*daemonUse{agentName: {}, system: {}}
	for round := range rounds + 1 {
		for n := range settings {
			set := settings[(round+n)%len(settings)]
			set.during(t, fmt.Sprintf("%s-%d", set.name, round), func(s *space, pod func(kind, name string, networks int) *corev1.Pod) {
				before := usedBy(t, set.daemon)
				if round == rounds {
					for _, kind := range set.kinds {
						crowd[kind] = s.startAll("crowd-"+strconv.Itoa(slices.Index(set.kinds, kind)), atOnce, func(name string) *corev1.Pod { return pod(kind, name, 1) })
						s.deletePods(s.ctx)
					}
					if set.daemon != "" {
						s.startAll("many", crowded, func(name string) *corev1.Pod { return pod(set.kinds[0], name, 4) })
						use[set.daemon].memory = usedBy(t, set.daemon).memory
					}
					return
				}
				for turn := range inTurn {
					for n, kind := range set.kinds {
						single[kind] = append(single[kind], s.startAll(fmt.Sprintf("one-%d-%d", turn, n), 1, func(name string) *corev1.Pod { return pod(kind, name, 1) })...)
						s.deletePods(s.ctx)
					}
				}
				if set.daemon != "" {
					use[set.daemon].processor += (usedBy(t, set.daemon).processor - before.processor) / (rounds * inTurn)
				}
			})
		}
	}
	report(t, single, crowd, use)
}

// during runs f in the setting. The function pod makes pods of the setting's kinds.
func (set setting) during(t *testing.T, name string, f func(s *space, pod func(kind, name string, networks int) *corev1.Pod)) {
	ok := t.Run(name, func(t *testing.T) {
		switch set.daemon {
		case agentName:
			installAgent(t, map[string]any{"logFile": nodeLog})
		case system:
			startProcess(t)
		default:
			onNode(t, binary(t, "devinfoctl"), "install", "--cni-bin-dir", "/opt/cni/bin")
		}
		if set.multus {
			withMultus(t)
		}
		s := begin(t)
		s.usesMultus(set.multus)
		f(s, s.podsOf(set))
	})
	if !ok {
		t.FailNow()
	}
}

// podsOf creates four networks, or templates of claims, for each kind of the setting, and returns the function that
// makes pods with some of them.
func (s *space) podsOf(set setting) func(kind, name string, networks int) *corev1.Pod {
	var templates []string
	for n := range 4 {
		subnet := fmt.Sprintf("10.11.%d.0/24", 120+n)
		ours := map[string]any{"type": "devinfo", "deviceInfoFile": "auto", "deviceInfo": declaredCard()}
		if set.daemon == system {
			ifName := fmt.Sprintf("net%d", n+1)
			templates = append(templates, s.template(requests(request("lan", s.class(ifName, s.macvlan(subnet))))))
		} else if set.multus {
			s.nad(fmt.Sprintf("plain%d", n), "", s.macvlan(subnet))
			s.nad(fmt.Sprintf("ours%d", n), "", s.macvlan(subnet, ours))
		}
	}
	return func(kind, name string, networks int) *corev1.Pod {
		var list []string
		for n := range networks {
			list = append(list, map[string]string{withMacvlan: "plain", chained: "ours", injecting: "ours"}[kind]+strconv.Itoa(n))
		}
		switch kind {
		case bridgeAlone:
			return podWith(name)
		case byClaim:
			return podWith(name, templates[:networks]...)
		}
		return withNetworks(name, nil, list...)
	}
}

// usesMultus waits until the runtime uses Multus, or does not use it any more.
func (s *space) usesMultus(want bool) {
	s.Helper()
	eventually(s.T, limit, func() error {
		s.create(podWith("probe"))
		defer s.delete("probe")
		s.running("probe")
		out := onNode(s.T, "find", "/var/lib/cni/results", "-name", "multus-"+s.mustSandbox()+"-*")
		if (out != "") != want {
			return fmt.Errorf("the runtime uses Multus: %v", !want)
		}
		return nil
	})
}

// startAll creates pods at once, waits until they are ready, and returns their times. Their names begin with prefix.
func (s *space) startAll(prefix string, count int, pod func(name string) *corev1.Pod) (all []podStart) {
	s.Helper()
	watch, err := cluster.client.CoreV1().Pods(s.name).Watch(s.ctx, metav1.ListOptions{})
	must(s.T, err)
	defer watch.Stop()
	created, ready := map[string]time.Time{}, map[string]time.Duration{}
	for n := range count {
		name := fmt.Sprintf("%s-%d", prefix, n)
		created[name] = time.Now()
		s.create(pod(name))
	}
	late := time.After(10 * time.Minute)
	for len(ready) < count {
		select {
		case event, ok := <-watch.ResultChan():
			if !ok {
				s.Fatal("the watch of the pods has ended")
			}
			if p, ok := event.Object.(*corev1.Pod); ok && isReady(p) && ready[p.Name] == 0 && !created[p.Name].IsZero() {
				ready[p.Name] = time.Since(created[p.Name])
			}
		case <-late:
			s.Fatalf("%d of %d pods are ready", len(ready), count)
		}
	}
	began, calls := s.sandboxBegins()
	for line := range strings.Lines(feedOnNode(s.T, startedContainers, "sh")) {
		at, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if created[name].IsZero() {
			continue
		}
		started, err := time.Parse(time.RFC3339Nano, at)
		must(s.T, err)
		all = append(all, podStart{started.Sub(began[name]), ready[name], calls[name] - 1})
	}
	if len(all) != count {
		s.Fatalf("%d of %d containers run", len(all), count)
	}
	return all
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// startedContainers is a script that prints the time and the pod of each container.
const startedContainers = `for id in $(crictl ps --quiet); do
crictl inspect -o go-template --template '{{.status.startedAt}} {{index .status.labels "io.kubernetes.pod.name"}}' $id
done`

// sandboxLine matches the line that a runtime logs at the begin of RunPodSandbox. Its groups are the time, the name and
// the namespace for containerd, then the time, the namespace and the name for CRI-O.
var sandboxLine = regexp.MustCompile(`(?m)^time="([^"]+)" level=info msg="RunPodSandbox for name:\\"([^"\\]+)\\" uid:\\"[^"\\]+\\" namespace:\\"([^"\\]+)\\"(?: attempt:\d+)?"|` +
	`^time="([^"]+)" level=info msg="Running pod sandbox: ([^/]+)/([^/]+)/POD"`)

// sandboxBegins returns the time of the first RunPodSandbox, and the number of calls, by pod of the space.
func (s *space) sandboxBegins() (began map[string]time.Time, calls map[string]int) {
	s.Helper()
	began, calls = map[string]time.Time{}, map[string]int{}
	for _, m := range sandboxLine.FindAllStringSubmatch(shell(s.T, "$E2E_CLUSTER logs "+containerRuntime(s.T)), -1) {
		at, name, namespace := cmp.Or(m[1], m[4]), cmp.Or(m[2], m[6]), cmp.Or(m[3], m[5])
		if namespace != s.name {
			continue
		}
		if calls[name]++; calls[name] == 1 {
			when, err := time.Parse(time.RFC3339Nano, strings.Replace(at, " ", "T", 1))
			must(s.T, err)
			began[name] = when
		}
	}
	return began, calls
}

// daemonUse is what a daemon uses.
type daemonUse struct {
	processor float64 // milliseconds of processor time
	memory    float64 // resident, in MiB
}

// usedBy returns what a daemon on the node has used since its start.
func usedBy(t *testing.T, daemon string) daemonUse {
	t.Helper()
	if daemon == "" {
		return daemonUse{}
	}
	stat := onNode(t, "cat", "/proc/"+onNode(t, "pidof", daemon)+"/stat")
	fields := strings.Fields(stat[strings.LastIndex(stat, ")"):]) // ")" is field 2 of proc_pid_stat(5)
	number := func(field int) float64 {
		n, err := strconv.ParseFloat(fields[field-2], 64)
		must(t, err)
		return n
	}
	const tick = 10 // milliseconds: USER_HZ is 100 on all architectures of Go
	utime, stime, rss := number(14), number(15), number(24)
	return daemonUse{(utime + stime) * tick, rss * float64(os.Getpagesize()) / (1024 * 1024)}
}

// report prints the table, and fails the test if a limit is exceeded. At once, a retry of the kubelet takes ten seconds
// with and without us, so these times have no limit.
func report(t *testing.T, single, crowd map[string][]podStart, use map[string]*daemonUse) {
	sandbox := func(p podStart) time.Duration { return p.sandbox }
	ready := func(p podStart) time.Duration { return p.ready }
	var table strings.Builder
	fmt.Fprintf(&table, "%-46s %24s %10s %10s %26s\n", "kind of pod", "RunPodSandbox to start", "of (b)", "to Ready", fmt.Sprintf("%d at once: Ready, retries", atOnce))
	base := times(single[withMacvlan], sandbox)
	for n, kind := range []string{bridgeAlone, withMacvlan, chained, injecting, byClaim} {
		took, retries := times(single[kind], sandbox), 0
		for _, p := range crowd[kind] {
			retries += p.retries
		}
		low, high := interval(took, base)
		fmt.Fprintf(&table, "(%c) %-42s %6.0f ms, %+4.0f..%+4.0f ms %9.2fx %7.0f ms %16.0f ms, %3d\n", 'a'+n, kind, ms(median(took)), ms(low), ms(high),
			ms(median(took))/ms(median(base)), ms(median(times(single[kind], ready))), ms(median(times(crowd[kind], ready))), retries)
		limits := map[string]time.Duration{chained: 30 * time.Millisecond, injecting: 80 * time.Millisecond}
		if limit, ok := limits[kind]; ok && high >= limit {
			t.Errorf("%s: the difference to %s may be %v, limit %v", kind, withMacvlan, high, limit)
		}
		if ratio := ms(median(took)) / ms(median(base)); kind == byClaim && ratio > 1.10 {
			t.Errorf("%s: %.2f times as long as %s, limit 1.10", kind, ratio, withMacvlan)
		}
	}
	for _, daemon := range []string{agentName, system} {
		fmt.Fprintf(&table, "%s: %.0f ms of processor time for a pod, %.0f MiB with 100 attachments\n", daemon, use[daemon].processor, use[daemon].memory)
	}
	t.Logf("medians of %d pods of each kind, one after another; ranges are the 95 %% confidence intervals of the difference to (b)\n%s", rounds*inTurn, table.String())
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func times(list []podStart, of func(podStart) time.Duration) (all []time.Duration) {
	for _, p := range list {
		all = append(all, of(p))
	}
	return all
}

// interval returns the 95 % confidence interval of the difference between the medians of two samples, by bootstrapping.
func interval(a, b []time.Duration) (low, high time.Duration) {
	random := rand.New(rand.NewPCG(1, 2)) // fixed, so that the same samples give the same interval
	resampled := func(list []time.Duration) time.Duration {
		again := make([]time.Duration, len(list))
		for n := range again {
			again[n] = list[random.IntN(len(list))]
		}
		return median(again)
	}
	var differences []time.Duration
	for range 10_000 {
		differences = append(differences, resampled(a)-resampled(b))
	}
	slices.Sort(differences)
	return differences[len(differences)/40], differences[len(differences)-1-len(differences)/40]
}
