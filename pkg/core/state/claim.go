// Package state keeps a record of each resource claim on disk, from Prepare to Unprepare. A record lists the devices
// to attach, the attached devices, and the pending DELs. It is written before a CNI plugin runs. After a crash, the
// driver therefore knows which networks may still hold resources of the claim.
//
// Each claim has a file that is named after its UID. Only the driver may write it; devinfoctl reads it. The files have
// mode 0600, because the configurations in them may contain secrets.
package state

import (
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/host/hostdev"
)

// Schema is the version of the file format.
const Schema = 1

// Phase is the progress of an attachment.
type Phase string

// The phases, in the order in which an attachment passes through them.
const (
	Prepared  Phase = "Prepared"  // ADD has not begun
	Adding    Phase = "Adding"    // ADD is about to run, runs, has failed, or was interrupted
	Added     Phase = "Added"     // ADD succeeded
	Deleting  Phase = "Deleting"  // DEL is about to run, runs, has failed, or was interrupted
	Restoring Phase = "Restoring" // DEL succeeded, but the device is not restored yet
	Undeleted Phase = "Undeleted" // DEL or restoring failed so often that it was given up
)

func Phases() []Phase { return []Phase{Prepared, Adding, Added, Deleting, Restoring, Undeleted} }

// Claim is the record of a claim that is prepared on this node. After Unprepare it may remain for undeleted
// attachments: see [Claim.Unprepared]. Records are shared, so change a [Claim.Clone] instead.
type Claim struct {
	Schema      int          `json:"schema"` // set by Put
	Namespace   string       `json:"namespace"`
	Name        string       `json:"name"`
	UID         string       `json:"uid"`
	Pod         Pod          `json:"pod,omitzero"`          // the pod that uses the claim; empty after Unprepare
	Order       int          `json:"order,omitempty"`       // higher for claims that were prepared later; the networks of a pod are attached in this order
	Shared      bool         `json:"shared,omitempty"`      // the claim is not made from a template, so several pods may use it
	PodClaim    string       `json:"podClaim,omitempty"`    // name of the claim in its pod, if it is made from a template
	Attachments []Attachment `json:"attachments,omitempty"` // allocated devices, in any phase except Undeleted
	Undeleted   []Attachment `json:"undeleted,omitempty"`   // earlier attachments in phase Undeleted
	StatusOwed  bool         `json:"statusOwed,omitempty"`  // the latest status has not reached the API server
	Parameters  string       `json:"parameters,omitempty"`  // digest of the allocation's parameters for the driver; "" = recorded by an older build
}

type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// LogValue logs the pod as namespace/name.
func (p Pod) LogValue() slog.Value { return slog.StringValue(p.Namespace + "/" + p.Name) }

// Attachment is an allocated device of a claim, which becomes one interface of the pod in one network.
type Attachment struct {
	Request    string      `json:"request"`         // request/subrequest, if it has a subrequest
	Index      int         `json:"index,omitempty"` // number of the device within the request
	Pool       string      `json:"pool"`
	Device     string      `json:"device"`
	ShareID    *string     `json:"shareID,omitempty"`
	NodeDevice *NodeDevice `json:"node,omitempty"`   // nil = the shared device for networks without hardware
	Driver     string      `json:"driver,omitempty"` // kernel driver of the device while the sandbox has it; "" = keep its driver

	// The next four are empty for a device without a network: see Bare.
	Network    string          `json:"network"`        // "name" of the network configuration
	CNIVersion string          `json:"cniVersion"`     // CNI version of the network configuration
	IfName     string          `json:"ifName"`         // CNI_IFNAME
	List       json.RawMessage `json:"list"`           // network configuration list as executed; null = see Bare
	Late       bool            `json:"late,omitempty"` // only the containers that list the claim wait for this network, not the sandbox
	// Capabilities are the capability arguments of the claim, by name.
	Capabilities map[string]json.RawMessage `json:"capabilities,omitempty"`

	Phase Phase  `json:"phase"`
	Error string `json:"error,omitempty"` // why the device is not attached; "" after a success
	Ready Ready  `json:"ready,omitzero"`  // condition Ready, as sent or to be sent to the API server

	Execution // ADD for the current sandbox; empty while Prepared
}

type Ready struct {
	Status string    `json:"status,omitempty"` // "" = not set yet
	Since  time.Time `json:"since,omitzero"`   // time of the last change of Status
}

// Set sets the status. It sets Since only if the status changes.
func (r *Ready) Set(status string, now time.Time) {
	if r.Status != status {
		*r = Ready{status, now.UTC().Truncate(time.Second)} // the precision of the API
	}
}

// Execution has the parameters and the results of an ADD. DEL gets the same parameters.
type Execution struct {
	Sandbox  string   `json:"sandbox,omitempty"`  // CNI_CONTAINERID
	Netns    string   `json:"netns,omitempty"`    // CNI_NETNS
	BootID   string   `json:"bootID,omitempty"`   // the boot in which Netns exists
	Args     pod.Args `json:"args,omitempty"`     // CNI_ARGS
	InfoFile string   `json:"infoFile,omitempty"` // capability argument CNIDeviceInfoFile, a path on the host

	Note json.RawMessage `json:"note,omitempty"` // settings to restore after DEL, written by package devices; nil = none
	Lost bool            `json:"lost,omitempty"` // the device did not exist when its DEL was given up, so a new device at its place may be offered

	Result   json.RawMessage `json:"result,omitempty"`   // result of ADD, in CNIVersion
	Info     json.RawMessage `json:"info,omitempty"`     // content of the device-info file after ADD; without a network, the content that the driver wrote itself
	Metadata json.RawMessage `json:"metadata,omitempty"` // metadata of the device for the pod, as package devices of the driver encodes it

	Tries    int    `json:"tries,omitempty"`    // failed attempts of DEL or of restoring
	DelError string `json:"delError,omitempty"` // error of the last attempt; "" while the driver waits for a device that may come back

	GivenUp time.Time `json:"givenUp,omitzero"` // time at which DEL was given up
}

// PCI returns the address of the device behind the interface; "" = no PCI device, or unknown.
func (e *Execution) PCI() string {
	info, err := devinfo.Parse(e.Info)
	if err != nil || info.PCI == nil {
		return ""
	}
	return info.PCI.Address
}

// Bare reports whether the claim has no network for the device. The driver prepares it for the containers, but does
// not attach it, for example because Multus does. The phase stays Prepared.
func (a *Attachment) Bare() bool { return len(a.List) == 0 || string(a.List) == "null" }

// Part returns the name of the attachment's lease record in the journal among the lease records of the claim. Each
// device, or share of a device, has a lease record of its own, because a claim may get another device while the DEL for
// this one is pending. All devices without a network have one lease record, "".
func (a *Attachment) Part() string {
	switch {
	case a.Bare():
		return ""
	case a.ShareID != nil:
		return a.Device + "=" + a.IfName
	}
	return a.Device
}

// Owes reports whether the attachment needs a DEL or a restore before it can be dropped, because its ADD may have run.
func (a *Attachment) Owes() bool { return a.Phase != Prepared }

// HasNetns reports whether the attachment's ADD may have run in a network namespace of this boot, and its DEL has not
// ended. The driver then holds the namespace open, even if its path no longer exists.
func (a *Attachment) HasNetns(bootID string) bool {
	return a.BootID == bootID && (a.Phase == Adding || a.Phase == Added || a.Phase == Deleting)
}

// Exclusive reports whether the scheduler allocates the device to one claim at a time.
func (a *Attachment) Exclusive() bool { return a.ShareID == nil }

// Withheld reports whether the device must not be allocated again, because its last DEL or restoring has failed.
func (a *Attachment) Withheld() bool {
	return a.Tries > 0 && a.DelError != "" && a.Exclusive() && !a.Lost
}

// Reset resets the attachment to its state after Prepare, with the error why.
func (a *Attachment) Reset(why string) {
	a.Phase, a.Error, a.Execution = Prepared, why, Execution{}
}

// Unprepared reports whether the claim was unprepared and the record only contains undeleted attachments.
func (c *Claim) Unprepared() bool { return len(c.Attachments) == 0 && len(c.Undeleted) > 0 }

// Owes reports whether any attachment still needs a DEL or a restore. Undeleted attachments do not count.
func (c *Claim) Owes() bool {
	return slices.ContainsFunc(c.Attachments, func(a Attachment) bool { return a.Owes() })
}

// Clone returns a copy of the record with its own attachments. Pointers and slices in the attachments are shared.
func (c *Claim) Clone() *Claim {
	d := *c
	d.Attachments, d.Undeleted = slices.Clone(c.Attachments), slices.Clone(c.Undeleted)
	return &d
}

// NodeDevice describes a device of the node at the time of Prepare. Later the device may be in a pod, where the node
// cannot read most of it.
type NodeDevice struct {
	hostdev.Ref
	Published json.RawMessage `json:"published"`          // the device in the ResourceSlice, as the Kubernetes API encodes it
	Reset     string          `json:"reset,omitempty"`    // of its rule; "" = recorded by an older build
	Withhold  bool            `json:"withhold,omitempty"` // its rule has onDifference: withhold
}

// Shared reports whether several pods may have the device at the same time.
func (d *NodeDevice) Shared() bool {
	var published struct{ AllowMultipleAllocations bool }
	return json.Unmarshal(d.Published, &published) == nil && published.AllowMultipleAllocations
}
