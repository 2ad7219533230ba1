package doctor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/finding"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/host/nic"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/test/difftest"
)

// vf returns a VF without a holder.
func vf(function string, s settings.VF) doctor.VF {
	pf := settings.VFRecord{PF: "0000:03:00.0", PFName: "ens1", VF: s}
	return doctor.VF{Address: "0000:03:00." + function, PFDriver: "ice", Known: true, VFRecord: pf}
}

// by changes the driver of a VF's PF.
func by(pfDriver string, v doctor.VF) doctor.VF {
	v.PFDriver = pfDriver
	return v
}

// of changes the PF of a VF.
func of(pf string, v doctor.VF) doctor.VF {
	v.PF = pf
	return v
}

func held(function, pod, claim, netns string) node.Attachment {
	is := node.Identity{Network: "net", ContainerID: "c", Interface: "net1", State: check.OK, Claim: strings.TrimPrefix(claim, "ns/")}
	is.Namespace, is.Pod, _ = strings.Cut(pod, "/")
	return node.Attachment{Identity: is, Has: []string{"0000:03:00." + function}, Netns: netns, Verdict: &node.Comparison{}}
}

// abandoned returns a claim that has a VF and that no driver manages.
func abandoned(netns string) node.ClaimLeases {
	return node.ClaimLeases{
		Claim: "ns/c", Has: []string{"0000:03:00.2"}, Devices: []string{"0000:03:00.2", "0000:03:00.0 (shared)"}, Of: &journal.Claim{Netns: netns}, Driver: "/claims/u1.json",
	}
}

// unleased returns an attachment without a device of its own.
func unleased(state check.State, why string, verdict node.Comparison) node.Attachment {
	a := held("2", "ns/b", "", "/n2")
	a.Has, a.State, a.Why, a.Verdict = nil, state, why, &verdict
	return a
}

// locked returns the facts of a node where sriov-cni has given a VF to a network namespace.
func locked(netns string, gone bool) *doctor.Live {
	return live(func(l *doctor.Live) {
		l.Locks = []journal.SRIOVLock{{Device: "0000:03:00.2", Netns: netns, Gone: gone}}
	})
}

// given returns the facts of a node whose kubelet has given the VF to a pod.
func given(pod string) *doctor.Live {
	return live(func(l *doctor.Live) {
		l.Devices = []podresources.Given{{Pod: pod, Resource: "example.com/vf", Device: "0000:03:00.2"}}
	})
}

func live(change func(l *doctor.Live)) *doctor.Live {
	build := build.Info{Revision: "0123456789abcdef"}
	l := &doctor.Live{NRI: true, Plugins: map[string]doctor.Plugin{"devinfo": {Path: "/opt/cni/bin/devinfo", Build: build}}, PluginDirs: []string{"/opt/cni/bin"}, Networks: []doctor.Network{{Path: "/etc/cni/net.d/10.conflist"}}}
	if change != nil {
		change(l)
	}
	return l
}

// Each case is a node with one defect. want lists all findings except those of checks without a problem.
func TestDefectsAreReportedWithRemedy(t *testing.T) {
	const mac = "02:00:00:00:00:01"
	one, aside := []doctor.VF{vf("2", settings.VF{})}, abandoned("/n1")
	aside.Aside = "/claims/u1.json.corrupt"
	for name, test := range map[string]struct {
		facts doctor.Evidence
		want  []string // level, check, text
	}{
		"nothing": {doctor.Evidence{}, nil},
		"two pods": {doctor.Evidence{VFs: one, Attachments: []node.Attachment{held("2", "ns/a", "", "/n1"), held("2", "ns/b", "", "/n2")}},
			[]string{"error holders 0000:03:00.2: held by pod ns/a (CNI) and by pod ns/b (CNI)"}},
		"one pod, twice":        {doctor.Evidence{VFs: one, Attachments: []node.Attachment{held("2", "ns/a", "", "/n1"), held("2", "ns/a", "", "/n1")}}, nil},
		"a pod without a lease": {doctor.Evidence{VFs: one, Attachments: []node.Attachment{held("2", "ns/a", "", "/n1"), unleased(check.OK, "", node.Comparison{})}}, nil},
		"a wrong attachment": {doctor.Evidence{Attachments: []node.Attachment{unleased(check.DeviceLost, "it is gone", node.Comparison{Problem: "it is gone", Remedy: "delete the pod"})}},
			[]string{"error attachments pod ns/b, net/c/net1: DeviceGone: it is gone"}},
		"a changed attachment": {doctor.Evidence{Attachments: []node.Attachment{unleased(check.OK, "", node.Comparison{Warnings: []string{"rdma", "more"}})}},
			[]string{"warning attachments pod ns/b, net/c/net1: changed: rdma"}},
		"an attachment without a device": {doctor.Evidence{Attachments: []node.Attachment{unleased(check.OK, "it found none", node.Comparison{})}},
			[]string{"info attachments pod ns/b, net/c/net1: at ADD: it found none"}},
		"an attachment that is being made, and one out of sight": {doctor.Evidence{Attachments: []node.Attachment{unleased(check.Adding, "", node.Comparison{Warnings: []string{"x"}}), unleased(check.Unknown, "not root", node.Comparison{})}},
			[]string{"unknown attachments pod ns/b, net/c/net1: Unknown: not root", "info attachments pod ns/b, net/c/net1: Adding"}},
		"a claim without its driver": {doctor.Evidence{VFs: []doctor.VF{vf("2", settings.VF{VLAN: 7})}, Unrecorded: []node.ClaimLeases{abandoned("/n1")}},
			[]string{"warning leases claim ns/c: has leases of 0000:03:00.2, 0000:03:00.0 (shared), but cni-dra-driver has no record of the claim in /claims/u1.json"}},
		"a claim without its driver, and a lock": {doctor.Evidence{VFs: one, Unrecorded: []node.ClaimLeases{abandoned("/n1")}, Live: locked("/n2", false)}, []string{"error holders 0000:03:00.2: held by claim ns/c for /n1 and by sriov-cni's lock for /n2",
			"warning leases claim ns/c: has leases of 0000:03:00.2, 0000:03:00.0 (shared), but cni-dra-driver has no record of the claim in /claims/u1.json"}},
		"a claim of an unknown namespace, and a lock": {doctor.Evidence{VFs: one, Unrecorded: []node.ClaimLeases{abandoned("")}, Live: locked("/n2", false)},
			[]string{"warning leases claim ns/c: has leases of 0000:03:00.2, 0000:03:00.0 (shared), but cni-dra-driver has no record of the claim in /claims/u1.json"}},
		"two pods on a PF":               {doctor.Evidence{VFs: one, Attachments: []node.Attachment{held("0", "ns/a", "", "/n1"), held("0", "ns/b", "", "/n2")}}, nil},
		"device plugin and CNI, one pod": {doctor.Evidence{VFs: one, Attachments: []node.Attachment{held("2", "ns/a", "", "/n1")}, Live: given("ns/a")}, nil},
		"device plugin and CNI, two pods": {doctor.Evidence{VFs: one, Attachments: []node.Attachment{held("2", "ns/a", "", "/n1")}, Live: given("ns/b")},
			[]string{"error holders 0000:03:00.2: held by pod ns/a (CNI) and by pod ns/b (device plugin example.com/vf)"}},
		"device plugin and DRA": {doctor.Evidence{VFs: one, Attachments: []node.Attachment{held("2", "ns/a", "ns/c", "/n1")}, Live: given("ns/a")},
			[]string{"error holders 0000:03:00.2: held by pod ns/a (DRA) and by pod ns/a (device plugin example.com/vf)"}},
		"another's lock": {doctor.Evidence{VFs: one, Attachments: []node.Attachment{held("2", "ns/a", "", "/n1")}, Live: locked("/n2", false)},
			[]string{"error holders 0000:03:00.2: held by pod ns/a (CNI) and by sriov-cni's lock for /n2"}},
		"its own lock":       {doctor.Evidence{VFs: one, Attachments: []node.Attachment{held("2", "ns/a", "", "/n1")}, Live: locked("/n1", false)}, nil},
		"a lock of the dead": {doctor.Evidence{VFs: one, Attachments: []node.Attachment{held("2", "ns/a", "", "/n1")}, Live: locked("/n2", true)}, nil},
		"left trust and VLAN": {doctor.Evidence{VFs: []doctor.VF{by("mlx5_core", vf("3", settings.VF{VLAN: 7, Trust: true, MAC: mac}))}},
			[]string{"info leftovers 0000:03:00.3: no pod has it, and it has VLAN 7, trust on, unlike the free VFs beside it"}},
		"left VLAN, and the VF's own MAC": {doctor.Evidence{VFs: []doctor.VF{vf("3", settings.VF{VLAN: 7, MAC: mac})}},
			[]string{"info leftovers 0000:03:00.3: no pod has it, and it has VLAN 7, unlike the free VFs beside it"}},
		"settings of an owner": {doctor.Evidence{VFs: []doctor.VF{vf("2", settings.VF{VLAN: 7, MaxRate: 200}), vf("3", settings.VF{VLAN: 7, MaxRate: 200}), vf("4", settings.VF{VLAN: 7})}},
			[]string{"info leftovers 0000:03:00.4: no pod has it, and it has min_tx_rate 0 max_tx_rate 0, unlike the free VFs beside it"}},
		"settings of other PFs": {doctor.Evidence{VFs: []doctor.VF{vf("2", settings.VF{SpoofCheck: true}), of("0000:04:00.0", vf("3", settings.VF{}))}}, nil},
		"allocation of a lost device": {doctor.Evidence{GivenGone: []podresources.Given{{Pod: "ns/a", Resource: "example.com/vf", Device: "0000:00:15.0"}}},
			[]string{"error allocations 0000:00:15.0: pod ns/a has it from device plugin example.com/vf, but it is not on this node, so its next ADD fails"}},
		"no VLAN of mlx4":       {doctor.Evidence{VFs: []doctor.VF{by("mlx4_core", vf("3", settings.VF{VLAN: 4095, MAC: mac}))}}, nil},
		"MACs that the VFs set": {doctor.Evidence{VFs: []doctor.VF{vf("2", settings.VF{}), vf("3", settings.VF{MAC: mac})}}, nil},
		"left MAC": {doctor.Evidence{VFs: []doctor.VF{by("mlx5_core", vf("2", settings.VF{})), by("mlx5_core", vf("3", settings.VF{MAC: mac}))}},
			[]string{"info leftovers 0000:03:00.3: no pod has it, and it has MAC 02:00:00:00:00:01, unlike the free VFs beside it"}},
		"MACs for all":      {doctor.Evidence{VFs: []doctor.VF{vf("2", settings.VF{MAC: "02:00:00:00:00:02"}), vf("3", settings.VF{MAC: mac})}}, nil},
		"settings of a pod": {doctor.Evidence{VFs: []doctor.VF{vf("2", settings.VF{VLAN: 7, Trust: true})}, Attachments: []node.Attachment{held("2", "ns/a", "", "/n1")}}, nil},
		"same MAC": {doctor.Evidence{VFs: []doctor.VF{vf("2", settings.VF{MAC: mac}), vf("3", settings.VF{MAC: mac})}},
			[]string{"error addresses 0000:03:00.2 and 0000:03:00.3 have the same MAC, 02:00:00:00:00:01"}},
		"same MAC in a bond": {doctor.Evidence{VFs: []doctor.VF{vf("2", settings.VF{MAC: mac}), of("0000:04:00.0", vf("3", settings.VF{MAC: mac}))},
			Attachments: []node.Attachment{held("2", "ns/a", "", "/n1"), held("3", "ns/a", "", "/n1")}}, nil},
		"same MAC in a bond of one PF": {doctor.Evidence{VFs: []doctor.VF{vf("2", settings.VF{MAC: mac}), vf("3", settings.VF{MAC: mac})},
			Attachments: []node.Attachment{held("2", "ns/a", "", "/n1"), held("3", "ns/a", "", "/n1")}},
			[]string{"error addresses 0000:03:00.2 and 0000:03:00.3 have the same MAC, 02:00:00:00:00:01"}},
		"same MAC in two pods": {doctor.Evidence{VFs: []doctor.VF{vf("2", settings.VF{MAC: mac}), of("0000:04:00.0", vf("3", settings.VF{MAC: mac}))},
			Attachments: []node.Attachment{held("2", "ns/a", "", "/n1"), held("3", "ns/b", "", "/n2")}},
			[]string{"error addresses 0000:03:00.2 and 0000:03:00.3 have the same MAC, 02:00:00:00:00:01"}},
		"same MAC on two PFs, free": {doctor.Evidence{VFs: []doctor.VF{vf("2", settings.VF{MAC: mac}), of("0000:04:00.0", vf("3", settings.VF{MAC: mac}))}},
			[]string{"error addresses 0000:03:00.2 and 0000:03:00.3 have the same MAC, 02:00:00:00:00:01"}},
		"PFs out of sight": {doctor.Evidence{VFs: []doctor.VF{{Address: "0000:03:00.2"}}},
			[]string{"unknown leftovers the PFs do not report the settings of their VFs"}},
		"no plugin": {doctor.Evidence{Live: live(func(l *doctor.Live) { l.Plugins = nil })},
			[]string{"error plugin the devinfo plugin is not in /opt/cni/bin"}},
		"broken plugin": {doctor.Evidence{Live: live(func(l *doctor.Live) {
			l.Plugins["devinfo"] = doctor.Plugin{Path: "/opt/cni/bin/devinfo", Problem: "exec format error"}
		})}, []string{"error plugin /opt/cni/bin/devinfo: the devinfo plugin does not run: exec format error"}},
		"other plugin": {doctor.Evidence{Asking: build.Info{Version: "v0.2.0", Revision: "fedcba9876543210", Dirty: true}},
			[]string{"warning plugin /opt/cni/bin/devinfo is unknown version, commit 0123456789ab, and this program is v0.2.0, commit fedcba987654 (dirty)"}},
		"node settings": {doctor.Evidence{NodeFile: "node settings /etc/x: logLevel: \"loud\""}, []string{`error settings node settings /etc/x: logLevel: "loud"`}},
		"network": {doctor.Evidence{Live: live(func(l *doctor.Live) {
			l.Networks[0].Findings = []validate.Finding{{Path: "plugins[1].strict", Rule: "must be true or false"}, {Path: "plugins[1].strct", Rule: "the key is not known", Warning: true}}
		})}, []string{"error networks /etc/cni/net.d/10.conflist: plugins[1].strict: must be true or false",
			"warning networks /etc/cni/net.d/10.conflist: plugins[1].strct: the key is not known"}},
		"directory": {doctor.Evidence{Live: live(func(l *doctor.Live) { l.Missing = map[string]string{"/opt/cni/bin": "no such file"} })}, []string{"warning directories /opt/cni/bin: cannot be used: no such file"}},
		"a full list of directories": {doctor.Evidence{CDIDir: "/run/cdi", Live: live(func(l *doctor.Live) {
			l.ReadOnly, l.NFS, l.Exposed = []string{"/state", "/run/cdi"}, true, "state directory: x has mode 0777"
		})}, []string{"error directories /state: is on a read-only file system, so every ADD fails", "error directories stateDir is on NFS, where files cannot be locked, so every DEL fails",
			"error directories state directory: x has mode 0777: ADD and GC fail, and DEL ignores the journal", `warning directories /run/cdi: is on a read-only file system, so ADD of networks with "cdi" fails`}},
		"a full disk": {doctor.Evidence{CDIDir: "/run/cdi", Live: live(func(l *doctor.Live) {
			l.Unwritable = map[string]string{"/state": "not writable: no space left on device", "/run/cdi": "not a directory"}
		})}, []string{"error directories /state: cannot be used, so every ADD fails: not writable: no space left on device", `warning directories /run/cdi: cannot be used, so ADD of networks with "cdi" fails: not a directory`}},
		"CDI elsewhere": {doctor.Evidence{CDIDir: "/run/mine"}, []string{"warning directories /run/mine: is not a directory where container runtimes look for CDI specs by default"}},
		"no NRI": {doctor.Evidence{DRA: true, Live: live(func(l *doctor.Live) { l.NRI = false })},
			[]string{"error runtime the container runtime has no NRI socket, and cni-dra-driver needs it"}},
		"no NRI needed": {doctor.Evidence{Live: live(func(l *doctor.Live) { l.NRI = false })},
			[]string{"info runtime the container runtime has no NRI socket; cni-dra-driver and the injection of devinfo-agent need it"}},
		"a damaged record": {doctor.Evidence{VFs: one, Unrecorded: []node.ClaimLeases{aside}},
			[]string{"warning leases claim ns/c: has leases of 0000:03:00.2, 0000:03:00.0 (shared), but cni-dra-driver could not read its record and has set it aside as /claims/u1.json.corrupt"}},
		"a claim whose driver is away": {doctor.Evidence{Attachments: []node.Attachment{held("2", "ns/a", "ns/c", "/n1")}, Live: live(func(l *doctor.Live) { l.DriverAway = true })},
			[]string{"error attachments cni-dra-driver does not run on this node: claims of its pods cannot be unprepared, so that these pods stay in Terminating"}},
		"no claim, and a driver that is away": {doctor.Evidence{Attachments: []node.Attachment{held("2", "ns/a", "", "/n1")}, Live: live(func(l *doctor.Live) { l.DriverAway = true })}, nil},
		"an offer":                            {doctor.Evidence{Offer: &state.Offer{Devices: []state.Offered{{Name: "a"}, {Name: "b"}, {Name: "c", Why: "x"}}}}, []string{"ok offer 2 devices offered by the rules"}},
		"invalid rules":                       {doctor.Evidence{Offer: &state.Offer{Problem: "x"}}, []string{"error offer cni-dra-driver offers nothing: x"}},
		"an offer without a driver":           {doctor.Evidence{Offer: &state.Offer{}, Live: live(func(l *doctor.Live) { l.DriverAway = true })}, []string{"info offer " + doctor.DriverAway}},
		"rules that select nothing": {doctor.Evidence{Offer: &state.Offer{Rules: "/r", Unmatched: []state.UnmatchedRule{{Rule: "devices[0]", Why: "no eth7"}}}},
			[]string{"info offer /r: devices[0] selects no device of this node: no eth7"}},
		"cards":                 {doctor.Evidence{Cards: []nic.Card{{Text: "E810"}, {Text: "X710", OnCard: true}}}, []string{"info cards how devinfo was tried on E810", "info cards how devinfo was tried on X710"}},
		"no network of devinfo": {doctor.Evidence{Live: live(func(l *doctor.Live) { l.Networks = nil })}, []string{"info networks no network configuration on this node contains devinfo"}},
		"no configurations":     {doctor.Evidence{Live: live(func(l *doctor.Live) { l.NoConf = "/x" })}, []string{"unknown networks /x: no such file or directory"}},
		"blind": {doctor.Evidence{OfferError: errors.New("o"), Unseen: 2, Live: live(func(l *doctor.Live) { l.Notes = []doctor.Note{{Text: "x", Remedy: "y"}} })},
			[]string{"unknown sight o", "unknown sight cni-dra-driver's records of 2 claims with leases are not visible here", "unknown sight x"}},
	} {
		f := test.facts
		if f.Live == nil {
			f.Live = live(nil)
		}
		var got []string
		for _, a := range doctor.Diagnose(&f) {
			if a.Level != finding.OK || a.Check == "offer" {
				got = append(got, string(a.Level)+" "+a.Check+" "+a.Text)
			}
			if a.Check == "addresses" && a.Level == finding.OK && name == "PFs out of sight" {
				t.Error(a.Text)
			}
			if (a.Level == finding.Error || a.Level == finding.Warning) && a.Remedy == "" {
				t.Errorf("%s: no remedy for %q", name, a.Text)
			}
		}
		difftest.Same(t, name, got, test.want)
	}
}

// What the remedy for a difference sets is all that differs: afterwards there is no finding.
func TestRemedyOfLeftoversEndsTheDifference(t *testing.T) {
	undo := map[string]func(*doctor.VF){
		"vlan 0": func(v *doctor.VF) { v.VLAN = 0 }, "trust off": func(v *doctor.VF) { v.Trust = false }, "spoofchk off": func(v *doctor.VF) { v.SpoofCheck = false },
		"state auto": func(v *doctor.VF) { v.LinkState = 0 }, "min_tx_rate 0": func(v *doctor.VF) { v.MinRate = 0 }, "max_tx_rate 0": func(v *doctor.VF) { v.MaxRate = 0 },
		"mac 00:00:00:00:00:00": func(v *doctor.VF) { v.MAC = "" },
	}
	for _, driver := range []string{"mlx5_core", "hns3", "mlx4_core", "ice", "i40e", ""} {
		for _, s := range []settings.VF{{VLAN: 7}, {VLAN: 4095, Trust: true}, {MaxRate: 200}, {LinkState: 1}, {SpoofCheck: true}, {VLAN: 7, Trust: true, MAC: "02:00:00:00:00:01", MinRate: 1}} {
			vfs := []doctor.VF{by(driver, vf("2", settings.VF{})), by(driver, vf("3", settings.VF{})), by(driver, vf("4", s))}
			remedy := func() (text string) {
				for _, a := range doctor.Diagnose(&doctor.Evidence{VFs: vfs, Live: live(nil)}) {
					if a.Rule == "differs" {
						text += a.Remedy
					}
				}
				return text
			}
			_, command, differs := strings.Cut(remedy(), "ip link set ens1 vf 0 ")
			difftest.Same(t, fmt.Sprintf("%s, %+v: it differs", driver, s), differs, true)
			for change := range slices.Chunk(strings.Fields(command), 2) {
				before, words := vfs[2], strings.Join(change, " ")
				if undo[words](&vfs[2]); vfs[2] == before && !strings.Contains(words, "_tx_rate") { // the two rates are set together
					t.Errorf("%s, %+v: %s changes nothing", driver, s, words)
				}
			}
			difftest.Same(t, fmt.Sprintf("%s, %+v: what is left to do", driver, s), remedy(), "")
		}
	}
}
