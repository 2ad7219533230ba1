package network

import (
	"io/fs"
	"log/slog"
	"testing"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/test/difftest"
)

// A spec that an earlier process wrote may give more than is known now, but nothing that its pod cannot open.
func TestEarlierSpecCoversWhatItsPodCanOpen(t *testing.T) {
	perms := map[string]fs.FileMode{"/dev/a": 0o666, "/dev/b": 0o600}
	g := &Gate{Node: &devices.Node{Options: devices.Options{DeviceNodes: func(path string) (cdispec.DeviceNode, error) {
		switch {
		case path == "/dev/unseen":
			return cdispec.DeviceNode{}, fs.ErrPermission
		case perms[path] == 0:
			return cdispec.DeviceNode{}, fs.ErrNotExist
		}
		return cdispec.DeviceNode{Path: path, Perm: perms[path]}, nil
	}}}}
	give := func(paths ...string) *specs.Spec {
		var e specs.ContainerEdits
		for _, path := range paths {
			e.DeviceNodes = append(e.DeviceNodes, &specs.DeviceNode{Path: path})
		}
		return &specs.Spec{Devices: []specs.Device{{ContainerEdits: e}}}
	}
	hooked := give()
	hooked.Devices[0].ContainerEdits.Hooks = []*specs.Hook{{Path: "/of/an/earlier/driver"}}
	for _, test := range []struct {
		was, is      *specs.Spec
		any, ownUser bool // whether it covers for a pod without and with a user namespace
	}{
		{give("/dev/a"), give("/dev/a"), true, true},
		{give("/dev/a"), give(), true, true},
		{give("/dev/a", "/dev/b"), give("/dev/a"), true, false},
		{give("/dev/a", "/dev/gone"), give("/dev/a"), true, true},
		{give("/dev/a", "/dev/unseen"), give("/dev/a"), true, false},
		{give("/dev/b"), give("/dev/a"), false, false},
		{hooked, give(), false, false},
	} {
		difftest.Equal(t, g.Covers(test.was, test.is, false), test.any)
		difftest.Equal(t, g.Covers(test.was, test.is, true), test.ownUser)
	}
}

// A record may be from an earlier build.
func TestAttachmentThatCannotBeDescribedHasNoSpec(t *testing.T) {
	unreadable := &devices.Node{Options: devices.Options{
		DeviceNodes: grant.NodesBelow(""), Settings: func() (config.Node, error) { return config.Node{}, fs.ErrPermission },
	}}
	g := &Gate{Kind: "d.example.com/claim", Node: unreadable, Unexposed: func(_, _ string) error { return nil }, Log: slog.New(slog.DiscardHandler)}
	for says, at := range map[string]state.Attachment{
		"JSON":              {Request: "r", List: []byte("{}"), Execution: state.Execution{Info: []byte("{")}},
		"u1_two words_1":    {Request: "two words", List: []byte("{}"), Index: 1},
		"permission denied": {Request: "r", List: []byte("{}"), Execution: state.Execution{Info: []byte(`{"type":"memif","version":"1.1.0"}`)}},
	} {
		_, _, err := g.Spec(&state.Claim{UID: "u1"}, &at, false)
		difftest.Says(t, err, says)
	}
}
