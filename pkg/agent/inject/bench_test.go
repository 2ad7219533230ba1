package inject_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/nri/nritest"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
)

// BenchmarkAThousandAttachments measures decisions about containers on a node with 1,000 attachments, each of a VF, while
// others come and go, so that the agent refreshes its copies.
func BenchmarkAThousandAttachments(b *testing.B) {
	const pods = 1000
	r := newRig(b)
	r.options.Interval = 0 // the default
	named := func(i int) *api.PodSandbox {
		p := pod("k8s.v1.cni.cncf.io/networks=sriov-net")
		p.Id, p.Uid = fmt.Sprintf("%s%d", sandbox[:len(sandbox)-5], 10000+i), fmt.Sprint("uid-", i)
		return p
	}
	for i := range pods {
		info := strings.Replace(vfInfo, "0000:3b:00.3", capturetest.VF(i), 1)
		r.attach("sriov-net", named(i).Id, "net1", info, func(e *journal.Entry) { e.Pod = named(i).Uid })
	}
	nri := r.running()
	var with, without []time.Duration
	ask := func(p *api.PodSandbox) time.Duration {
		began := time.Now()
		nri.make(p, container())
		return time.Since(began)
	}
	for b.Loop() {
		for i := range pods {
			if i%50 == 0 {
				r.attach("bridge", "other", "net1", "")
				r.detach("bridge", "other", "net1")
			}
			with, without = append(with, ask(named(i))), append(without, ask(&api.PodSandbox{Id: "on-the-host"}))
		}
	}
	nritest.ReportWork(b, "CreateContainer", with)
	nritest.ReportWork(b, "CreateContainer-without-networks", without)
}
