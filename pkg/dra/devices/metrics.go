package devices

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"devinfo-cni.io/pkg/dra/state"
)

// metrics are described in docs/dra/README.md.
type metrics struct {
	sharing    prometheus.Gauge
	known      prometheus.Gauge
	idle       *prometheus.GaugeVec
	mismatches *prometheus.CounterVec
}

func newMetrics(to prometheus.Registerer) *metrics {
	in := promauto.With(to)
	gauge := func(name, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name, Help: help} }
	m := &metrics{
		sharing:    in.NewGauge(gauge("cni_dra_sharing_supported", "0 if the API server cannot share devices among claims, which needs Kubernetes 1.36; else 1.")),
		known:      in.NewGauge(gauge("cni_dra_others_known", "1 while the driver knows which devices are allocated outside DRA (device plugins, Multus, sriov-cni), else 0.")),
		idle:       in.NewGaugeVec(gauge("cni_dra_idle_rules", "1 for each rule of the configuration that names no device of this node, with the device that comes nearest."), []string{"rule", "nearest"}),
		mismatches: in.NewCounterVec(prometheus.CounterOpts{Name: "cni_dra_device_mismatches_total", Help: "Device settings that still differed from their pre-ADD value after DEL, by setting and whether the driver restored them."}, []string{"what", "restored"}),
	}
	m.known.Set(1)
	m.sharing.Set(1)
	return m
}

// mismatch counts one of [custody.Whats].
func (m *metrics) mismatch(what string, restored bool) {
	m.mismatches.WithLabelValues(what, strconv.FormatBool(restored)).Inc()
}

// noteIdle replaces the rules without a device.
func (m *metrics) noteIdle(list []state.Idle) {
	m.idle.Reset()
	for _, i := range list {
		m.idle.WithLabelValues(i.Rule, i.Nearest).Set(1)
	}
}
