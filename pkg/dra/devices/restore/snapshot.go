package restore

import (
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	"devinfo-cni.io/pkg/host/settings"
)

// Snapshot is the state of a device before an ADD, and its wanted state after the DEL. It is valid during the boot in
// which it was taken.
type Snapshot struct {
	Version int `json:"version,omitempty"` // see version

	// The caller sets these from the rule of the device.
	Reset    ResetMode `json:"reset,omitempty"`
	Withhold bool      `json:"withhold,omitempty"` // no difference is harmless

	Bus    string `json:"bus"`             // bus of the device: "pci", "auxiliary", "vdpa", ...
	Device string `json:"device"`          // name on the bus
	Inode  uint64 `json:"inode,omitempty"` // inode of its directory in /sys; 0 = unknown

	Port     int    `json:"port,omitempty"`     // dev_port of the interface
	PortName string `json:"portName,omitempty"` // phys_port_name

	// Only for a PCI function:
	Driver   string `json:"driver,omitempty"`   // "" = unbound
	Override string `json:"override,omitempty"` // driver_override

	// Only if the node has its interface:
	IfName string `json:"ifName,omitempty"`
	MTU    int    `json:"mtu,omitempty"`
	MAC    string `json:"mac,omitempty"` // "" = its MAC does not have six bytes

	Settings settings.Dump `json:"dump,omitempty"`     // nil = not recorded, or in Older
	Older    *older        `json:"settings,omitempty"` // in notes of version 0 only

	VF *settings.VF `json:"vf,omitempty"` // settings of a VF on its PF; nil = the driver of the PF does not report them
}

// version is that of the snapshots that this build takes. 0 is any earlier one: see wanted.
const version = 1

// ResetMode is whether the driver is bound again after a pod, although it has not changed. It ends what refers to the
// interface: interfaces on it, BPF links, neighbours, and what no dump shows, such as ntuple rules.
type ResetMode string

const (
	Never  ResetMode = "never"  // also ""
	Auto   ResetMode = "auto"   // for the drivers that tests have bound again
	Always ResetMode = "always" // for each PCI function
)

// IsReplaced reports whether now is a different device at the same place, because VFs were created again or a card
// was exchanged.
func (s Snapshot) IsReplaced(now Snapshot) bool {
	return s.Inode != 0 && now.Inode != 0 && s.Inode != now.Inode
}

// wanted returns the settings to restore. A snapshot of an earlier build may lack some; then those that harm the next pod
// get the value of a new interface, and the others stay as they are.
func (f Snapshot) wanted(now settings.Dump) settings.Dump {
	if f.Settings != nil {
		return maps.Clone(f.Settings)
	}
	want := now.Harmless()
	if f.Older != nil {
		f.Older.into(want)
	}
	return want
}

// older are the settings in the snapshots of builds before the dump.
type older struct {
	AltNames []string `json:"altNames"`
	Alias    string   `json:"alias"`
	Group    uint32   `json:"group"`
	TxQueue  uint32   `json:"txQueueLen"`
	Promisc  bool     `json:"promisc"`
	AllMulti bool     `json:"allMulti"`
}

func (o older) into(want settings.Dump) {
	set := func(name, value string, is bool) {
		if delete(want, name); is {
			want[name] = value
		}
	}
	set(settings.AltNames, strings.Join(o.AltNames, " "), len(o.AltNames) > 0)
	set("alias", hex.EncodeToString([]byte(o.Alias)), o.Alias != "")
	for name, n := range map[string]uint32{"group": o.Group, "txqueuelen": o.TxQueue} {
		set(name, settings.Number(n), want[name] != "") // each interface of the kernel has them
	}
	set("promisc", "on", o.Promisc)
	set("allmulti", "on", o.AllMulti)
}

// Mismatch is the error for settings that could not be restored.
type Mismatch struct {
	Settings []string // see [SettingNames] and [settings.Dump]
	Values   []string // "gso_max_size is 2000, was 65536", of the settings of the interface
	Err      error    // reason of the failure

	// Harmless is true if the next pod may have the device, because none of the settings is in [SettingNames].
	Harmless bool
}

func (m *Mismatch) Error() string {
	text := strings.Join(m.Settings, ", ") + ": different from before the ADD"
	if m.Values != nil {
		text += " (" + strings.Join(m.Values, "; ") + ")"
	}
	return fmt.Sprintf("%s: %v", text, m.Err)
}

func (m *Mismatch) Unwrap() error { return m.Err }
