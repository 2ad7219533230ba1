package network

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/version"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/test/difftest"
)

// chain runs plugins without processes.
type chain struct {
	version.PluginDecoder
	missing string
	add     func() error // what the first ADD does
	calls   []string     // verb, plugin and namespace of each call
}

func (c *chain) FindInPath(plugin string, _ []string) (string, error) {
	if plugin == c.missing {
		return "", &cniexec.Error{Reason: cniexec.ReasonMissing, Err: fmt.Errorf("%s is missing", plugin)}
	}
	return "/" + plugin, nil
}

func (c *chain) ExecPlugin(_ context.Context, path string, _ []byte, env []string) ([]byte, error) {
	of := map[string]string{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		of[name] = value
	}
	c.calls = append(c.calls, strings.TrimSpace(of["CNI_COMMAND"]+" "+path+" "+of["CNI_NETNS"]))
	if of["CNI_COMMAND"] == "ADD" && c.add != nil {
		if err := c.add(); err != nil {
			return nil, err
		}
	}
	return []byte(`{"cniVersion":"1.0.0","interfaces":[{"name":"net1","mac":"02:00:00:00:00:01","sandbox":"/ns"}]}`), nil
}

const infoName = "device-info"

// What cannot be read or written ends ADD or DEL, before the plugins if they need it.
func TestADDAndDELSayWhatFailed(t *testing.T) {
	write := func(path, text string) func() error {
		return func() error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for name, test := range map[string]struct {
		prevent       func(r *Runner, at *state.Attachment, c *chain) error
		add, del      string // part of the error; "" = none
		reason        cniexec.Reason
		called, ended int // plugins at ADD and at DEL
	}{
		"nothing": {func(*Runner, *state.Attachment, *chain) error { return nil }, "", "", "", 2, 2},
		"namespace": {func(_ *Runner, at *state.Attachment, _ *chain) error { return os.Remove(at.Netns) },
			"no such file", "", cniexec.ReasonNode, 0, 2},
		"configuration": {func(_ *Runner, at *state.Attachment, _ *chain) error { at.List = []byte("{"); return nil },
			"network net: configuration", "network net: configuration", cniexec.ReasonOutput, 0, 0},
		"former files": {func(r *Runner, _ *state.Attachment, _ *chain) error { return os.Symlink(r.CacheDir, r.CacheDir) },
			"too many levels", "too many levels", cniexec.ReasonNode, 0, 0},
		"lock": {func(r *Runner, _ *state.Attachment, _ *chain) error { return os.Symlink("/nowhere/cache", r.CacheDir) },
			"no such file", "no such file", cniexec.ReasonNode, 0, 0},
		"missing plugin": {func(_ *Runner, _ *state.Attachment, c *chain) error { c.missing = "x"; return nil },
			"x is missing", "x is missing", cniexec.ReasonMissing, 1, 1},
		"plugin": {func(_ *Runner, _ *state.Attachment, c *chain) error {
			c.add = func() error { return &cniexec.Error{Reason: cniexec.ReasonDied, Err: os.ErrDeadlineExceeded} }
			return nil
		}, "network net: ADD", "", cniexec.ReasonDied, 1, 2},
		"unreadable information": {func(_ *Runner, at *state.Attachment, c *chain) error {
			c.add = func() error { return os.MkdirAll(filepath.Join(at.InfoFile, "busy"), 0o700) }
			return nil
		}, "device-info file of network net", infoName, ReasonInfo, 2, 2},
		"damaged information": {func(_ *Runner, at *state.Attachment, c *chain) error { c.add = write(at.InfoFile, "{"); return nil },
			"fix the CNI plugin that wrote it", "", ReasonInfo, 2, 2},
		"information of the future": {func(_ *Runner, at *state.Attachment, c *chain) error {
			c.add = write(at.InfoFile, `{"type":"pci","version":"9.0.0"}`)
			return nil
		}, "", "", "", 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir, c := t.TempDir(), new(chain)
			r := &Runner{
				CacheDir: filepath.Join(dir, "cache"), Exec: c, Node: devices.New(devices.Options{}, nil), Reached: func(string) {}, Log: slog.New(slog.DiscardHandler),
				Namespaces: Namespaces{Check: func(path string) error { _, err := os.Stat(path); return err }},
			}
			at := &state.Attachment{Network: "net", IfName: "net1", List: []byte(`{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"sriov"},{"type":"x"}]}`)}
			at.Execution = state.Execution{Sandbox: "s1", Netns: filepath.Join(dir, "ns"), InfoFile: filepath.Join(dir, infoName)}
			difftest.Write(t, at.Netns, "", 0o600)
			difftest.Must(t, test.prevent(r, at, c))
			says := func(err error, part string) {
				t.Helper()
				if part == "" {
					difftest.Must(t, err)
				} else {
					difftest.Says(t, err, part)
				}
			}
			err := r.Add("u1", at)
			says(err, test.add)
			difftest.Equal(t, ReasonOf(err), test.reason)
			difftest.Equal(t, len(c.calls), test.called)
			difftest.Equal(t, at.Metadata != nil, err == nil)
			difftest.Equal(t, r.Check(at) != nil, c.missing != "" || string(at.List) == "{")
			c.calls = nil
			says(r.Del("u1", at, "", "/gone"), test.del)
			difftest.Equal(t, len(c.calls), test.ended)
			if test.ended == 2 { // only plugins of VFs get a namespace that is gone
				difftest.Equal(t, c.calls, []string{"DEL /x", "DEL /sriov /gone"})
			}
			if test.del == "" {
				difftest.Equal(t, len(difftest.Names(t, r.CacheDir)), 0)
			}
			r.Namespaces.CloseAll()
		})
	}
}

// A variable for all networks of a pod, in the order of their interfaces, and its place in a spec.
func TestRDMAVariableListsAttachedAndBareDevices(t *testing.T) {
	info := func(rdma string) []byte {
		return fmt.Appendf(nil, `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:00.0","rdma-device":%q}}`, rdma)
	}
	network := func(ifName string, phase state.Phase, of []byte) state.Attachment {
		return state.Attachment{IfName: ifName, Phase: phase, List: []byte("{}"), Execution: state.Execution{Info: of}}
	}
	bare := state.Attachment{Phase: state.Prepared, Execution: state.Execution{Info: info("d")}}
	all := []state.Attachment{
		bare, network("net10", state.Added, info("b")), network("net2", state.Added, info("a")), network("net3", state.Deleting, info("x")), network("net4", state.Added, nil),
	}
	got := RDMAVariable(all)
	difftest.Equal(t, got, "DEVINFO_RDMA_DEVICES=a:1,b:1,d:1")
	spec := &specs.Spec{Devices: []specs.Device{{ContainerEdits: specs.ContainerEdits{Env: []string{"A=1", "DEVINFO_RDMA_DEVICES=x"}}}}}
	for _, rdma := range []string{got, ""} {
		SetRDMA(spec, rdma)
		difftest.Equal(t, spec.Devices[0].ContainerEdits.Env, slices.DeleteFunc([]string{"A=1", rdma}, func(s string) bool { return s == "" }))
	}
}
