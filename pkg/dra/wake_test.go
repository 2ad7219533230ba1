package dra_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/test/difftest"
)

// stream is the kubelet's side of a health stream. Like the kubelet, it compares each report with the last one.
type stream struct {
	last  map[string]time.Duration
	woken func() // called when the pods of a device are woken
}

// read reads a stream until ctx ends.
func (s *stream) read(ctx context.Context, k *dra.Kubelet) {
	var reading sync.WaitGroup
	defer reading.Wait()
	reports := make(chan kubeletplugin.DeviceHealthReport)
	reading.Go(func() { _ = k.WatchHealthStatus(ctx, reports) })
	for {
		select {
		case <-ctx.Done():
			return
		case report := <-reports:
			for _, d := range report.Devices {
				was, known := s.last[d.DeviceName]
				s.last[d.DeviceName] = d.HealthCheckTimeout
				if known && was != d.HealthCheckTimeout {
					s.woken()
				}
			}
		}
	}
}

// inStream runs a test with a kubelet that reads the health of the device "cni". wakes are the times since the last start.
func inStream(t *testing.T, test func(t *testing.T, k *dra.Kubelet, wakes *[]time.Duration, start func() (stop func()))) {
	synctest.Test(t, func(t *testing.T) {
		agent := &dra.Agent{Node: devices.New(devices.Options{}, nil)}
		k := dra.Unstarted(agent, dra.KubeletOptions{Node: "node1"})
		var began time.Time
		var wakes []time.Duration
		s := &stream{map[string]time.Duration{}, func() { wakes = append(wakes, time.Since(began)) }}
		test(t, k, &wakes, func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			began = time.Now()
			go s.read(ctx, k)
			synctest.Wait()
			return func() { cancel(); synctest.Wait() }
		})
	})
}

func TestWakesOfOneDeviceAreGathered(t *testing.T) {
	for name, test := range map[string]struct {
		gaps []time.Duration // before each wake
		want []time.Duration
	}{
		"one":                         {[]time.Duration{0}, []time.Duration{50 * time.Millisecond}},
		"two between two reports":     {[]time.Duration{0, 0}, []time.Duration{50 * time.Millisecond}},
		"two, one after the other":    {[]time.Duration{0, 3 * time.Second}, []time.Duration{50 * time.Millisecond, 3050 * time.Millisecond}},
		"many within a second":        {slices.Repeat([]time.Duration{10 * time.Millisecond}, 100), []time.Duration{60 * time.Millisecond, 560 * time.Millisecond, 1060 * time.Millisecond}},
		"one just before a heartbeat": {[]time.Duration{10*time.Second - time.Millisecond}, []time.Duration{10*time.Second + 49*time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			inStream(t, func(t *testing.T, k *dra.Kubelet, wakes *[]time.Duration, start func() func()) {
				stop := start()
				for _, gap := range test.gaps {
					time.Sleep(gap)
					k.Wake("cni")
				}
				time.Sleep(time.Minute)
				stop()
				difftest.Equal(t, *wakes, test.want)
			})
		})
	}
}

// The kubelet keeps what it knows about devices while the stream is away.
func TestWakeWaitsForTheNextStream(t *testing.T) {
	inStream(t, func(t *testing.T, k *dra.Kubelet, wakes *[]time.Duration, start func() func()) {
		start()()
		k.Wake("cni")
		time.Sleep(time.Minute)
		difftest.Equal(t, len(*wakes), 0)
		stop := start()
		difftest.Equal(t, len(*wakes), 1)
		k.Wake("no device of this node")
		time.Sleep(time.Minute)
		difftest.Equal(t, len(*wakes), 1)
		stop()
	})
}
