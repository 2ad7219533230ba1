package dra

import (
	"context"
	"sync"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// wakes makes the kubelet look at the pods of a device again. Otherwise it tries a container that could not be created
// again after 10 to 15 s. The kubelet (1.36: cm/dra/healthinfo.go, manager.go) syncs the pods of each device whose health
// differs from that of the last report, and also compares the time for which a report is valid. That time shows nowhere,
// so each wake changes it. A kubelet that stops comparing it only tries later.
type wakes struct {
	asked chan struct{} // has an element while a device is waiting

	mu      sync.Mutex
	waiting map[string]bool // devices to wake with the next report
	odd     map[string]bool // devices whose reports are valid for oddTimeout
	last    time.Time       // time of the last report that woke the kubelet
}

const (
	evenTimeout = 30 * time.Second // the kubelet's default
	oddTimeout  = 31 * time.Second

	// A wake costs the kubelet one sync of each pod that has the device. Many gates of a shared device may open together.
	gatherWakes = 50 * time.Millisecond
	betweenWake = 500 * time.Millisecond
)

func newWakes() *wakes {
	return &wakes{asked: make(chan struct{}, 1), waiting: map[string]bool{}, odd: map[string]bool{}}
}

// wake asks for a report that wakes the pods of a device. It does not wait.
func (w *wakes) wake(device string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[device] = true
	select {
	case w.asked <- struct{}{}:
	default:
	}
}

// gather waits until a report may wake the kubelet again, or ctx ends.
func (w *wakes) gather(ctx context.Context) {
	w.mu.Lock()
	pause := max(gatherWakes, betweenWake-time.Since(w.last))
	w.mu.Unlock()
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// mark changes the times in a report for the waiting devices that it contains. The others wait for a report that does.
func (w *wakes) mark(report []kubeletplugin.DeviceHealth) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := range report {
		d := &report[n]
		if w.waiting[d.DeviceName] {
			delete(w.waiting, d.DeviceName)
			w.odd[d.DeviceName], w.last = !w.odd[d.DeviceName], time.Now()
		}
		if d.HealthCheckTimeout = evenTimeout; w.odd[d.DeviceName] {
			d.HealthCheckTimeout = oddTimeout
		}
	}
}
