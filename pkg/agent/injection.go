package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"devinfo-cni.io/pkg/inject"
)

// inject runs the injection until ctx ends, or what it needs is not there.
func (a *Agent) inject(ctx context.Context) error {
	_, checker, err := a.checker()
	if err != nil {
		return err
	}
	o := *a.Injection
	o.Node, o.BootID, o.Finder, o.Log = a.Node, a.BootID, checker.Finder, a.Log
	o.Metrics = a.metrics.injection.metrics()
	o.Metrics.Connected = func(on bool) {
		var err error
		if !on {
			err = fmt.Errorf("not connected to %s: does the container runtime run, with NRI enabled?", a.Injection.Socket)
		}
		if ctx.Err() == nil {
			a.report(NRI, err)
		}
	}
	i := inject.New(o)
	a.sandboxes.Store(i)
	return i.Run(ctx)
}

// injectionCounters are what is counted of containers.
type injectionCounters struct {
	answers, withheld, disagreements *prometheus.CounterVec

	durations prometheus.Histogram
	staged    prometheus.Gauge
}

func newInjectionCounters() injectionCounters {
	c := injectionCounters{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "devinfo_injections_total", Help: "Containers that the runtime was about to make, by what became of them and why.",
		}, []string{"answer", "reason"}),
		withheld: counterVec("devinfo_injection_withheld_total", "What containers were not given of their devices, by what forbids it.",
			"by", inject.ByPolicy, inject.ByUserNamespace, inject.ByMount, inject.ByPropagation),
		disagreements: counterVec("devinfo_injection_disagreements_total", "Containers' variables of device plugins that contradict the pod's networks, by how.",
			"by", inject.OtherDevice, inject.OtherOrder),
		durations: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "devinfo_injection_duration_seconds", Help: "How long the runtime waited for the answer about a container.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2},
		}),
		staged: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "devinfo_injection_sandboxes", Help: "Sandboxes that have a directory of device information.",
		}),
	}
	for _, answer := range []inject.Answer{inject.Nothing, inject.Off, inject.Injected} {
		c.answers.WithLabelValues(string(answer), "")
	}
	for _, answer := range []inject.Answer{inject.Passed, inject.Refused} {
		for _, reason := range []inject.Reason{inject.FileGone, inject.Required, inject.Failed, inject.Late} {
			c.answers.WithLabelValues(string(answer), string(reason))
		}
	}
	return c
}

func (c *injectionCounters) metrics() inject.Metrics {
	return inject.Metrics{
		Answered: func(answer inject.Answer, reason inject.Reason, took time.Duration) {
			c.answers.WithLabelValues(string(answer), string(reason)).Inc()
			c.durations.Observe(took.Seconds())
		},
		Withheld:  func(by inject.Withheld) { c.withheld.WithLabelValues(string(by)).Inc() },
		Disagrees: func(by inject.Disagreement) { c.disagreements.WithLabelValues(string(by)).Inc() },
		Staged:    func(sandboxes int) { c.staged.Set(float64(sandboxes)) },
	}
}
