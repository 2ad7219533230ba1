package doctor_test

import (
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
			if why := e.Unusable(d.At.Name); len(why) != 1 || len(got) == 1 && !strings.HasSuffix(why[0], "("+got[0].Remedy+")") {
				t.Errorf("%s, %s: inspect says %q", kind, rule, why)
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
