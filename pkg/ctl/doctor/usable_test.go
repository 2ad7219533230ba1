package doctor_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/finding"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// free is a node with a device of each kind, which no pod has.
func free(kind hostdev.Kind) (e *doctor.Evidence, d *hostdev.Device) {
	pf := &hostdev.Device{Ref: hostdev.Ref{Kind: hostdev.PF, PCI: "0000:03:00.0"}, Driver: "mlx5_core"}
	d = &hostdev.Device{Parent: pf, Driver: "mlx5_core", Number: new(1)}
	switch d.Kind = kind; kind {
	case hostdev.VF:
		d.PCI = "0000:03:00.3"
	case hostdev.SF:
		d.Aux, d.Driver = "mlx5_core.sf.4", ""
	default:
		d.VDPA, d.Driver = "vdpa0", "vhost"
	}
	for _, of := range []*hostdev.Device{pf, d} {
		of.At = of.Place()
	}
	if kind != hostdev.VDPA {
		d.Ports, d.IfName = []sysfs.Port{{Name: "eth3"}}, "eth3"
	}
	e = &doctor.Evidence{Devices: []*hostdev.Device{pf, d}, Live: live(func(l *doctor.Live) {
		l.Kubelet = true
		l.Conditions = []settings.Condition{{Device: d.At.Name, Name: d.IfName, Dump: settings.Dump{"multicast": "on"}}}
	})}
	if kind == hostdev.VF {
		e.VFs = []doctor.VF{vf("3", settings.VF{})}
	}
	return e, d
}

// breaks are what makes the next pod's use fail, each with the rule that doctor names.
var breaks = map[string]func(e *doctor.Evidence, d *hostdev.Device){
	"noarp": func(e *doctor.Evidence, _ *hostdev.Device) { // of the first port, not of the other one
		e.Live.Conditions[0].Dump["noarp"] = "on"
		e.Live.Conditions = append(e.Live.Conditions, settings.Condition{Device: e.Live.Conditions[0].Device, Name: "eth3p1", Dump: settings.Dump{"multicast": "on"}})
	},
	"multicast":   func(e *doctor.Evidence, _ *hostdev.Device) { delete(e.Live.Conditions[0].Dump, "multicast") },
	"xdp":         func(e *doctor.Evidence, _ *hostdev.Device) { e.Live.Conditions[0].Dump["xdp"] = "program 7" },
	"tcx-ingress": func(e *doctor.Evidence, _ *hostdev.Device) { e.Live.Conditions[0].Dump["tcx-ingress"] = "programs [7]" },
	"altnames":    func(e *doctor.Evidence, _ *hostdev.Device) { e.Live.Conditions[0].Dump["altnames"] = "enp3s0f0v1 net1" },
	"stacked": func(e *doctor.Evidence, _ *hostdev.Device) {
		e.Live.Conditions[0].Uppers = []string{"macvlan spy in /proc/7/ns/net"}
	},
	"mac": func(e *doctor.Evidence, _ *hostdev.Device) { e.Live.Conditions[0].Zero = true },
	"interface": func(e *doctor.Evidence, d *hostdev.Device) {
		d.Ports, d.IfName, e.Live.Conditions = nil, "", nil
	},
	"driver":        func(_ *doctor.Evidence, d *hostdev.Device) { d.Driver, d.Ports = "", nil },
	"vf-link-state": func(e *doctor.Evidence, _ *hostdev.Device) { e.VFs[0].LinkState = nl.IFLA_VF_LINK_STATE_DISABLE },
	"guid": func(_ *doctor.Evidence, d *hostdev.Device) {
		d.RDMA = sysfs.RDMA{Devices: []string{"mlx5_3"}, LinkLayer: "InfiniBand", GUID: "0000:0000:0000:0000"}
	},
}

// takes are how a pod has a device.
var takes = map[string]func(e *doctor.Evidence, name string){
	"a lease": func(e *doctor.Evidence, name string) {
		e.Attachments = []node.Attachment{{Identity: node.Identity{Network: "net", State: check.OK}, Has: []string{name}, Verdict: &node.Comparison{}}}
	},
	"a name": func(e *doctor.Evidence, name string) {
		e.Attachments = []node.Attachment{{Identity: node.Identity{Network: "net", State: check.OK}, Device: name, Verdict: &node.Comparison{}}}
	},
	"a device plugin": func(e *doctor.Evidence, name string) {
		e.Live.Devices = []podresources.Given{{Pod: "ns/a", Resource: "example.com/vf", Device: name}}
	},
	"a lock": func(e *doctor.Evidence, name string) {
		e.Live.Locks = []journal.SRIOVLock{{Device: name, Netns: "/n1"}}
	},
	"a claim": func(e *doctor.Evidence, name string) {
		e.Unrecorded = []node.ClaimLeases{{Has: []string{name}, Of: &journal.Claim{}}}
	},
}

func problems(e *doctor.Evidence) (list []doctor.Finding) {
	for _, f := range doctor.Diagnose(e) {
		if f.Check == "usable" && f.Level != finding.OK {
			list = append(list, f)
		}
	}
	return list
}

// Whatever would make the next ADD or its frames fail is a problem of a free device, and none while a pod has the device.
func TestFreeDeviceThatNextPodCannotUseIsAProblem(t *testing.T) {
	for _, kind := range []hostdev.Kind{hostdev.VF, hostdev.SF, hostdev.VDPA} {
		if e, _ := free(kind); problems(e) != nil {
			t.Errorf("a usable %s: %+v", kind, problems(e))
		}
		for rule, spoil := range breaks {
			ofVF, ofInterface := rule == "vf-link-state" || rule == "guid", rule != "driver"
			if kind != hostdev.VF && ofVF || kind == hostdev.VDPA && ofInterface || kind == hostdev.SF && rule == "driver" {
				continue
			}
			e, d := free(kind)
			spoil(e, d)
			got := problems(e)
			if len(got) != 1 || got[0].Level != finding.Warning || got[0].Remedy == "" || !strings.HasPrefix(got[0].Text, d.At.Name+": ") || !strings.HasSuffix(got[0].Text, "(rule "+rule+")") {
				t.Errorf("%s, %s: %+v", kind, rule, got)
			}
			if faults := e.Unusable(d.At.Name); len(faults) != 1 || faults[0].Rule != rule {
				t.Errorf("%s, %s: inspect says %+v", kind, rule, faults)
			}
			if len(d.Ports) > 0 && len(e.Unusable(d.Ports[0].Name)) != 1 || e.Unusable("eth9") != nil {
				t.Errorf("%s, %s: inspect of an interface: %+v", kind, rule, e.Unusable("eth3"))
			}
			for how, take := range takes {
				e, d := free(kind)
				spoil(e, d)
				if take(e, d.At.Name); problems(e) != nil || e.Unusable(d.At.Name) != nil {
					t.Errorf("%s, %s, in a pod by %s: %+v", kind, rule, how, problems(e))
				}
			}
		}
	}
}

// An interface that is not on the host may be in a namespace that nobody but its owner knows.
func TestInterfaceOfFreeDeviceIsSought(t *testing.T) {
	const usable, unknown = "1 free device, usable", "0 devices, usable unless pods have them" // the VF, or what is on it
	elsewhere := []settings.Condition{{Device: "0000:03:00.3", Elsewhere: "net1 in /proc/7/ns/net"}, {Device: "0000:03:00.4", Elsewhere: "net9 in /proc/9/ns/net"}}
	for name, test := range map[string]struct {
		want   string // rule, else the text
		change func(e *doctor.Evidence, d *hostdev.Device)
	}{
		"nowhere":                     {"lost-interface", func(*doctor.Evidence, *hostdev.Device) {}},
		"in a container":              {"interface-elsewhere", func(e *doctor.Evidence, _ *hostdev.Device) { e.Live.Conditions = elsewhere }},
		"another's is there":          {"lost-interface", func(e *doctor.Evidence, _ *hostdev.Device) { e.Live.Conditions = elsewhere[1:] }},
		"namespaces are invisible":    {"interface-unseen", func(e *doctor.Evidence, _ *hostdev.Device) { e.Live.Blind = true }},
		"pods are unknown":            {unknown, func(e *doctor.Evidence, _ *hostdev.Device) { e.Live.Blind, e.Live.Kubelet = true, false }},
		"the kubelet does not answer": {"lost-interface", func(e *doctor.Evidence, _ *hostdev.Device) { e.Live.Kubelet = false }},
		"in a container, pods unknown": {unknown, func(e *doctor.Evidence, _ *hostdev.Device) {
			e.Live.Kubelet, e.Live.Conditions = false, elsewhere
		}},
		"a VM has it": {usable, func(_ *doctor.Evidence, d *hostdev.Device) { d.Driver = "vfio-pci" }},
		"it has a vDPA device": {usable, func(e *doctor.Evidence, d *hostdev.Device) {
			e.Devices = append(e.Devices, vdpa(d, "vhost"))
		}},
		"a pod has the VF below a vDPA device": {"0 free devices, usable", func(e *doctor.Evidence, d *hostdev.Device) {
			e.Devices = append(e.Devices, vdpa(d, ""))
			takes["a lease"](e, d.At.Name)
		}},
		"a pod has the vDPA device": {"0 free devices, usable", func(e *doctor.Evidence, d *hostdev.Device) {
			e.Devices = append(e.Devices, vdpa(d, "vhost"))
			takes["a lease"](e, "vdpa0")
		}},
		"a pod has the vDPA device of a VF whose link is down": {"0 free devices, usable", func(e *doctor.Evidence, d *hostdev.Device) {
			e.Devices, e.VFs[0].LinkState = append(e.Devices, vdpa(d, "vhost")), nl.IFLA_VF_LINK_STATE_DISABLE
			takes["a lease"](e, "vdpa0")
		}},
		"a pod shares the PF":      {"lost-interface", func(e *doctor.Evidence, _ *hostdev.Device) { takes["a name"](e, "0000:03:00.0") }},
		"it has RDMA devices only": {usable, func(_ *doctor.Evidence, d *hostdev.Device) { d.RDMA.Devices = []string{"mlx5_3"} }},
		"interfaces cannot be read": {usable + ", as far as their settings could be read", func(e *doctor.Evidence, d *hostdev.Device) {
			d.Ports, d.IfName, e.Live.Blind = []sysfs.Port{{Name: "eth3"}}, "eth3", true
		}},
		"a soft-RDMA device is on it": {"soft-rdma", func(e *doctor.Evidence, d *hostdev.Device) {
			e.RDMA, d.Ports, d.IfName = []sysfs.RDMADevice{{Name: "siw0"}, {Name: "rxe0", Netdev: "eth3"}, {Name: "mlx5_3", Device: "x", Netdev: "eth3"}}, []sysfs.Port{{Name: "eth3"}}, "eth3"
		}},
		"one is on no interface": {"lost-interface", func(e *doctor.Evidence, _ *hostdev.Device) { e.RDMA = []sysfs.RDMADevice{{Name: "siw0"}} }},
		"erdma": {usable + ", as far as their settings could be read", func(e *doctor.Evidence, d *hostdev.Device) {
			e.RDMA, d.Ports, d.IfName, d.RDMA.Devices = []sysfs.RDMADevice{{Name: "erdma_0", Netdev: "eth3"}, {Name: "mlx5_3", Device: "x", Netdev: "eth3"}}, []sysfs.Port{{Name: "eth3"}}, "eth3", []string{"erdma_0"}
		}},
		"the capture has no live facts": {"", func(e *doctor.Evidence, _ *hostdev.Device) { e.Live = nil }},
	} {
		e, d := free(hostdev.VF)
		breaks["interface"](e, d)
		test.change(e, d)
		got := ""
		for _, f := range doctor.Diagnose(e) {
			if f.Check == "usable" {
				got += cmp.Or(f.Rule, f.Text)
			}
			if f.Rule == "interface-elsewhere" {
				difftest.Contains(t, f.Text, elsewhere[0].Elsewhere)
			}
		}
		difftest.Same(t, name, got, test.want)
		difftest.Same(t, name+": inspect says it", e.Unusable(d.At.Name) != nil, strings.Contains(got, "interface-") || got == "lost-interface")
	}
}

func vdpa(below *hostdev.Device, driver string) *hostdev.Device {
	d := &hostdev.Device{Ref: hostdev.Ref{Kind: hostdev.VDPA, VDPA: "vdpa0"}, Parent: below, Driver: driver}
	d.At = d.Place()
	return d
}

func TestLastPodOfFreeDeviceIsNamed(t *testing.T) {
	for want, change := range map[string]func(e *doctor.Evidence){
		"; the last pod known is ns/a ": func(e *doctor.Evidence) {
			for pod, device := range map[string]string{"a": "0000:03:00.3", "b": "0000:03:00.4"} {
				e.Attachments = append(e.Attachments, node.Attachment{Identity: node.Identity{Namespace: "ns", Pod: pod, State: check.Stale}, Device: device, Verdict: &node.Comparison{}})
			}
		},
		"; sriov-cni last gave it to /n1 ": func(e *doctor.Evidence) {
			e.Live.Locks = []journal.SRIOVLock{{Device: "0000:03:00.3", Netns: "/n1", Gone: true}, {Device: "0000:03:00.4", Netns: "/n0", Gone: true}}
		},
	} {
		e, d := free(hostdev.VF)
		breaks["noarp"](e, d)
		change(e)
		if got := problems(e); len(got) != 1 || !strings.Contains(got[0].Text, want) {
			t.Errorf("%+v", got)
		}
	}
}
