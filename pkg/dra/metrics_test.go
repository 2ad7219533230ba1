package dra_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/custody"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/inventory"
)

// gathered gives each sample by its name and labels; of a histogram, the count.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	samples := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += fmt.Sprintf(" %s=%s", label.GetName(), label.GetValue())
			}
			samples[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return samples
}

func TestMetricsCountWhatHappens(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := dra.NewMetrics(registry)
	census := dra.Census{Phases: map[string]int{"Added": 2, "Prepared": 0, "Abandoned": 4}, Status: 3}
	registry.MustRegister(dra.CensusMetrics(func() dra.Census { return census }))
	m.Connected(true)
	m.Waited(time.Second)
	m.Cut(72)
	m.Known(false)
	m.Idle([]inventory.Idle{{Rule: "devices[0] (ifNames: eth9)"}})
	m.Idle([]inventory.Idle{{Rule: "devices[1] (ifNames: eth7)", Nearest: "eth0"}})
	m.Exec("ADD", time.Second, "")
	m.Exec("ADD", time.Second, cniexec.ReasonPlugin)
	m.Exec("DEL", time.Second, "")
	m.Event("RunPodSandbox", time.Second, nil)
	m.Event("RunPodSandbox", time.Second, errors.New("no"))
	want := map[string]float64{
		"cni_dra_attachments phase=Added":                                 2,
		"cni_dra_attachments phase=Prepared":                              0,
		"cni_dra_attachments phase=Abandoned":                             4,
		"cni_dra_abandoned":                                               4,
		"cni_dra_add_wait_seconds":                                        1,
		"cni_dra_attachments_not_offered":                                 72,
		"cni_dra_others_known":                                            0,
		"cni_dra_idle_rules nearest=eth0 rule=devices[1] (ifNames: eth7)": 1,
		"cni_dra_status_queue":                                            3,
		"cni_dra_nri_connected":                                           1,
		"cni_dra_exec_duration_seconds verb=ADD":                          2,
		"cni_dra_exec_duration_seconds verb=DEL":                          1,
		"cni_dra_exec_failures_total reason=plugin verb=ADD":              1,
		"cni_dra_event_duration_seconds event=RunPodSandbox":              2,
		"cni_dra_event_failures_total event=RunPodSandbox":                1,
	}
	if diff := cmp.Diff(want, gathered(t, registry)); diff != "" {
		t.Error(diff)
	}
	m.Connected(false)
	census = dra.Census{}
	now := gathered(t, registry)
	if now["cni_dra_nri_connected"] != 0 || now["cni_dra_status_queue"] != 0 {
		t.Errorf("got %v", now)
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

// literals are what the first group of a regular expression finds in files, each once, sorted.
func literals(t *testing.T, expression string, paths ...string) (all []string) {
	t.Helper()
	for _, path := range paths {
		for _, found := range regexp.MustCompile(expression).FindAllStringSubmatch(text(t, path), -1) {
			all = append(all, found[1])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// texts gives phases and the like as they are written, sorted.
func texts[T ~string](list []T) (all []string) {
	for _, one := range list {
		all = append(all, string(one))
	}
	slices.Sort(all)
	return all
}

func TestTheDocumentationHasTheMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := dra.NewMetrics(registry)
	registry.MustRegister(dra.CensusMetrics(func() dra.Census { return dra.Census{Phases: map[string]int{"Added": 1}} }))
	m.Exec("ADD", time.Second, cniexec.ReasonPlugin)
	m.Event("Prepare", time.Second, os.ErrInvalid)
	m.Mismatch(custody.Name, true)
	m.Idle([]inventory.Idle{{Rule: "devices[0]"}})
	families, err := registry.Gather()
	must(t, err)
	var exposed []string
	for _, family := range families {
		exposed = append(exposed, family.GetName())
	}
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(cni_dra_[a-z_]+)` \\| (.*) \\|$").FindAllStringSubmatch(text(t, "../../docs/dra/README.md"), -1) {
		rows[row[1]] = row[2]
	}
	for _, name := range exposed {
		if _, ok := rows[name]; !ok {
			t.Errorf("docs/dra/README.md has no %s", name)
		}
	}
	if len(rows) != len(exposed) {
		t.Errorf("docs/dra/README.md has other metrics than %q", exposed)
	}
	for _, test := range []struct {
		metric, label string
		values        []string
	}{
		{"cni_dra_exec_failures_total", "reason", literals(t, `(?m)^(?:\t|const )Reason\w+ .*= "(\w+)"`, "plugins.go", "../cniexec/error.go")},
		{"cni_dra_event_duration_seconds", "event", literals(t, `a\.(?:event\(|leave\(ctx, )"(\w+)"`, "pods.go", "events.go")},
		{"cni_dra_attachments", "phase", texts(state.Phases())},
		{"cni_dra_device_mismatches_total", "what", texts(custody.Whats())},
	} {
		var documented []string
		if found := regexp.MustCompile("`" + test.label + "`(?:: | \\()([A-Za-z, -]+)").FindStringSubmatch(rows[test.metric]); found != nil {
			documented = strings.Split(found[1], ", ")
		}
		slices.Sort(documented)
		if diff := cmp.Diff(test.values, documented); diff != "" {
			t.Errorf("%s, %s (-code +docs/dra/README.md):\n%s", test.metric, test.label, diff)
		}
	}
}

func TestTheDocumentationHasTheReasonsOfEvents(t *testing.T) {
	_, line, _ := strings.Cut(text(t, "../../docs/dra/README.md"), "Events on pods have the reasons ")
	line, _, _ = strings.Cut(line, ".")
	var documented []string
	for _, found := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(line, -1) {
		documented = append(documented, found[1])
	}
	slices.Sort(documented)
	if diff := cmp.Diff(literals(t, `(?m)^\tNotice\w+ .*= "(\w+)"`, "notices.go"), documented); diff != "" {
		t.Errorf("(-code +docs/dra/README.md)\n%s", diff)
	}
}

func TestANoticeIsAnEventOfThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		post := dra.PostNotices(client, driverName, "node1", slog.New(slog.DiscardHandler))
		post(dra.Notice{Pod: state.Pod{Namespace: "ns", Name: "pod", UID: "uid"}, Reason: dra.NoticeFailed, Text: strings.Repeat("é", 1000)})
		quiet()
		list, err := client.EventsV1().Events("ns").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		if len(list.Items) != 1 {
			t.Fatalf("%d events", len(list.Items))
		}
		e := list.Items[0]
		if e.Regarding.Name != "pod" || e.Regarding.UID != "uid" || e.Reason != dra.NoticeFailed || len(e.Note) > 1024 || !complete(e) {
			t.Errorf("got %+v", e)
		}
	})
}

// complete says whether an Event has what the API server asks for.
func complete(e eventsv1.Event) bool {
	return !e.EventTime.IsZero() && e.ReportingController != "" && e.ReportingInstance != "" && e.Action != "" && e.Type == "Warning"
}

func TestAPodIsToldTheSameOnceInFiveMinutes(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		told := 0
		r.options.Notify = func(dra.Notice) { told++ }
		r.start()
		p.missing["fake"] = true
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", ""}))
		for n := range 10 { // one a minute
			sb := r.sandbox("s"+string(rune('0'+n)), "pod")
			_ = r.runPod(sb)
			r.endPod(sb)
			time.Sleep(time.Minute)
		}
		if told != 2 {
			t.Errorf("told %d times in 10 minutes", told)
		}
	})
}
