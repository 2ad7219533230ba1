package dra_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"devinfo-cni.io/pkg/dra"
)

// plugin returns the agent's Kubelet. The model simulates kubeletplugin.
func (m *model) plugin(a *dra.Agent, fatal func(error)) *dra.Kubelet {
	return dra.Unstarted(a, dra.KubeletOptions{Node: "node1", Metadata: true, PluginDir: m.dir, Client: m.client, Fatal: fatal})
}

// prepare prepares a claim like the kubelet, which does not prepare a prepared claim again. kubeletplugin
// writes the metadata of each request after Prepare, and only logs a failure.
func (m *model) prepare(ctx context.Context, a *dra.Agent, claim *resourceapi.ResourceClaim) error {
	library := func(ctx context.Context, _ any) (any, error) {
		prepared := new(drapb.NodePrepareResourceResponse)
		devices, err := a.Prepare(ctx, claim)
		if err != nil {
			prepared.Error = err.Error()
		}
		fails := m.oneIn(6)
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, d := range devices {
			ids := d.CDIDeviceIDs
			if !fails {
				m.described[string(claim.UID)] = true
				ids = append(ids, driverName+"/metadata="+string(claim.UID))
			}
			prepared.Devices = append(prepared.Devices, &drapb.Device{RequestNames: d.Requests, CdiDeviceIds: ids})
		}
		return &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{string(claim.UID): prepared}}, nil
	}
	answer, err := m.plugin(a, nil).Intercept(ctx, new(drapb.NodePrepareResourcesRequest), library)
	if err != nil {
		return err
	}
	if text := answer.(*drapb.NodePrepareResourcesResponse).Claims[string(claim.UID)].Error; text != "" {
		return errors.New(text)
	}
	return nil
}

// UpdateRequestMetadata simulates kubeletplugin, which can update a file only after Prepare has written it.
func (m *model) UpdateRequestMetadata(ctx context.Context, namespace, name string, uid types.UID, request string, devices []kubeletplugin.Device) error {
	m.mu.Lock()
	described := m.described[string(uid)]
	m.mu.Unlock()
	switch {
	case !described:
		return fmt.Errorf("request %s not found in prepared claim %s/%s", request, namespace, name)
	case m.oneIn(8):
		return errors.New("no space left on device")
	}
	return m.rig.UpdateRequestMetadata(ctx, namespace, name, uid, request, devices)
}

// kubeletRestarts registers the agent's plugin again, sometimes after it has replaced the Node object. The
// agent must end the process only if the object was replaced.
func (m *model) kubeletRestarts() {
	a, fatal := m.agentNow(), make(chan error, 2)
	k := m.plugin(a, func(err error) { fatal <- err })
	register := func() {
		_, err := k.Intercept(context.Background(), &registerapi.RegistrationStatus{PluginRegistered: true}, func(context.Context, any) (any, error) { return nil, nil })
		noError(m.t, err)
		time.Sleep(time.Second)
	}
	register()
	again := m.oneIn(2)
	if again {
		m.nodes++
		noError(m.t, m.client.CoreV1().Nodes().Delete(context.Background(), "node1", metav1.DeleteOptions{}))
		noError(m.t, m.client.Tracker().Add(nodeOf(m.nodes)))
	}
	register()
	if (len(fatal) == 1) != again || again && !strings.Contains((<-fatal).Error(), "node1") {
		m.t.Errorf("the node was registered again: %v; %d errors", again, len(fatal))
	}
}

func nodeOf(n int) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: types.UID(fmt.Sprint("node-", n))}}
}

func modelServer() *fake.Clientset { return fake.NewClientset(nodeOf(0)) }

// hidePF moves the PF's interface away for a while, as a driver reset does.
func (m *model) hidePF() {
	const address, away = "0000:03:00.0", "/var/run/netns/of-somebody"
	for !m.isOver() {
		time.Sleep(m.randomUpTo(3 * time.Minute))
		noError(m.t, m.plugins.kernel.Move(address, "", away, "net5"))
		time.Sleep(m.randomUpTo(20 * time.Second))
		noError(m.t, m.plugins.kernel.Move(address, away, "", "p0"))
	}
}

func (m *model) isOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}
