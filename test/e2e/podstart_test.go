//go:build e2e

package e2e

import (
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
	crowded = 25 // pods with four networks each: a daemon's memory is read with their 100 attachments
)

// TestPodsStartWithinLimits measures the start of pods with and without our programs, interleaved in one run. It needs
// an otherwise idle machine.
func TestPodsStartWithinLimits(t *testing.T) {
	if os.Getenv("E2E_MEASURE") == "" {
		t.Skip("it measures, and needs an otherwise idle machine: make bench BENCH=pods")
	}
	needsKit(t, "they change what runs on the node")
	findCard(t)
	took := map[string][]time.Duration{}
	use := map[string]*daemonUse{agentName: {}, system: {}}
	for round := range rounds {
		for n := range settings {
			set := settings[(round+n)%len(settings)]
			set.during(t, fmt.Sprintf("%s-%d", set.name, round), func(s *space, pod func(kind, name string, networks int) *corev1.Pod) {
				before := usedBy(t, set.daemon)
				for turn := range inTurn {
					for n, kind := range set.kinds {
						took[kind] = append(took[kind], s.start(pod(kind, fmt.Sprintf("one-%d-%d", turn, n), 1)))
						s.deletePods(s.ctx)
					}
				}
				if set.daemon == "" {
					return
				}
				use[set.daemon].processor += (usedBy(t, set.daemon).processor - before.processor) / (rounds * inTurn)
				if round == rounds-1 {
					for n := range crowded {
						s.create(pod(set.kinds[0], fmt.Sprint("many-", n), 4))
					}
					s.allRun(crowded)
					use[set.daemon].memory = usedBy(t, set.daemon).memory
				}
			})
		}
	}
	report(t, took, use)
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
		out := onNode(s.T, "find", "/var/lib/cni/results", "-name", "multus-"+s.sandboxOf("probe")+"-*")
		if (out != "") != want {
			return fmt.Errorf("the runtime uses Multus: %v", !want)
		}
		return nil
	})
}

// start creates a pod, and returns the time from the runtime's RunPodSandbox to the start of the container.
func (s *space) start(pod *corev1.Pod) time.Duration {
	s.Helper()
	s.create(pod)
	s.running(pod.Name)
	started := s.time(feedOnNode(s.T, "crictl inspect -o go-template --template '{{.status.startedAt}}' $(crictl ps --quiet --pod "+s.sandboxOf(pod.Name)+")", "sh"))
	// The lines of containerd and CRI-O at the begin of RunPodSandbox.
	begin := regexp.MustCompile(fmt.Sprintf(`(?m)^time="([^"]+)" level=info msg="(?:RunPodSandbox for name:\\"%[1]s\\" uid:\\"[^"\\]+\\" namespace:\\"%[2]s\\"(?: attempt:\d+)?|Running pod sandbox: %[2]s/%[1]s/POD)"`, pod.Name, s.name))
	found := begin.FindStringSubmatch(shell(s.T, "$E2E_CLUSTER logs "+containerRuntime(s.T)))
	if found == nil {
		s.Fatalf("the runtime's log does not say when the sandbox of %s began", pod.Name)
	}
	return started.Sub(s.time(strings.Replace(found[1], " ", "T", 1)))
}

func (s *space) time(text string) time.Time {
	s.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	must(s.T, err)
	return at
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

// report prints the table, and fails the test if a limit is exceeded.
func report(t *testing.T, took map[string][]time.Duration, use map[string]*daemonUse) {
	var table strings.Builder
	fmt.Fprintf(&table, "%-46s %24s %10s\n", "kind of pod", "RunPodSandbox to start", "of (b)")
	base := took[withMacvlan]
	for n, kind := range []string{bridgeAlone, withMacvlan, chained, injecting, byClaim} {
		low, high := interval(took[kind], base)
		ratio := ms(median(took[kind])) / ms(median(base))
		fmt.Fprintf(&table, "(%c) %-42s %6.0f ms, %+4.0f..%+4.0f ms %9.2fx\n", 'a'+n, kind, ms(median(took[kind])), ms(low), ms(high), ratio)
		limits := map[string]time.Duration{chained: 30 * time.Millisecond, injecting: 80 * time.Millisecond}
		if limit, ok := limits[kind]; ok && high >= limit {
			t.Errorf("%s: the difference to %s may be %v, limit %v", kind, withMacvlan, high, limit)
		}
		if kind == byClaim && ratio > 1.10 {
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
