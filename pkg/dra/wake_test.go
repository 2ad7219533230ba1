package dra_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// stream is the kubelet's side of a health stream. Like the kubelet, it compares each report with the last one.
type stream struct {
	last  map[string]time.Duration
	wakes []time.Duration // times at which a device's pods were woken, since the stream began
	begun time.Time
}

func (s *stream) read(ctx context.Context, k *dra.Kubelet) {
	reports := make(chan kubeletplugin.DeviceHealthReport)
	go func() { _ = k.WatchHealthStatus(ctx, reports) }()
	s.begun = time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case report := <-reports:
			for _, d := range report.Devices {
				was, known := s.last[d.DeviceName]
				s.last[d.DeviceName] = d.HealthCheckTimeout
				if known && was != d.HealthCheckTimeout {
					s.wakes = append(s.wakes, time.Since(s.begun))
				}
			}
		}
	}
}

// inStream runs a test with a kubelet that reads the health of the device "cni".
func inStream(t *testing.T, test func(t *testing.T, k *dra.Kubelet, s *stream, start func() (stop func()))) {
	synctest.Test(t, func(t *testing.T) {
		agent := &dra.Agent{Node: devices.New(devices.Options{}, nil)}
		k, s := dra.Unstarted(agent, dra.KubeletOptions{Node: "node1"}), &stream{last: map[string]time.Duration{}}
		start := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			go s.read(ctx, k)
			synctest.Wait()
			return func() { cancel(); synctest.Wait() }
		}
		test(t, k, s, start)
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
		"many within a second":        {everyTenMilliseconds(100), []time.Duration{60 * time.Millisecond, 560 * time.Millisecond, 1060 * time.Millisecond}},
		"one just before a heartbeat": {[]time.Duration{10*time.Second - time.Millisecond}, []time.Duration{10*time.Second + 49*time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			inStream(t, func(t *testing.T, k *dra.Kubelet, s *stream, start func() func()) {
				stop := start()
				for _, gap := range test.gaps {
					time.Sleep(gap)
					k.Wake("cni")
				}
				time.Sleep(time.Minute)
				stop()
				difftest.Equal(t, s.wakes, test.want)
			})
		})
	}
}

func everyTenMilliseconds(n int) (gaps []time.Duration) {
	for range n {
		gaps = append(gaps, 10*time.Millisecond)
	}
	return gaps
}

// The kubelet keeps what it knows about devices while the stream is away.
func TestWakeWaitsForTheNextStream(t *testing.T) {
	inStream(t, func(t *testing.T, k *dra.Kubelet, s *stream, start func() func()) {
		start()()
		k.Wake("cni")
		time.Sleep(time.Minute)
		difftest.Equal(t, len(s.wakes), 0)
		stop := start()
		difftest.Equal(t, len(s.wakes), 1)
		k.Wake("no device of this node")
		time.Sleep(time.Minute)
		difftest.Equal(t, len(s.wakes), 1)
		stop()
	})
}

// Only containers of a network that the sandbox does not wait for can have been refused.
func TestKubeletIsWokenWhenLateNetworkIsAttached(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		var opened []string
		agent := r.Start()
		agent.SetOpened(func(device string) { opened = append(opened, device) })
		r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", ""), dratest.Net("y", "net2", "late 5s")))
		sb := r.RunSandbox("s1", "pod")
		time.Sleep(4 * time.Second)
		difftest.Equal(t, len(opened), 0)
		time.Sleep(2 * time.Second)
		difftest.Equal(t, opened, []string{"cni"})
		difftest.Must(t, r.CreateContainer(sb, "u1_y"))
		time.Sleep(10 * time.Minute) // the sweeps
		difftest.Equal(t, opened, []string{"cni"})
		r.EndAndUnprepare(sb, "u1")
	})
}
