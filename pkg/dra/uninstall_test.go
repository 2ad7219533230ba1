package dra_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

// installed is a rig with an installed driver: its programs, and directories of the host.
type installed struct {
	*rig
	dra.Installation
	host string // parent of the host's directories
}

func newInstalled(t *testing.T, client *fake.Clientset) *installed {
	t.Helper()
	r, host := newRig(t), t.TempDir()
	for _, dir := range []string{"bin", "cdi", "dp", "registry"} {
		must(t, os.Mkdir(filepath.Join(host, dir), 0o755))
	}
	r.options.Exec = newPlugins()
	j := r.useJournal("mlx5-switchdev", "")
	r.options.CDIDir, r.options.Devices.DevicePluginDir = filepath.Join(host, "cdi"), filepath.Join(host, "dp")
	undertest.Programs(t, filepath.Join(host, "devinfo"), "v1.2.0", "../../cmd/devinfo")
	n := &installed{r, dra.Installation{
		Driver: driverName, Node: "node1", Client: client, PluginDir: r.dir, RegistrarDir: filepath.Join(host, "registry"), Dirs: r.options.Dirs,
		Gate: filepath.Join(host, "bin/cni-dra-gate"), Plugin: &install.PluginFile{From: filepath.Join(host, "devinfo"), Dir: filepath.Join(host, "bin"), Newer: j.Newer, ForDriver: true},
		Journal: journalIn(filepath.Join(host, "journal"), "boot1"), Log: r.options.Log,
	}, host}
	r.options.Devices.Journal = n.Journal
	_, err := install.Program(os.Args[0], n.Gate)
	must(t, err)
	_, err = n.Plugin.Place(t.Context())
	must(t, err)
	return n
}

// left lists the files below directories of the host.
func (n *installed) left(dirs ...string) []string {
	for i := range dirs {
		dirs[i] = filepath.Join(n.host, dirs[i])
	}
	return difftest.Files(n.t, dirs...)
}

func sliceOf(name string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
		Driver: driverName, NodeName: new("node1"), Pool: resourceapi.ResourcePool{Name: "node1", ResourceSliceCount: 1},
	}}
}

func slicesOn(t *testing.T, client *fake.Clientset) (names []string) {
	t.Helper()
	list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, s := range list.Items {
		names = append(names, s.Name)
	}
	return names
}

func TestUninstallRemovesTheDriverFromTheNodeOnceNoClaimIsOnRecord(t *testing.T) {
	bare, networked := ownClaim("u1", vf3, ""), ownClaim("u2", "cni", network(`{"type":"x"}`))
	setIfName(networked, "net2")
	client := apiServer(nil, bare, networked)
	n := newInstalled(t, client)
	n.startKubelet(client, 0)
	n.prepareByKubelet(bare, networked)
	must(t, n.runPod(n.sandbox("s1", "pod")))
	const uses = "claims are on record, 2 in all: delete their pods while the driver runs: pod ns/pod (claim ns/claim-u1), pod ns/pod (claim ns/claim-u2)"
	says(t, n.agent.InUse(), uses)
	difftest.Is(t, n.Uninstall(t.Context(), false), state.ErrLocked)
	n.stop()
	before := n.left("bin", "cdi", "dp", "journal")
	says(t, n.Uninstall(t.Context(), false), uses+"; or give --force")
	difftest.Equal(t, n.left("bin", "cdi", "dp", "journal"), before)

	n.startKubelet(client, 0)
	n.unprepareByKubelet(bare, networked)
	must(t, n.agent.InUse())
	n.stop()
	must(t, os.WriteFile(filepath.Join(n.RegistrarDir, driverName+"-reg.sock"), nil, 0o600)) // left by a killed driver
	foreign := filepath.Join(n.CDIDir, "example.com-gpu.json")
	must(t, os.WriteFile(foreign, nil, 0o600))
	must(t, os.WriteFile(filepath.Join(n.CDIDir, driverName+"-claim_u9_r.json"), nil, 0o600)) // a leftover
	must(t, client.Tracker().Add(sliceOf("last")))
	must(t, n.Uninstall(t.Context(), false))
	difftest.Equal(t, n.left("bin", "cdi", "dp", "registry"), []string{foreign})
	difftest.Equal(t, slicesOn(t, client), []string(nil))
	if _, err := os.Stat(n.dir); !os.IsNotExist(err) {
		t.Errorf("the driver's directory: %v", err)
	}
	must(t, n.Uninstall(t.Context(), false)) // like after a restart of the pod
}

func TestUninstallByForceKeepsRecordsAndLeasesOfClaims(t *testing.T) {
	claim := ownClaim("u1", vf3, "")
	client := apiServer(nil, claim)
	n := newInstalled(t, client)
	n.startKubelet(client, 0)
	n.prepareByKubelet(claim)
	n.stop()
	device := n.left("dp")
	must(t, n.Uninstall(t.Context(), true))
	difftest.Equal(t, n.left("bin", "cdi", "dp"), device)
	difftest.Equal(t, n.holders("pci-0000:03:00.5"), []string{"claim ns/claim-u1"})
	if offer, err := state.ReadOffer(n.StateDir); err != nil || offer != nil {
		t.Errorf("the offer stays: %+v, %v", offer, err)
	}
	n.startKubelet(client, 0) // the next driver
	n.unprepareByKubelet(claim)
	must(t, n.agent.InUse())
}

func TestUninstallLeavesThePluginToItsOwnerAndToAttachments(t *testing.T) {
	for name, use := range map[string]func(*installed) error{
		"an administrator": func(n *installed) error {
			_, err := n.Plugin.RemovePlaced()
			by := &install.PluginFile{From: n.Plugin.From, Dir: n.Plugin.Dir, Newer: n.Plugin.Newer}
			_, failed := by.Place(n.t.Context())
			_, again := n.Plugin.Place(n.t.Context()) // the driver's init container
			return errors.Join(err, failed, again)
		},
		"devinfo-agent": func(n *installed) error { _, err := n.Plugin.Keep(n.t.Context()); return err },
		"an attachment": func(n *installed) error {
			return n.Journal.Record(&journal.Entry{Key: journal.Key{Network: "n", ContainerID: "c", IfName: "net1"}, Complete: true}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newInstalled(t, apiServer(nil))
			must(t, use(n))
			must(t, n.Uninstall(t.Context(), false))
			if !n.Plugin.IsThere() || len(difftest.Names(t, n.Plugin.Dir)) > 2 { // the plugin and its mark
				t.Errorf("left: %q", n.left("bin"))
			}
		})
	}
}

// Pods must still be deleted while the driver waits for them, but no new pods may be scheduled.
func TestADriverThatIsToBeUninstalledWithdrawsItsOffer(t *testing.T) {
	client := apiServer(nil, sliceOf("before"))
	r := newRig(t)
	r.withdraw = true
	r.startKubelet(client, 0)
	waitUntil(t, func() string { return cmp.Diff(slicesOn(t, client), []string(nil)) })
}
