package node_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"devinfo-cni.io/pkg/check/checktest"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

// counting says that nothing is where it is asked for, and counts.
type counting struct {
	discovery.Interfaces
	discovery.Switches
	interfaces, modes, namespaces atomic.Int64
}

func (c *counting) Interface(string, string) (link.Interface, error) {
	c.interfaces.Add(1)
	return link.Interface{}, link.ErrNoInterface
}

func (c *counting) Switchdev(string) (bool, error) {
	c.modes.Add(1)
	return false, nil
}

// Nodes have thousands of attachments: whatever is asked about one is asked once, however much
// is said of it, and of a PF once for all of its VFs.
func TestNothingIsAskedTwice(t *testing.T) {
	const vfs, attachments = 20, 60
	dir, asked := t.TempDir(), &counting{}
	must(t, checktest.Crowd(journal.Open(dir+"/state", "boot"), dir+"/infos", "/netns", vfs, attachments))
	n := node.Open(node.Options{
		Settings: config.Node{StateDir: dir + "/state", DeviceInfoDir: dir + "/infos"}, BootID: "boot", ClaimDir: dir + "/claims",
		Sys: sysfs.New(hosttxttest.ManyVFs(vfs).Sys()), Finder: &discovery.Finder{Interfaces: asked, Switches: asked},
		NetnsGone: func(string) (bool, error) { asked.namespaces.Add(1); return false, nil },
	})
	list, err := n.Recorded()
	must(t, err)
	n.Judge(list, true)
	for _, a := range list {
		if c := a.Verdict; c.Problem != "" || len(c.Facts) < 3 {
			t.Errorf("%+v", c)
		}
	}
	if i, m, gone := asked.interfaces.Load(), asked.modes.Load(), asked.namespaces.Load(); i != attachments || m != 1 || gone != 2*attachments { // to read it, and to compare it
		t.Errorf("of %d attachments %d interfaces, %d modes and %d namespaces are asked for", attachments, i, m, gone)
	}
	entries, err := filepath.Glob(dir + "/state/attachments/*")
	must(t, err)
	for _, path := range entries { // who reads them again finds none
		must(t, os.WriteFile(path, nil, 0o600))
	}
	if unowned, err := n.Unowned(list); err != nil || len(entries) != attachments || len(unowned) > 0 {
		t.Errorf("%d entries, unowned: %q, %v", len(entries), unowned, err)
	}
}
