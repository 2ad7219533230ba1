package apiserver_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// offer publishes devices with the controller of the kubelet plugin library. It returns when all devices are in the
// API unchanged, or with the first error.
func offer(t *testing.T, client kubernetes.Interface, devices []resourceapi.Device) error {
	t.Helper()
	failed := make(chan error, 100)
	pools := map[string]resourceslice.Pool{node: {Slices: []resourceslice.Slice{{Devices: devices}}}}
	c, err := resourceslice.StartController(t.Context(), resourceslice.Options{
		DriverName: driver, KubeClient: client, Owner: &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: node},
		Resources: &resourceslice.DriverResources{Pools: pools}, ErrorHandler: func(_ context.Context, err error, _ string) {
			select {
			case failed <- err:
			default:
			}
		},
	})
	must(t, err)
	defer c.Stop()
	deadline := time.After(3 * time.Minute)
	for {
		select {
		case err := <-failed:
			return err
		case <-deadline:
			t.Fatal("no slice in 3 minutes, and no error")
		case <-time.After(50 * time.Millisecond):
			list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.driver=" + driver})
			must(t, err)
			if len(list.Items) == 1 && cmp.Equal(list.Items[0].Spec.Devices, devices) {
				return nil
			}
		}
	}
}

// published returns the devices in the API, and deletes them.
func published(t *testing.T, client kubernetes.Interface) []resourceapi.Device {
	t.Helper()
	list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.driver=" + driver})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d slices, error %v", len(list.Items), err)
	}
	must(t, client.ResourceV1().ResourceSlices().Delete(t.Context(), list.Items[0].Name, metav1.DeleteOptions{}))
	return list.Items[0].Spec.Devices
}

// The test also checks that the agent cannot read objects that it does not need.
func TestAgentWritesOnlySlicesOfItsNode(t *testing.T) {
	p := server(t)
	slice := func(name, driver, node string) *resourceapi.ResourceSlice {
		return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1}, Devices: []resourceapi.Device{{Name: "cni"}},
		}}
	}
	theirs := slice("theirs", driver, other)
	_, err := p.Client.ResourceV1().ResourceSlices().Create(t.Context(), theirs, metav1.CreateOptions{})
	must(t, err)
	defer func() {
		_ = p.Client.ResourceV1().ResourceSlices().Delete(context.Background(), "theirs", metav1.DeleteOptions{})
	}()
	client := p.agent(t)
	agent, unbound := client.ResourceV1().ResourceSlices(), p.account(t, namespace, namespace, "").ResourceV1().ResourceSlices()
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	create := func(s *resourceapi.ResourceSlice) error { _, err := agent.Create(t.Context(), s, dry); return err }
	difftest.Eventually(t, "the policy holds", func() bool { return create(slice("mine", driver, other)) != nil })

	if err := create(slice("mine", driver, node)); err != nil {
		t.Errorf("its own: %v", err)
	}
	// Kustomize can give the account another name and namespace.
	must(t, p.create([]byte(`{apiVersion: v1, kind: Namespace, metadata: {name: elsewhere}}`)))
	renamed := p.bound(t, "elsewhere", "net-cni-dra-driver-b", namespace).ResourceV1().ResourceSlices()
	difftest.Eventually(t, "the renamed account may write", func() bool {
		_, err := renamed.Create(t.Context(), slice("mine", driver, node), dry)
		return err == nil
	})
	_, renamedErr := renamed.Create(t.Context(), slice("mine", driver, other), dry)
	_, unboundErr := unbound.Create(t.Context(), slice("mine", driver, node), dry)
	taken := slice("theirs", driver, node)
	taken.ResourceVersion = "1"
	_, updateErr := agent.Update(t.Context(), taken, metav1.UpdateOptions{})
	_, secretsErr := client.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	_, podsErr := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	_, patchErr := agent.Patch(t.Context(), "theirs", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	for what, test := range map[string]struct {
		err  error
		want string
	}{
		"another node's":   {create(slice("mine", driver, other)), "writes no ResourceSlice of another node"},
		"renamed":          {renamedErr, "writes no ResourceSlice of another node"},
		"another driver's": {create(slice("mine", "gpu.example.com", node)), "only the ResourceSlices of driver"},
		"with any token":   {unboundErr, "only with a token that is bound"},
		"taking one over":  {updateErr, ""},
		"patching":         {patchErr, `cannot patch resource "resourceslices"`},
		"secrets":          {secretsErr, `cannot list resource "secrets"`},
		"pods":             {podsErr, `cannot list resource "pods"`},
		"deleting":         {agent.Delete(t.Context(), "theirs", metav1.DeleteOptions{}), "writes no ResourceSlice of another node"},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", what, test.err, test.want)
		}
	}
}

// Pods get the attributes in a metadata file, which uses the types of the API. Only the API server checks the
// limits of these types, so the test publishes the attributes in a slice.
func TestServerAcceptsAllAttributes(t *testing.T) {
	p := server(t)
	host := capturetest.Load(t, "igb-sriov")
	long := "/" + strings.Repeat("s", resourceapi.DeviceAttributeMaxValueLength-1)
	for _, info := range []devinfo.Info{
		{Type: devinfo.TypePCI, PCI: &devinfo.PCI{
			Address: "0000:41:10.0", PFAddress: "0000:41:00.0", RDMADevice: "mlx5_0,mlx5_1", Representor: "pf0vf0", VhostNet: "/dev/vhost-net"}},
		{Type: devinfo.TypeVDPA, VDPA: &devinfo.VDPA{ParentDevice: "vdpa0", Driver: "vhost", Path: long, Address: "0000:41:10.0"}},
		{Type: devinfo.TypeVhostUser, VhostUser: &devinfo.VhostUser{Mode: "server", Path: long}},
		{Type: devinfo.TypeMemif, Memif: &devinfo.Memif{Role: "master", Mode: "inject-punt", Path: long}},
	} {
		name := node
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: "attributes-"}, Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &name, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "cni", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}}},
		}}
		attributes := slice.Spec.Devices[0].Attributes
		for name, value := range metadata.Attributes(&info, sysfs.New(host.Sys()), func(s string) { t.Error(s) }) {
			if name != metadata.VhostUserPath && name != metadata.RDMADevices { // these are only in the metadata file, not in slices
				attributes[resourceapi.QualifiedName(name)] = value
			}
		}
		dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		if _, err := p.Client.ResourceV1().ResourceSlices().Create(t.Context(), slice, dry); err != nil {
			t.Errorf("%s: %v", info.Type, err)
		}
		tooLong := long + "s"
		attributes["devinfo-cni.io/type"] = resourceapi.DeviceAttribute{StringValue: &tooLong}
		if _, err := p.Client.ResourceV1().ResourceSlices().Create(t.Context(), slice, dry); !apierrors.IsInvalid(err) {
			t.Errorf("%s: the server takes 65 bytes: %v", info.Type, err)
		}
	}
}

// Before Kubernetes 1.36 devices cannot be shared or tainted: the server drops the fields. It must accept exclusive devices,
// and an empty slice from a node without exclusive devices. An agent may write the status of every claim, of which
// docs/dra/operate.md warns. The server emulates an older version with its feature gates and APIs. It accepts the
// expressions of the policy for parameters.
func TestServersBefore136LackSharedDevices(t *testing.T) {
	for _, version := range []string{"1.34", "1.35"} {
		t.Run(version, func(t *testing.T) {
			p := start(t, "--emulated-version="+version)
			must(t, p.install(), p.create([]byte(difftest.Read(t, parametersPolicy))))
			agent := p.agent(t)
			var dropped *resourceslice.DroppedFieldsError
			if err := offer(t, agent, dra.Shared(0)); !errors.As(err, &dropped) {
				t.Errorf("the shared device: %v", err)
			}
			published(t, agent)
			tainted := []resourceapi.Device{{Name: "pci-0000-03-00-2", Taints: []resourceapi.DeviceTaint{{Key: inventory.TaintGone, Effect: resourceapi.DeviceTaintEffectNoSchedule}}}}
			if err := offer(t, agent, tainted); !errors.As(err, &dropped) || !slices.Contains(dropped.DisabledFeatures(), "DRADeviceTaints") {
				t.Errorf("a device with a taint: %v", err)
			}
			for _, devices := range [][]resourceapi.Device{{{Name: "pci-0000-03-00-2"}}, nil} {
				must(t, offer(t, agent, devices))
				difftest.Equal(t, published(t, agent), devices)
			}
			c := p.claim(t, "status", share{"net", driver, "pci-0000-03-00-2", ""})
			for node, said := range map[string]string{node: "by its node's agent", other: "by another node's"} {
				d := failed("", said)
				d.Device = "pci-0000-03-00-2"
				apply(t, p.account(t, namespace, namespace, node), report(c, d))
				difftest.Equal(t, p.devices(t, c), []resourceapi.AllocatedDeviceStatus{d})
			}
		})
	}
}

func TestDevicesAreSharedBefore136WithFeatureGate(t *testing.T) {
	for _, version := range []string{"1.34", "1.35"} {
		t.Run(version, func(t *testing.T) {
			p := start(t, "--emulated-version="+version, "--feature-gates=DRAConsumableCapacity=true")
			must(t, p.install())
			agent := p.agent(t)
			must(t, offer(t, agent, dra.Shared(500)))
			difftest.Equal(t, published(t, agent), dra.Shared(500))
			c := p.claim(t, "shared", ours("net", one))
			apply(t, agent, report(c, attached(t, one)))
			difftest.Equal(t, p.devices(t, c), []resourceapi.AllocatedDeviceStatus{attached(t, one)})
		})
	}
}

// The API server drops the list and then refuses the attribute, because it has no value. The driver ends then.
func TestNUMAListNeedsFeatureGate(t *testing.T) {
	devices := []resourceapi.Device{{Name: "pci-0000-03-00-2", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		deviceattribute.StandardDeviceAttributeNUMANode: {IntValues: []int64{1, 0}},
	}}}
	if err := offer(t, server(t).agent(t), devices); !dra.RefusesLists(err) {
		t.Errorf("without it: %v", err)
	}
	p := start(t, "--feature-gates=DRAListTypeAttributes=true")
	must(t, p.install(), offer(t, p.agent(t), devices))
}
