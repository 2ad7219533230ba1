package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/pkg/host/store"
)

// Installation describes the files and API objects of a driver on a node.
type Installation struct {
	Driver, Node string // names of the DRA driver and of the Node object
	Client       kubernetes.Interface

	PluginDir, RegistrarDir string // see [KubeletOptions]
	claim.Dirs
	Gate     string              // path of cni-dra-gate
	Plugin   *install.PluginFile // the devinfo plugin, next to the CNI plugins
	Settings *install.Settings   // its settings, which an agent may have left to the driver
	Journal  *journal.Journal    // the journal of that plugin

	Log *slog.Logger
}

// ErrInUse is the error of an uninstallation while claims are on record.
var ErrInUse = errors.New("claims are on record")

// InUse returns [ErrInUse] with the pods of the claims on record; nil = there are none.
func InUse(claims []*state.Claim, problems []state.Problem) error {
	var holders []string
	for _, c := range claims {
		holder := fmt.Sprintf("pod %s/%s (claim %s/%s)", c.Pod.Namespace, c.Pod.Name, c.Namespace, c.Name)
		if c.Unprepared() {
			holder = fmt.Sprintf("claim %s/%s, whose DEL was given up (cni-dra-driver clear %s)", c.Namespace, c.Name, c.UID)
		}
		holders = append(holders, holder)
	}
	for _, p := range problems {
		holders = append(holders, fmt.Sprintf("claim UID %s, whose record is unreadable (%v)", p.UID, p.Err))
	}
	if holders == nil {
		return nil
	}
	slices.Sort(holders)
	return fmt.Errorf("%w, %d in all: delete their pods while the driver runs: %s", ErrInUse, len(holders), clierr.Few(holders, 20))
}

// Uninstall removes the installation. The driver must not be running. If claims are on record, Uninstall returns
// [ErrInUse] and removes nothing. With force it removes everything except the records, their leases, the
// cached results and the settings, which the next driver needs.
func (i Installation) Uninstall(ctx context.Context, force bool) error {
	files, err := state.Open(i.StateDir)
	if err != nil {
		return err
	}
	defer files.Close()
	claims, problems, err := files.All(devices.CheckRecord)
	if err != nil {
		return err
	}
	used := InUse(claims, problems)
	switch {
	case used != nil && !force:
		return fmt.Errorf("%w; or give --force", used)
	case used != nil:
		i.Log.Warn("uninstalled anyway: these pods cannot be deleted without the driver", "error", used)
	}
	onRecord, err := state.UIDs(i.StateDir)
	if err != nil {
		return err
	}
	isOnRecord := func(uid string) bool { return onRecord[uid] }
	if err := errors.Join(removeSlices(ctx, i.Client, i.Driver, i.Node), devices.CollectLeases(i.Journal, isOnRecord), i.removeSpecs(), i.removePrograms(len(onRecord) > 0)); err != nil {
		return err
	}
	return i.removeDirs(len(onRecord) > 0) // last, so that the records remain if an earlier part fails
}

// removeSlices removes the ResourceSlices of a node. The kubelet would remove them 30 s after the driver has
// stopped, but until then the scheduler could still choose the node.
func removeSlices(ctx context.Context, client kubernetes.Interface, driver, node string) error {
	slices := client.ResourceV1().ResourceSlices()
	list, err := slices.List(ctx, metav1.ListOptions{FieldSelector: fields.Set{"spec.driver": driver, "spec.nodeName": node}.String()})
	if err == nil && list.ResourceVersion == "" {
		err = errors.New("the API server's answer is not a list")
	}
	if err != nil {
		return fmt.Errorf("ResourceSlices of node %s: %w", node, err)
	}
	var errs []error
	for _, s := range list.Items {
		if err := slices.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !status.Missing(err) {
			errs = append(errs, fmt.Errorf("ResourceSlice %s: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}

// removeSpecs removes the CDI specs of gates and of metadata.
func (i Installation) removeSpecs() error {
	entries, err := store.Open(i.CDIDir).Entries(i.Driver)
	for _, e := range entries {
		if is, _ := filepath.Match(i.Driver+`[\-_]*.json`, e.Name()); is {
			err = errors.Join(err, os.RemoveAll(filepath.Join(i.CDIDir, e.Name())))
		}
	}
	return err
}

// removePrograms removes cni-dra-gate, the plugin and the settings of an agent. It leaves the last two if the driver has not
// installed the plugin, if devinfo-agent keeps it, or if attachments need it for their DEL. If keep is true, the settings remain
// too, because they say where the leases of claims are.
func (i Installation) removePrograms(keep bool) error {
	if err := install.RemoveProgram(i.Gate); err != nil {
		return err
	}
	attachments, err := i.Journal.All()
	kept, failed := i.Plugin.Kept()
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if len(attachments) > 0 && !kept {
		i.Log.Warn("left the plugin in place, because attachments need it for their DEL", "attachments", len(attachments))
		return nil
	}
	removed, err := i.Plugin.RemovePlaced()
	if err == nil && !removed && i.Plugin.IsThere() {
		i.Log.Info("left the plugin in place, because devinfo-agent or an administrator has installed it")
		return nil
	}
	if err == nil && !keep {
		_, err = i.Settings.Remove()
	}
	return err
}

// removeDirs removes the registration socket and the driver's directory. If keep is true, what DEL needs remains.
func (i Installation) removeDirs(keep bool) error {
	err := os.RemoveAll(filepath.Join(i.RegistrarDir, i.Driver+"-reg.sock"))
	if !keep {
		return errors.Join(err, os.RemoveAll(i.PluginDir))
	}
	entries, failed := os.ReadDir(i.PluginDir)
	err = errors.Join(err, failed, state.WriteOffer(i.StateDir, nil))
	for _, e := range entries {
		if path := filepath.Join(i.PluginDir, e.Name()); path != i.StateDir && path != i.CacheDir {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}
