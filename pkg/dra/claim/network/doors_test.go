package network

import (
	"context"
	"errors"
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
	does    func(verb string) error // what each plugin does; nil = nothing
	calls   []string                // verb, plugin and namespace of each call
}

func (c *chain) FindInPath(plugin string, _ []string) (string, error) {
	if plugin == c.missing {
		return "", &cniexec.Error{Reason: cniexec.ReasonMissing, Err: errors.New("no " + plugin)}
	}
	return "/" + plugin, nil
}

func (c *chain) ExecPlugin(_ context.Context, path string, _ []byte, env []string) (result []byte, err error) {
	of := map[string]string{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		of[name] = value
	}
	c.calls = append(c.calls, strings.TrimSpace(of["CNI_COMMAND"]+" "+path+" "+of["CNI_NETNS"]))
	if c.does != nil {
		err = c.does(of["CNI_COMMAND"])
	}
	return []byte(`{"cniVersion":"1.0.0","interfaces":[{"name":"net1","mac":"02:00:00:00:00:01","sandbox":"/ns"}]}`), err
}

// door has what a test closes.
type door struct {
	*Runner
	at *state.Attachment
	*chain
}

// after lets f run in each plugin of a verb.
func (d door) after(verb string, f func() error) error {
	d.does = func(now string) error {
		if now != verb {
			return nil
		}
		return f()
	}
	return nil
}

// writes lets ADD write a device-info file.
func (d door) writes(text string) error {
	return d.after("ADD", func() error { return os.WriteFile(d.at.InfoFile, []byte(text), 0o600) })
}

func died() error { return &cniexec.Error{Reason: cniexec.ReasonDied, Err: errors.New("it died")} }

// What cannot be read or written ends ADD or DEL, before the plugins if they need it. A missing plugin does not stop the DEL
// of the others, and says less than their failures.
func TestADDAndDELSayWhatFailed(t *testing.T) {
	for name, test := range map[string]struct {
		close         func(d door) error
		add, del      string // reason and part of the error; "" = none
		called, ended int    // plugins at ADD and at DEL
	}{
		"nothing":                   {func(door) error { return nil }, "", "", 2, 2},
		"namespace":                 {func(d door) error { return os.Remove(d.at.Netns) }, "node no such file", "", 0, 2},
		"configuration":             {func(d door) error { d.at.List = []byte("{"); return nil }, "output net: configuration", "output net: configuration", 0, 0},
		"former files":              {func(d door) error { return os.Symlink(d.CacheDir, d.CacheDir) }, "node too many levels", "node too many levels", 0, 0},
		"lock":                      {func(d door) error { return os.Symlink("/nowhere/cache", d.CacheDir) }, "node no such file", "node no such file", 0, 0},
		"missing plugin":            {func(d door) error { d.missing = "x"; return nil }, "missing no x", "missing no x", 1, 1},
		"plugin":                    {func(d door) error { return d.after("ADD", died) }, "died net: ADD", "", 1, 2},
		"plugins":                   {func(d door) error { d.missing = "x"; return d.after("DEL", died) }, "missing no x", "died no x", 1, 1},
		"damaged information":       {func(d door) error { return d.writes("{") }, "info fix the CNI plugin that wrote it", "", 2, 2},
		"information of the future": {func(d door) error { return d.writes(`{"type":"pci","version":"9.0.0"}`) }, "", "", 2, 2},
		"unreadable information": {func(d door) error {
			return d.after("ADD", func() error { return os.MkdirAll(filepath.Join(d.at.InfoFile, "busy"), 0o700) })
		}, "info not a regular file", "node device-info", 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir, c, verbs := t.TempDir(), new(chain), ""
			r := &Runner{
				CacheDir: filepath.Join(dir, "cache"), Exec: c, Node: devices.New(devices.Options{}, nil), Reached: func(name string) { verbs += name }, Log: slog.New(slog.DiscardHandler),
				Namespaces: Namespaces{Check: func(path string) error { _, err := os.Stat(path); return err }},
			}
			at := &state.Attachment{Network: "net", IfName: "net1", List: []byte(`{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"sriov"},{"type":"x"}]}`)}
			at.Execution = state.Execution{Sandbox: "s1", Netns: filepath.Join(dir, "ns"), InfoFile: filepath.Join(dir, "device-info")}
			difftest.Write(t, at.Netns, "", 0o600)
			difftest.Must(t, test.close(door{r, at, c}))
			ends := func(err error, want string, calls int) {
				t.Helper()
				reason, part, _ := strings.Cut(want, " ")
				if difftest.Equal(t, string(ReasonOf(err)), reason); err != nil {
					difftest.Says(t, err, part)
				}
				difftest.Equal(t, len(c.calls), calls)
			}
			err := r.Add("u1", at)
			ends(err, test.add, test.called)
			difftest.Equal(t, strings.HasPrefix(string(at.Metadata), `{"networkData":{`), err == nil) // the keys of records
			difftest.Equal(t, r.Check(at) != nil, c.missing != "" || string(at.List) == "{")
			c.calls = nil
			ends(r.Del("u1", at, "", "/gone"), test.del, test.ended)
			if test.ended == 2 { // only plugins of VFs get a namespace that is gone
				difftest.Equal(t, c.calls, []string{"DEL /x", "DEL /sriov /gone"})
				difftest.Equal(t, verbs, strings.Repeat("exec ADD", min(test.called, 1))+"exec DEL")
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
