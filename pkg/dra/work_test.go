package dra_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/core/check/checktest"
	"devinfo-cni.io/pkg/core/nri/nritest"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/test/difftest"
)

// BenchmarkAThousandAttachments measures requests that wait for nothing, on a node with 1,000 attached VFs, while another pod
// comes and goes and the driver looks at all attachments again and again.
func BenchmarkAThousandAttachments(b *testing.B) {
	const pods, rounds = 1000, 10
	took := map[string][]time.Duration{}
	for b.Loop() {
		host := capturetest.ManyVFs(pods + 1)
		captured, err := inventory.Captured(host)
		difftest.Must(b, err)
		n := newNode(b, func(r *dratest.Rig) {
			r.Options.Devices.Inventory, r.Options.Devices.Finder = dratest.InventoryOf(captured, allVFs), checktest.Finder(b, host)
		})
		dratest.Survey(n.Agent)
		prepare := func(i int) (sb *api.PodSandbox, uid string) {
			device := "pci-" + strings.NewReplacer(":", "-", ".", "-").Replace(capturetest.VF(i))
			n.Prepare(dratest.OnDevice(benchClaim(n.Rig, i), 0, device, ""))
			return n.Sandbox(fmt.Sprint("s", i), fmt.Sprint("pod", i)), fmt.Sprint("u", i)
		}
		var attached []*api.PodSandbox
		for i := range pods {
			sb, _ := prepare(i)
			attached = append(attached, sb)
			difftest.Must(b, n.runtime.runPod(sb))
		}
		difftest.Eventually(b, "all are attached", func() bool { return n.Agent.Census().Phases["Added"] == pods })
		ctx, cancel := context.WithCancel(b.Context())
		var beside sync.WaitGroup
		beside.Go(func() {
			for ctx.Err() == nil {
				sb, uid := prepare(pods)
				dratest.NoError(b, n.Agent.RunPodSandbox(b.Context(), sb))
				dratest.NoError(b, n.Agent.StopPodSandbox(b.Context(), sb))
				dratest.NoError(b, n.Agent.Unprepare(b.Context(), uid))
			}
		})
		other := n.Sandbox("other", "other")
		ask := func(request string, do func() error) {
			took[request] = append(took[request], timed(func() { difftest.Must(b, do()) }))
		}
		for range rounds {
			ask("Synchronize", func() error { _, err := n.Agent.Synchronize(b.Context(), attached, nil); return err })
			for i := 0; i < pods; i += rounds {
				ask("CreateContainer", func() error {
					_, err := n.runtime.CreateContainer(b.Context(), &adaptation.CreateContainerRequest{Pod: attached[i], Container: &adaptation.Container{Id: "c"}})
					return err
				})
				ask("RunPodSandbox", func() error { return n.runtime.runPod(other) })
				ask("StopPodSandbox", func() error {
					return n.runtime.StopPodSandbox(b.Context(), &adaptation.StopPodSandboxRequest{Pod: other})
				})
			}
		}
		cancel()
		beside.Wait()
	}
	for request, all := range took {
		nritest.ReportWork(b, request, all)
	}
}
