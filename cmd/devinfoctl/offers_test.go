package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/ctl/remedy"
	"devinfo-cni.io/pkg/dra/state"
)

// offering is the captured node with files, as a rule in cni-dra-driver's state directory.
func offering(t *testing.T, files map[string]string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/node.txtar")
	must(t, err)
	for name, data := range files {
		if !strings.HasPrefix(name, "/") {
			name = state.DefaultDir + "/" + name
		}
		text = append(text, "-- root"+name+" --\n"+data+"\n"...)
	}
	file := filepath.Join(t.TempDir(), "node.txtar")
	must(t, os.WriteFile(file, text, 0o600))
	return file
}

const (
	anOffer = `{"rules": "/etc/devices.yaml", "devices": [
		{"name": "auxx-mlx5-5fcore-2esf-2e4", "kind": "sf", "aux": "mlx5_core.sf.4", "as": "exclusive"},
		{"name": "net-br0", "kind": "bridge", "ifName": "br0", "as": "shared"},
		{"name": "pci-0000-03-00-0", "kind": "pf", "pci": "0000:03:00.0", "ifName": "p0", "as": "shared"},
		{"name": "pci-0000-03-00-2", "kind": "vf", "pci": "0000:03:00.2", "as": "exclusive", "why": "pod shop/web-7 has it from device plugin example.com/vf"},
		{"name": "pci-0000-03-00-5", "kind": "vf", "pci": "0000:03:00.5", "as": "exclusive", "resourceName": "example.com/dpdk"}]}`
	ofSF = `{"schema": 1, "namespace": "shop", "name": "sf", "uid": "u1", "pod": {"namespace": "shop", "name": "web-0", "uid": "p"},
		"attachments": [{"request": "r", "pool": "n", "device": "auxx-mlx5-5fcore-2esf-2e4", "node": {"kind": "sf", "aux": "mlx5_core.sf.4", "published": {"name": "x"}},
			"network": "blue", "ifName": "net1", "phase": "Prepared", "list": {}}]}`
	ofBridge = `{"schema": 1, "namespace": "shop", "name": "lan", "uid": "u2", "pod": {"namespace": "shop", "name": "web-1", "uid": "q"},
		"attachments": [{"request": "r", "pool": "n", "device": "net-br0", "node": {"kind": "bridge", "ifName": "br0", "published": {"name": "x", "allowMultipleAllocations": true}},
			"network": "lan", "ifName": "net1", "phase": "Prepared", "list": {}}]}`
	ofMultus = `{"schema": 1, "namespace": "shop", "name": "dpdk", "uid": "u3", "pod": {"namespace": "shop", "name": "web-2", "uid": "r"},
		"attachments": [{"request": "r", "pool": "n", "device": "pci-0000-03-00-5", "node": {"kind": "vf", "pci": "0000:03:00.5", "published": {"name": "x"}}, "phase": "Prepared"}]}`
)

// Which device is published as what, and which claim and pod have it: by a lease, but for the
// bridge, of which there are none.
func TestTopologyShowsWhatIsOfferedAndWhoHasIt(t *testing.T) {
	host := offering(t, map[string]string{state.OfferFile: anOffer, "u1.json": ofSF, "u2.json": ofBridge, "u3.json": ofMultus,
		"/var/lib/cni/devinfo/claims/u3":                                               `{"format": 3, "namespace": "shop", "name": "dpdk", "uid": "u3", "pods": ["r"], "leases": [{"id": "pci-0000:03:00.5", "mode": "exclusive"}]}`,
		"/var/lib/cni/devinfo/leases/device/pci-0000:03:00.5/u3 -> ../../../claims/u3": "",
		"/var/lib/cni/devinfo/claims/u1=auxx-mlx5-5fcore-2esf-2e4":                     `{"format": 3, "namespace": "shop", "name": "sf", "uid": "u1", "part": "auxx-mlx5-5fcore-2esf-2e4", "pods": ["p"], "leases": [{"id": "auxiliary-mlx5_core.sf.4", "mode": "exclusive"}]}`,
		"/var/lib/cni/devinfo/leases/device/auxiliary-mlx5_core.sf.4/u1=auxx-mlx5-5fcore-2esf-2e4 -> ../../../claims/u1=auxx-mlx5-5fcore-2esf-2e4": "",
	})
	for _, scrub := range []bool{false, true} {
		want := []string{
			"0000:03:00.0  PF, driver mlx5_core, switchdev, 4 of 8 VFs, interface p0, RDMA mlx5_0, represents other hosts' functions by pf0hpf pf0vf0 pf0vf1 pf0vf2 pf0vf3, shared pci-0000-03-00-0",
			"├─ 0000:03:00.2  VF 0, driver mlx5_core, interface enp3s0f0v0, RDMA mlx5_2, representor eth4, not offered: pod shop/web-7 has it from device plugin example.com/vf",
			"├─ 0000:03:00.5  VF 3, driver vfio-pci, representor eth7, exclusive pci-0000-03-00-5, example.com/dpdk",
			"│  └─ held by shop/web-2, claim shop/dpdk",
			"└─ mlx5_core.sf.4  SF 88, interface enp3s0f0s88, RDMA mlx5_7, representor en3f0pf0sf88, exclusive auxx-mlx5-5fcore-2esf-2e4",
			"   └─ held by shop/web-0 net1 (blue), claim shop/sf: prepared",
			"br0  bond or bridge, shared net-br0",
			"└─ shared by shop/web-1 net1 (lan), claim shop/lan: prepared",
		}
		if scrub {
			public := filepath.Join(t.TempDir(), "public.txtar")
			if o := ctl("--host", host, "capture", "--scrub", "-o", public); o.exit != 0 {
				t.Fatal(o.stderr)
			}
			host = public
		}
		o := ctl("--host", host, "topology")
		if o.exit != 0 || o.stderr != "" {
			t.Fatalf("%+v", o)
		}
		if scrub { // pods and claims have other names
			if strings.Contains(o.stdout, "shop") || strings.Count(o.stdout, ", claim ") != 3 || strings.Count(o.stdout, "held by ") != 5 || !strings.Contains(o.stdout, "has it from device plugin") {
				t.Errorf("scrubbed:\n%s", o.stdout)
			}
			continue
		}
		var got []string
		for line := range strings.Lines(o.stdout) {
			if line = strings.TrimSuffix(line, "\n"); strings.Contains(line, "shared") || strings.Contains(line, "exclusive") || strings.Contains(line, "claim") || strings.Contains(line, "not offered") {
				got = append(got, line)
			}
		}
		equal(t, "topology", got, want)
	}
}

func TestOfferedSaysToWhomDevicesAreGivenAndWhyOthersAreNot(t *testing.T) {
	host := offering(t, map[string]string{state.OfferFile: anOffer, "u1.json": ofSF, "u2.json": ofBridge})
	want := `DEVICE                     KIND    WHERE           AS         GIVEN TO    WHY NOT
auxx-mlx5-5fcore-2esf-2e4  sf      mlx5_core.sf.4  exclusive  shop/web-0  -
net-br0                    bridge  br0             shared     shop/web-1  -
pci-0000-03-00-0           pf      0000:03:00.0    shared     -           -
pci-0000-03-00-2           vf      0000:03:00.2    no         -           pod shop/web-7 has it from device plugin example.com/vf
pci-0000-03-00-5           vf      0000:03:00.5    exclusive  -           -
`
	if o := ctl("--host", host, "offered"); o.stdout != want || o.exit != 0 {
		t.Errorf("%+v", o)
	}
	if o := ctl("--host", host, "offered", "-o", "json"); !strings.Contains(o.stdout, `"givenTo": [
        "shop/web-0"
      ]`) {
		t.Errorf("%+v", o)
	}
	if o := ctl("--host", offering(t, map[string]string{"u1.json": ofSF}), "offered"); o.stdout != "cni-dra-driver offers no devices of this node\n" {
		t.Errorf("%+v", o)
	}
	if o := ctl("--host", nodeHost, "offered"); !strings.HasPrefix(o.stdout, "there is no "+state.DefaultDir+": ") || !strings.Contains(o.stdout, "--dra-state-dir") {
		t.Errorf("%+v", o)
	}
}

// The kubelet may have its directory elsewhere, and the DaemonSet says where.
func TestTheStateOfTheDriverIsWhereTheEnvironmentSays(t *testing.T) {
	n := newNode(t)
	t.Setenv(state.DirVariable, n.claim(ofSF))
	if got := n.ctl("list"); !strings.Contains(got, "shop/web-0") {
		t.Errorf("got %s", got)
	}
}

// The scheduler says no more than that it cannot allocate.
func TestDoctorNamesTheRulesThatNameNoDevice(t *testing.T) {
	host := offering(t, map[string]string{state.OfferFile: `{"rules": "/etc/devices.yaml", "devices": [{"name": "pci-0000-03-00-5", "kind": "vf", "pci": "0000:03:00.5", "as": "exclusive"}],
		"idle": [{"names": "devices[0] (ifNames: eth4)", "why": "eth4 is a representor; the nearest is p0"}]}`})
	o := ctl("--host", host, "doctor")
	if want := "info     offer        /etc/devices.yaml: devices[0] (ifNames: eth4) names no device of this node: eth4 is a representor; the nearest is p0. Remedy: "; !strings.Contains(o.stdout, want) {
		t.Errorf("no %q in\n%s%s", want, o.stdout, o.stderr)
	}
	host = offering(t, map[string]string{state.OfferFile: `{"rules": "/etc/devices.yaml", "problem": "devices[0].as: it is missing"}`})
	if o := ctl("--host", host, "doctor"); !strings.Contains(o.stdout, "error    offer        cni-dra-driver: devices[0].as: it is missing. Remedy: ") {
		t.Errorf("%+v", o)
	}
}

func TestCheckSaysThatTheRulesAreInvalid(t *testing.T) {
	const problem = `--devices: /etc/devices.yaml: devices[0].as: it is missing`
	host := offering(t, map[string]string{state.OfferFile: `{"rules": "/etc/devices.yaml", "problem": "` + problem + `"}`})
	if o := ctl("--host", host, "check"); o.exit != remedy.Found || !strings.Contains(o.stderr, problem) || !strings.Contains(o.stderr, "correct the rules") {
		t.Errorf("%+v", o)
	}
	if o := ctl("--host", host, "check", "sriov-net/9faf"); strings.Contains(o.stderr, problem) {
		t.Errorf("of one attachment it says %s", o.stderr)
	}
	if o := ctl("--host", host, "topology"); o.exit != 0 || !strings.Contains(o.stderr, problem) {
		t.Errorf("%+v", o)
	}
	torn := offering(t, map[string]string{state.OfferFile: "{"}) // whose attachments are wrong besides
	if o := ctl("--host", torn, "check"); o.exit != remedy.Found || !strings.Contains(o.stderr, "warning: offered devices: ") {
		t.Errorf("torn: %+v", o)
	}
	hostile := offering(t, map[string]string{state.OfferFile: `{"rules": "/etc/devices.yaml", "problem": "\u001b]0;x\u0007"}`})
	for _, command := range []string{"check", "topology", "doctor"} {
		if o := ctl("--host", hostile, command); strings.Contains(o.stdout+o.stderr, "\x1b") {
			t.Errorf("%s writes an escape sequence: %q", command, o.stdout+o.stderr)
		}
	}
}
