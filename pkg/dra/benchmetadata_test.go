package dra_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// BenchmarkMetadata is how long a pod waits for what its containers read of a network: KEP-5304
// wants 99 of 100 within 10 ms.
func BenchmarkMetadata(b *testing.B) {
	r := newRig(b)
	claim := r.claimOf("a", "u1", "pod", want{"x", "net1", ""})
	k, _, dir := kubeletOf(b, server(nil, claim), 0)
	answer, err := drapb.NewDRAPluginClient(dial(b, filepath.Join(dir, "dra.sock"))).NodePrepareResources(b.Context(),
		&drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: "ns", Name: "a", Uid: "u1"}}})
	if err != nil || answer.Claims["u1"].GetError() != "" {
		b.Fatal(answer, err)
	}
	result := claim.Status.Allocation.Devices.Results[0]
	device := kubeletplugin.Device{Requests: []string{"x"}, PoolName: result.Pool, DeviceName: result.Device, ShareID: result.ShareID}
	device.Metadata = &kubeletplugin.DeviceMetadata{NetworkData: &resourceapi.NetworkDeviceData{
		InterfaceName: "net1", IPs: []string{"10.0.0.2/24"}, HardwareAddress: "02:00:00:00:00:01"}}
	var took, bare []time.Duration
	for b.Loop() {
		began := time.Now()
		must(b, k.UpdateRequestMetadata(b.Context(), "ns", "a", "u1", "x", []kubeletplugin.Device{device}))
		took = append(took, time.Since(began))
		began = time.Now()
		must(b, os.WriteFile(filepath.Join(dir, "bare"), make([]byte, 1024), 0o644))
		bare = append(bare, time.Since(began))
	}
	p99, other := quantile(took, 99), quantile(bare, 99)
	b.ReportMetric(float64(quantile(took, 50))/1e6, "p50-ms")
	b.ReportMetric(float64(p99)/1e6, "p99-ms")
	b.ReportMetric(float64(other)/1e6, "bare-p99-ms")
	if len(took) >= 100 && p99 > max(10*time.Millisecond, 3*other) { // which shows how busy the machine is
		b.Errorf("it takes %v at p99, more than 10 ms; a file takes %v", p99, other)
	}
}
