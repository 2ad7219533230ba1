//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func fails(t *testing.T, _ *agent) {
	s := begin(t)
	const rule = `Link not found`
	good, bad := s.macvlan("10.11.20.0/24"), s.macvlan("10.11.21.0/24")
	bad["plugins"].([]map[string]any)[0]["master"] = "nosuch0"
	s.pod("a", s.template(requests(request("good", s.class("net1", good)), request("bad", s.class("net2", bad)))))
	s.event("a", "request bad", rule)
	eventually(t, 2*time.Minute, func() error {
		claim := s.claims("a")["net0"]
		d, err := deviceOf(claim, "bad")
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(d.Conditions, "Ready")
		if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != "NetworkInterfaceNotReady" || !strings.Contains(ready.Message, rule) {
			return fmt.Errorf("condition Ready of the failed request: %+v", ready)
		}
		return nil
	})
	s.notRunning("a")
}

func (s *space) notRunning(pod string) {
	s.Helper()
	p := s.get(pod)
	for _, c := range p.Status.ContainerStatuses {
		if p.Status.Phase != corev1.PodPending || c.State.Running != nil {
			s.Errorf("pod %s is %s, its container %+v", pod, p.Status.Phase, c.State)
		}
	}
}

// inClaim is the spec of a claim that brings its network.
func inClaim(ifName string, config map[string]any) resourceapi.ResourceClaimSpec {
	spec := requests(request("lan", "cni.networking.x-k8s.io"))
	spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{Requests: []string{"lan"}, DeviceConfiguration: opaque(ifName, config)}}
	return spec
}

func forbidden(t *testing.T, a *agent) {
	s := begin(t)
	network := map[string]any{"cniVersion": "1.0.0", "name": s.name, "type": "bridge", "bridge": "e2e-keep", "ipam": map[string]any{"type": "host-local"}}
	s.pod("a", s.template(inClaim("net1", network)))
	if a.allows {
		s.event("a", `type: "bridge" runs as root of the node, and claims may not use it`, "add it to --allow-claim-config (now macvlan,host-local)")
	} else {
		s.event("a", "a CNI configuration runs as root of the node, and here claims may give none", "--allow-claim-config")
	}
	s.notRunning("a")
}
