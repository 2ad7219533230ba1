package dra_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/inventory"
)

// gathered gives each sample by its name and labels; of a histogram, the count.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
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
