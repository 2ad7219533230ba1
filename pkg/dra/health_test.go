package dra_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra"
)

// The library logs an error for each stream that is silent for 30 s, its default lease,
// and a kubelet whose stream ends begins another after 5 s.
func TestAHealthStreamIsNeverSilentForLongNorEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		reports, done := make(chan kubeletplugin.DeviceHealthReport), make(chan error, 1)
		go func() { done <- new(dra.Kubelet).WatchHealthStatus(ctx, reports) }()
		began := time.Now()
		for range 20 {
			last := time.Now()
			select {
			case report := <-reports:
				if len(report.Devices) > 0 {
					t.Errorf("got %v, of which nothing is known", report)
				}
				if silent := time.Since(last); silent >= 30*time.Second-10*time.Second {
					t.Errorf("silent for %v", silent)
				}
			case err := <-done:
				t.Fatalf("it ended: %v", err)
			case <-time.After(time.Hour):
				t.Fatal("no report")
			}
		}
		if took := time.Since(began); took < time.Minute {
			t.Errorf("20 reports within %v", took)
		}
		cancel() // while nobody takes the next one
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
