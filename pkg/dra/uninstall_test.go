package dra_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

// installed is a rig with an installed driver: its programs, and directories of the host.
type installed struct {
	*dratest.Rig
	dra.Installation
	host string // parent of the host's directories
}

func newInstalled(t *testing.T, client *fake.Clientset) *installed {
	t.Helper()
	r, host := dratest.NewRig(t), t.TempDir()
	for _, dir := range []string{"bin", "cdi", "dp", "registry"} {
		difftest.Must(t, os.Mkdir(filepath.Join(host, dir), 0o755))
	}
	r.UsePlugins()
	j := r.UseJournal("mlx5-switchdev", "")
	r.Options.CDIDir, r.Options.Devices.DevicePluginDir = filepath.Join(host, "cdi"), filepath.Join(host, "dp")
	undertest.Programs(t, filepath.Join(host, "devinfo"), "v1.2.0", "../../cmd/devinfo")
	n := &installed{r, dra.Installation{
		Driver: dratest.Driver, Node: "node1", Client: client, PluginDir: r.Dir, RegistrarDir: filepath.Join(host, "registry"), Dirs: r.Options.Dirs,
		Gate: filepath.Join(host, "bin/cni-dra-gate"), Plugin: &install.PluginFile{From: filepath.Join(host, "devinfo"), Dir: filepath.Join(host, "bin"), Newer: j.Newer, ForDriver: true},
		Settings: &install.Settings{Dir: filepath.Join(host, "from"), To: filepath.Join(host, "etc/node.json")},
		Journal:  dratest.JournalIn(filepath.Join(host, "journal"), "boot1"), Log: r.Options.Log,
	}, host}
	r.Options.Devices.Journal = n.Journal
	_, err := install.Program(os.Args[0], n.Gate)
	difftest.Must(t, err)
	_, err = n.Plugin.Place(t.Context())
	difftest.Must(t, err)
	return n
}

// left lists the files below directories of the host.
func (n *installed) left(dirs ...string) []string {
	for i := range dirs {
		dirs[i] = filepath.Join(n.host, dirs[i])
	}
	return difftest.Files(n.T, dirs...)
}

func sliceOf(name string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
		Driver: dratest.Driver, NodeName: new("node1"), Pool: resourceapi.ResourcePool{Name: "node1", ResourceSliceCount: 1},
	}}
}

func slicesOn(t *testing.T, client *fake.Clientset) (names []string) {
	t.Helper()
	list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	difftest.Must(t, err)
	for _, s := range list.Items {
		names = append(names, s.Name)
	}
	return names
}

func TestUninstallRemovesTheDriverFromTheNodeOnceNoClaimIsOnRecord(t *testing.T) {
	bare, networked := dratest.DeviceClaim("u1", dratest.VF3, ""), dratest.DeviceClaim("u2", "cni", dratest.Network(`{"type":"x"}`))
	dratest.SetIfName(networked, "net2")
	client := dratest.APIServer(nil, bare, networked)
	n := newInstalled(t, client)
	n.StartKubelet(client, 0)
	n.PrepareByKubelet(bare, networked)
	difftest.Must(t, n.RunPod(n.Sandbox("s1", "pod")))
	const uses = "claims are on record, 2 in all: delete their pods while the driver runs: pod ns/pod (claim ns/claim-u1), pod ns/pod (claim ns/claim-u2)"
	difftest.Says(t, dra.InUse(n.Agent.Records()), uses)
	difftest.Is(t, n.Uninstall(t.Context(), false), state.ErrLocked)
	n.Stop()
	before := n.left("bin", "cdi", "dp", "journal")
	difftest.Says(t, n.Uninstall(t.Context(), false), uses+"; or give --force")
	difftest.Equal(t, n.left("bin", "cdi", "dp", "journal"), before)

	n.StartKubelet(client, 0)
	n.UnprepareByKubelet(bare, networked)
	difftest.Must(t, dra.InUse(n.Agent.Records()))
	n.Stop()
	difftest.Must(t, os.WriteFile(filepath.Join(n.RegistrarDir, dratest.Driver+"-reg.sock"), nil, 0o600)) // left by a killed driver
	foreign := filepath.Join(n.CDIDir, "example.com-gpu.json")
	difftest.Must(t, os.WriteFile(foreign, nil, 0o600))
	difftest.Must(t, os.WriteFile(filepath.Join(n.CDIDir, dratest.Driver+"-claim_u9_r.json"), nil, 0o600)) // a leftover
	difftest.Must(t, client.Tracker().Add(sliceOf("last")))
	loop := filepath.Join(n.host, "loop")
	difftest.Must(t, os.Symlink(loop, loop)) // a directory that cannot be read
	for _, dir := range []*string{&n.CDIDir, &n.StateDir, &n.Gate, &n.RegistrarDir} {
		readable := *dir
		*dir = filepath.Join(loop, "x")
		difftest.Is(t, n.Uninstall(t.Context(), false), syscall.ELOOP)
		*dir = readable
	}
	difftest.Must(t, n.Uninstall(t.Context(), false))
	difftest.Equal(t, n.left("bin", "cdi", "dp", "registry"), []string{foreign})
	difftest.Equal(t, slicesOn(t, client), []string(nil))
	if _, err := os.Stat(n.Dir); !os.IsNotExist(err) {
		t.Errorf("the driver's directory: %v", err)
	}
	difftest.Must(t, n.Uninstall(t.Context(), false)) // like after a restart of the pod
}

func TestUninstallByForceKeepsRecordsAndLeasesOfClaims(t *testing.T) {
	claim := dratest.DeviceClaim("u1", dratest.VF3, "")
	client := dratest.APIServer(nil, claim)
	n := newInstalled(t, client)
	n.StartKubelet(client, 0)
	n.PrepareByKubelet(claim)
	n.Stop()
	difftest.Write(t, filepath.Join(n.host, "from/default.json"), "{}", 0o644)
	_, err := n.Settings.Keep() // devinfo-agent left them, and they may say where the leases are
	difftest.Must(t, err)
	kept := n.left("dp", "etc")
	difftest.Must(t, n.Uninstall(t.Context(), true))
	difftest.Equal(t, n.left("bin", "cdi", "dp", "etc"), kept)
	n.ExpectHolders("pci-0000:03:00.5", "claim ns/claim-u1")
	if offer, err := state.ReadOffer(n.StateDir); err != nil || offer != nil {
		t.Errorf("the offer stays: %+v, %v", offer, err)
	}
	n.StartKubelet(client, 0) // the next driver
	n.UnprepareByKubelet(claim)
	difftest.Must(t, dra.InUse(n.Agent.Records()))
}

func TestUninstallLeavesThePluginToItsOwnerAndToAttachments(t *testing.T) {
	for name, use := range map[string]func(*installed) error{
		"nobody": func(*installed) error { return nil },
		"an administrator": func(n *installed) error {
			_, err := n.Plugin.RemovePlaced()
			by := &install.PluginFile{From: n.Plugin.From, Dir: n.Plugin.Dir, Newer: n.Plugin.Newer}
			_, failed := by.Place(n.T.Context())
			_, again := n.Plugin.Place(n.T.Context()) // the driver's init container
			return errors.Join(err, failed, again)
		},
		"devinfo-agent": func(n *installed) error { _, err := n.Plugin.Keep(n.T.Context()); return err },
		"an attachment": func(n *installed) error {
			return n.Journal.Put(&journal.Entry{Key: journal.Key{Network: "n", ContainerID: "c", IfName: "net1"}, Complete: true}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newInstalled(t, dratest.APIServer(nil))
			difftest.Write(t, filepath.Join(n.host, "from/default.json"), "{}", 0o644)
			_, err := n.Settings.Keep() // devinfo-agent left them, or is there
			difftest.Must(t, err, use(n))
			difftest.Must(t, n.Uninstall(t.Context(), false))
			if n.Plugin.IsThere() == (name == "nobody") || len(difftest.Names(t, n.Plugin.Dir)) > 2 { // the plugin and its mark
				t.Errorf("left: %q", n.left("bin"))
			}
			difftest.Same(t, "settings are left", len(n.left("etc")) > 0, name != "nobody")
		})
	}
}

// Pods must still be deleted while the driver waits for them, but no new pods may be scheduled.
func TestADriverThatIsToBeUninstalledWithdrawsItsOffer(t *testing.T) {
	client := dratest.APIServer(nil, sliceOf("before"))
	r := dratest.NewRig(t)
	r.Withdraw = true
	r.StartKubelet(client, 0)
	difftest.Eventually(t, "the slices are removed", func() bool { return len(slicesOn(t, client)) == 0 })
}
