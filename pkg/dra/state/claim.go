// Package state keeps a record of each resource claim on disk, from Prepare to Unprepare: what is
// to be attached, what was, and what is owed. Before a CNI plugin is run the record says so:
// whatever dies, the next start knows which networks may hold something of the claim.
//
// Each claim has a file, named after its UID, which only the agent may write. The files are
// private: they hold configurations as executed, which may have secrets.
package state

import (
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/pod"
)

// Schema is the version of the files' format.
const Schema = 1

// Phase is how far an attachment is.
type Phase string

// The phases, in the order in which an attachment passes through them.
const (
	Prepared  Phase = "Prepared"  // nothing of it exists
	Adding    Phase = "Adding"    // ADD is about to run, runs, has failed, or was interrupted
	Added     Phase = "Added"     // ADD succeeded
	Deleting  Phase = "Deleting"  // DEL is about to run, runs, has failed, or was interrupted
	Restoring Phase = "Restoring" // DEL succeeded, and its device is not restored yet
	Undeleted Phase = "Undeleted" // DEL or restoring has failed so often that it was given up
)

// Phases are all phases, in that order.
func Phases() []Phase { return []Phase{Prepared, Adding, Added, Deleting, Restoring, Undeleted} }

// Claim is the record of a resource claim that is prepared on this node, or of what is left of
// one: see [Claim.Unprepared]. To change a record that others may read, change a [Claim.Clone].
type Claim struct {
	Schema      int          `json:"schema"` // set by Put
	Namespace   string       `json:"namespace"`
	Name        string       `json:"name"`
	UID         types.UID    `json:"uid"`
	Pod         Pod          `json:"pod,omitzero"`          // that the claim belongs to; empty once the claim is unprepared
	Shared      bool         `json:"shared,omitempty"`      // several pods may name it: it is not made from a template
	Attachments []Attachment `json:"attachments,omitempty"` // what is allocated, in any phase but Undeleted
	Undeleted   []Attachment `json:"undeleted,omitempty"`   // earlier attachments: the claim goes on, or ends, without them
	StatusOwed  bool         `json:"statusOwed,omitempty"`  // the API server has not taken the latest status
}

// Pod is a Kubernetes pod.
type Pod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// LogValue has logs name the pod as Kubernetes does: namespace/name.
func (p Pod) LogValue() slog.Value { return slog.StringValue(p.Namespace + "/" + p.Name) }

// Attachment is one device of a claim, which is one interface of the pod in one network.
type Attachment struct {
	Request    string      `json:"request"`         // as allocated: with the subrequest, if there is one
	Index      int         `json:"index,omitempty"` // of the device among those of the request
	Pool       string      `json:"pool"`
	Device     string      `json:"device"`
	ShareID    *types.UID  `json:"shareID,omitempty"`
	NodeDevice *NodeDevice `json:"node,omitempty"`   // nil = the device stands for networks of software
	Driver     string      `json:"driver,omitempty"` // that the device is bound to while the sandbox has it; "" = as it is

	// These four are empty for a device without a network: see Bare.
	Network    string          `json:"network"`        // "name" of the network configuration
	CNIVersion string          `json:"cniVersion"`     // of the network configuration
	IfName     string          `json:"ifName"`         // CNI_IFNAME
	List       json.RawMessage `json:"list"`           // network configuration list, as executed; null = see Bare
	Late       bool            `json:"late,omitempty"` // the sandbox does not wait for this network, only the containers that list it
	// Capabilities are the capability arguments that the claim gives, by their names.
	Capabilities map[string]json.RawMessage `json:"capabilities,omitempty"`

	Phase Phase  `json:"phase"`
	Error string `json:"error,omitempty"` // why it is not attached, "" after a success
	Ready Ready  `json:"ready,omitzero"`  // condition Ready, as it is or should be in the API

	Execution // of the current sandbox; empty while Prepared
}

// Ready is the condition of that type.
type Ready struct {
	Status metav1.ConditionStatus `json:"status,omitempty"` // "" = never said
	Since  metav1.Time            `json:"since,omitzero"`   // of the last change of Status
}

// Set changes the condition; Since only if it is a change.
func (r *Ready) Set(status metav1.ConditionStatus, now time.Time) {
	if r.Status != status {
		*r = Ready{status, metav1.NewTime(now.UTC().Truncate(time.Second))} // as the API has it
	}
}

// Execution is one ADD, as its DEL has to repeat it, and what it gave.
type Execution struct {
	Sandbox  string   `json:"sandbox,omitempty"`  // CNI_CONTAINERID
	Netns    string   `json:"netns,omitempty"`    // CNI_NETNS
	BootID   string   `json:"bootID,omitempty"`   // the boot in which Netns is a path to something
	Args     pod.Args `json:"args,omitempty"`     // CNI_ARGS
	InfoFile string   `json:"infoFile,omitempty"` // capability argument CNIDeviceInfoFile, a host path

	Note json.RawMessage `json:"note,omitempty"` // what package devices restores the device by after the DEL; nil = nothing
	Lost bool            `json:"lost,omitempty"` // when its DEL was given up, its device was gone: one in its place may be offered

	Result   json.RawMessage `json:"result,omitempty"` // of ADD, in CNIVersion
	Info     json.RawMessage `json:"info,omitempty"`   // the device-info file after ADD; of a device without a network, what it says itself
	Metadata *Metadata       `json:"metadata,omitempty"`

	Tries    int    `json:"tries,omitempty"`    // of DEL, or of restoring, that have failed
	DelError string `json:"delError,omitempty"` // of the last of them; "" while a device is awaited that may be on its way

	GivenUp metav1.Time `json:"givenUp,omitzero"` // when its DEL was given up
}

// Metadata is what the pod reads of its device, once ADD has succeeded.
type Metadata struct {
	Attributes  map[string]resourceapi.DeviceAttribute `json:"attributes,omitempty"`
	NetworkData *resourceapi.NetworkDeviceData         `json:"networkData,omitempty"`
}

// PCI is the address of the device behind the interface; "" = none, or it is not known.
func (e *Execution) PCI() string {
	info, err := devinfo.Parse(e.Info)
	if err != nil || info.PCI == nil {
		return ""
	}
	return string(info.PCI.Address)
}

// Bare reports whether the claim has no network for the device: it is made ready for the
// containers, and somebody else attaches it. The phase stays Prepared.
func (a *Attachment) Bare() bool { return len(a.List) == 0 || string(a.List) == "null" }

// Part tells the attachment's leases from those of the claim's others: they are of its device, or
// of its share of one. The claim may get another device while it still owes this one.
func (a *Attachment) Part() string {
	switch {
	case a.Bare():
		return ""
	case a.ShareID != nil:
		return a.Device + "=" + a.IfName
	}
	return a.Device
}

// Owes reports whether a DEL is owed, or restoring the device.
func (a *Attachment) Owes() bool { return a.Phase != Prepared }

// Exclusive reports whether the scheduler allocates the device to one claim at a time.
func (a *Attachment) Exclusive() bool { return a.ShareID == nil }

// Withheld reports whether no other claim may get the device, because its last DEL or restoring has failed.
func (a *Attachment) Withheld() bool {
	return a.Tries > 0 && a.DelError != "" && a.Exclusive() && !a.Lost
}

// Reset makes the attachment what it was after Prepare; why is the error to keep.
func (a *Attachment) Reset(why string) {
	a.Phase, a.Error, a.Execution = Prepared, why, Execution{}
}

// Unprepared reports whether the claim was unprepared and only undeleted attachments remain in the record.
func (c *Claim) Unprepared() bool { return len(c.Attachments) == 0 && len(c.Undeleted) > 0 }

// Owes reports whether anything is owed for an attachment whose DEL was not given up.
func (c *Claim) Owes() bool {
	return slices.ContainsFunc(c.Attachments, func(a Attachment) bool { return a.Owes() })
}

// Clone is a copy whose attachments may be changed, but not what their fields point to.
func (c *Claim) Clone() *Claim {
	d := *c
	d.Attachments, d.Undeleted = slices.Clone(c.Attachments), slices.Clone(c.Undeleted)
	return &d
}

// NodeDevice is one of the node's own devices, as it was when its claim was prepared: of a device
// in a pod the node tells little.
type NodeDevice struct {
	hostdev.Ref
	Published resourceapi.Device `json:"published"` // as it was offered
}

// Shared reports whether pods may have the device together.
func (d *NodeDevice) Shared() bool {
	return d.Published.AllowMultipleAllocations != nil && *d.Published.AllowMultipleAllocations
}
