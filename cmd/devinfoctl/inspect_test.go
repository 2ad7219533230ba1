package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/ctl/node/sriovnettest"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/test/difftest"
)

func TestTopologyOfCapturedHosts(t *testing.T) {
	for _, name := range capturetest.Described(t) {
		t.Run(name, func(t *testing.T) {
			golden(t, "topology-"+name, "--capture", hosts+name+".txtar", "topology")
		})
	}
	for _, format := range []string{"table", "json", "yaml"} {
		t.Run(format, func(t *testing.T) {
			golden(t, "topology-node-"+format, "--capture", "testdata/node.txtar", "topology", "-o", format)
		})
	}
}

const switchdevHost = hosts + "mlx5-switchdev.txtar"

// heard returns a devinfoctl for a captured host that compares representors with sriovnet's answer.
func heard(t *testing.T, file string, sriovnet func(e link.Eswitch, pf string, flavour link.Flavour, number int) (string, error)) (*tool, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	ctl := &tool{stdout: &out, stderr: &out, captureFile: file, output: "table"}
	t.Cleanup(ctl.close)
	h, err := ctl.host()
	difftest.Must(t, err)
	e := h.Finder.Eswitches.(*linkhost.Kernel).Eswitch
	h.Sriovnet = func(pf string, flavour link.Flavour, number int) (string, error) {
		return sriovnet(e, pf, flavour, number)
	}
	return ctl, &out
}

// unseen are switches without representors.
type unseen struct{ hostdev.Eswitches }

func (unseen) Representor(string, link.Flavour, int) (name, source string, err error) {
	return "", "", nil
}

func TestInspectComparesRepresentorWithSriovnet(t *testing.T) {
	const source = "devlink ports of pci/0000:03:00.0; sriovnet "
	for want, sriovnet := range map[string]func(e link.Eswitch, pf string, flavour link.Flavour, number int) (string, error){
		source + "agrees":            sriovnettest.Sriovnet,
		source + "finds eth5":        func(link.Eswitch, string, link.Flavour, int) (string, error) { return "eth5", nil },
		source + "finds nothing: no": func(link.Eswitch, string, link.Flavour, int) (string, error) { return "", errors.New("no") },
		"warning: VF 0 of 0000:03:00.0: sriovnet finds eth4, and so do OVN-Kubernetes, ovs-cni and the SR-IOV operators; devinfo finds nothing": sriovnettest.Sriovnet,
	} {
		ctl, out := heard(t, switchdevHost, sriovnet)
		if finder := ctl.opened.Finder; strings.HasPrefix(want, "warning") {
			finder.Eswitches = unseen{finder.Eswitches}
		}
		if err := ctl.inspect(t.Context(), ctl.opened, node.Subject{Name: "0000:03:00.2"}); err != nil || !strings.Contains(out.String(), want+"\n") {
			t.Errorf("%v; want %q in\n%s", err, want, out)
		}
	}
}

// Programs rename representors, and another interface may have the name that ADD recorded. A name finds only who has the device
// that the interface of this name represents now, whatever the records of the host say. Nothing compares a stale attachment, so
// only its own record leads to it.
func TestRepresentorIsFoundByItsPresentName(t *testing.T) {
	recorded := regexp.MustCompile(`"representor-device": "[^"]*"`)
	for _, names := range [][]string{{"eth4", "eth5", "eth6", "eth7"}, {"eth5", "eth6", "eth7", "eth4"}, {"pf0vf2", "pf0vf2", "pf0vf2", "pf0vf2"}, {"eth7", "eth7", "eth7", "old"}} {
		of := map[string]string{"eth5": "dpdk-0/net1", "eth6": "dpdk-1/net1", "eth7": "dpdk-0/net2", "pf0vf2": "", "eth4": ""} // pf0vf2 represents another host's VF
		switch {
		case names[0] == "eth4":
			of["eth4"] = "batch-7/net1"
		case names[3] == "old":
			of["old"] = "dpdk-0/net2"
		}
		host, err := txtar.ParseFile(nodeHost)
		difftest.Must(t, err)
		for n := range host.Files {
			for vf, name := range names {
				if f := &host.Files[n]; bytes.Contains(f.Data, fmt.Appendf(nil, `"pci-address": "0000:03:00.%d"`, 2+vf)) {
					f.Data = recorded.ReplaceAll(f.Data, fmt.Appendf(nil, `"representor-device": "%s"`, name))
				}
			}
		}
		path := filepath.Join(t.TempDir(), "host.txtar")
		difftest.Must(t, os.WriteFile(path, txtar.Format(host), 0o600))
		for name, want := range of {
			for _, command := range []string{"list", "check"} {
				var list struct {
					Attachments []struct{ Pod, Interface string }
				}
				o, got := ctl("--capture", path, command, name, "-o", "json"), ""
				_ = json.Unmarshal([]byte(o.stdout), &list) // nothing is printed if nobody has it
				for _, a := range list.Attachments {
					got += a.Pod + "/" + a.Interface
				}
				if got != want || (want == "") != (o.exit == clierr.Blind) {
					t.Errorf("recorded %v: %s %s finds %q, not %q: %s", names, command, name, got, want, o.stderr)
				}
			}
		}
	}
}
