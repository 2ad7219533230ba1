package apiserver_test

import (
	"errors"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra"
)

// Before 1.36 devices cannot be shared, and there are no rights of the associated node. The
// server is a new one that emulates an old one: its feature gates and APIs.
func TestWhatIsOtherBefore136(t *testing.T) {
	for _, version := range []string{"1.34", "1.35"} {
		t.Run(version, func(t *testing.T) {
			p := start(t, "--emulated-version="+version)
			must(t, p.install("rbac-associated-node.yaml"))
			p.numbered(t)
			p.everyStatus(t)
		})
	}
}

// numbered checks that such a server drops what makes a device shared, and that numbered ones
// are published.
func (p *controlPlane) numbered(t *testing.T) {
	t.Helper()
	agent := p.agent(t)
	var dropped *resourceslice.DroppedFieldsError
	if err := offer(t, agent, dra.Shared(0)); !errors.As(err, &dropped) {
		t.Errorf("the shared device: %v", err)
	}
	published(t, agent)
	devices := dra.Numbered(0)
	must(t, offer(t, agent, devices))
	difftest.Equal(t, published(t, agent), devices)
}

// everyStatus checks that an agent writes the status of its claims, and what docs/dra/README.md
// warns of: that it may write that of another node's claims too.
func (p *controlPlane) everyStatus(t *testing.T) {
	t.Helper()
	c := p.claim(t, "status", share{"net", driver, "cni-0", ""})
	d := deviceOf("")
	d.Name = "cni-0"
	for node, said := range map[string]string{node: "by its node's agent", other: "by another node's"} {
		apply(t, p.account(t, namespace, node), report(c, d.Failed(said)))
		difftest.Equal(t, p.devices(t, c), []resourceapi.AllocatedDeviceStatus{d.Failed(said)})
	}
}

func TestDevicesAreSharedBefore136WhereThatIsEnabled(t *testing.T) {
	for _, version := range []string{"1.34", "1.35"} {
		t.Run(version, func(t *testing.T) {
			p := start(t, "--emulated-version="+version, "--feature-gates=DRAConsumableCapacity=true")
			must(t, p.install("rbac-associated-node.yaml"))
			agent := p.agent(t)
			must(t, offer(t, agent, dra.Shared(500)))
			difftest.Equal(t, published(t, agent), dra.Shared(500))
			c := p.claim(t, "shared", ours("net", one))
			apply(t, agent, report(c, attached(t, one)))
			difftest.Equal(t, p.devices(t, c), []resourceapi.AllocatedDeviceStatus{attached(t, one)})
		})
	}
}
