package link_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link"
)

const pf = "0000:01:00.0"

// broken returns a tree in which reading one file fails with err. If file is "", reading any phys_port_name or
// phys_switch_id fails.
func broken(sys fs.FS, file string, err error) fs.FS {
	return capturetest.Tree{FS: sys, BeforeCall: func(name string) error {
		if name == file || file == "" && strings.Contains(name, "phys_") {
			return err
		}
		return nil
	}}
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func eswitch(sys fs.FS, mode string, err error) link.Eswitch {
	return link.Eswitch{
		Sys:   sys,
		Mode:  func(string) (string, error) { return mode, err },
		Ports: func(string) ([]link.PortRecord, error) { return nil, err },
	}
}

func TestSwitchdevPrefersModeToSwitchID(t *testing.T) {
	net := "bus/pci/devices/" + pf + "/net/"
	withID := fstest.MapFS{net + "eth0/phys_switch_id": file("b8cef603\n")}
	without := fstest.MapFS{net + "eth0/phys_switch_id": file("\n")}
	for name, test := range map[string]struct {
		eswitch link.Eswitch
		want    bool
		err     error
	}{
		"mode without interface":     {eswitch(fstest.MapFS{}, "switchdev", nil), true, nil},
		"mode, id unreadable":        {eswitch(broken(withID, "", syscall.EIO), "switchdev", nil), true, nil},
		"no id, devlink broken":      {eswitch(without, "", syscall.EMSGSIZE), false, nil},
		"legacy mode, id":            {eswitch(withID, "legacy", nil), false, nil},
		"no devlink, id":             {eswitch(withID, "", syscall.ENOENT), true, nil},
		"PF without devlink, id":     {eswitch(withID, "", syscall.ENODEV), true, nil},
		"devlink without a mode, id": {eswitch(withID, "", nil), true, nil},
		"unknown mode, id":           {eswitch(withID, "unknown", nil), true, nil},
		"no devlink, empty id":       {eswitch(without, "", syscall.ENODEV), false, nil},
		"no devlink, no interface":   {eswitch(fstest.MapFS{}, "", syscall.ENODEV), false, nil},
		"id not supported":           {eswitch(broken(withID, "", syscall.EOPNOTSUPP), "", nil), false, nil},
		"id unreadable":              {eswitch(broken(withID, "", syscall.EIO), "", nil), false, syscall.EIO},
		"interfaces unreadable":      {eswitch(broken(withID, strings.TrimSuffix(net, "/"), syscall.EIO), "", nil), false, syscall.EIO},
		"unreadable, mode":           {eswitch(broken(withID, strings.TrimSuffix(net, "/"), syscall.EIO), "switchdev", nil), true, nil},
		"devlink broken":             {eswitch(withID, "", syscall.EMSGSIZE), false, syscall.EMSGSIZE},
	} {
		got, err := test.eswitch.Switchdev(pf)
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %v, %v; want %v, %v", name, got, err, test.want, test.err)
		}
		if err != nil && !strings.Contains(err.Error(), pf) {
			t.Errorf("%s: %q does not name the PF", name, err)
		}
	}
}

func TestSwitchdevReadsFourInterfacesAtMost(t *testing.T) {
	sys := fstest.MapFS{}
	for i := range 1024 {
		sys["bus/pci/devices/"+pf+"/net/eth"+string(rune('a'+i))+"/phys_switch_id"] = file("\n")
	}
	read := 0
	tree := capturetest.Tree{FS: sys, BeforeCall: func(string) error { read++; return nil }}
	for mode, want := range map[string]bool{"": false, "switchdev": true} { // other interfaces may have an ID
		read = 0
		on, err := eswitch(tree, mode, nil).Switchdev(pf)
		if on != want || err != nil || read != 1+4 { // the directory and four files
			t.Errorf("%q: %v, %v after %d files", mode, on, err, read)
		}
	}
}

func TestPFMustBePCIAddress(t *testing.T) {
	e := eswitch(fstest.MapFS{}, "switchdev", nil)
	for _, name := range []string{"", "eth0", "../0000:01:00.0", "netdevsim1"} {
		if on, err := e.Switchdev(name); on || err == nil {
			t.Errorf("Switchdev(%q): %v, %v", name, on, err)
		}
		if rep, _, err := e.Representor(name, link.VF, 0); rep != "" || err == nil {
			t.Errorf("Representor(%q): %q, %v", name, rep, err)
		}
	}
	if on, err := e.Switchdev("0000:AB:00.0"); !on || err != nil {
		t.Errorf("capitals: %v, %v", on, err)
	}
}
