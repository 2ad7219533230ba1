package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/store"
)

// claimed returns the attachments in cni-dra-driver's records. It takes no lock, because the driver writes
// each file atomically. An unreadable record is listed under the claim's UID.
func (n *Node) claimed() (list []Attachment, err error) {
	dir := store.Private(n.Path(n.ClaimDir))
	names, err := dir.Names()
	if err != nil {
		return nil, n.unread("claims", "the records in "+n.ClaimDir, err)
	}
	for _, name := range names {
		uid, ok := state.RecordOf(name)
		if !ok {
			continue
		}
		text, err := dir.Read(name)
		if errors.Is(err, fs.ErrNotExist) { // removed after Names had listed it
			continue
		} else if err != nil {
			return nil, n.unread("claims", "the records in "+n.ClaimDir, err)
		}
		more, err := n.recorded(uid, filepath.Join(n.ClaimDir, name), text)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

func (n *Node) recorded(uid, path string, text []byte) (list []Attachment, err error) {
	claim, err := state.Parse(path, text)
	switch {
	case errors.As(err, new(*state.SchemaError)):
		return []Attachment{{Identity: Identity{Claim: uid, State: check.Newer}, Why: err.Error(), record: path}}, nil
	case err != nil:
		return []Attachment{{Identity: Identity{Claim: uid, State: check.Corrupt}, Why: err.Error(), record: path}}, nil
	}
	for _, at := range slices.Concat(claim.Attachments, claim.Undeleted) {
		a := n.claimAttachment(claim, at)
		a.record = path
		if err := n.leasedByClaim(&a, string(claim.UID), at.Part()); err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

func (n *Node) claimAttachment(c *state.Claim, at state.Attachment) Attachment {
	a := Attachment{
		Identity: Identity{Namespace: c.Namespace, Claim: c.Name, Network: at.Network, ContainerID: at.Sandbox, Interface: at.IfName},
		Netns:    at.Netns, File: at.InfoFile, node: at.NodeDevice,
	}
	_, name := at.Args.Name()
	a.Pod = cmp.Or(name, c.Pod.Name) // another pod may use the claim now
	if info, err := devinfo.Parse(at.Info); err == nil {
		a.Type, a.Device, a.Facts = string(info.Type), discovery.Identity(info), factsOf(at.Info)
	}
	switch at.Phase {
	case state.Prepared:
		a.State, a.Why = check.Prepared, at.Error
		if place, ok := a.Place(); ok {
			a.Type, a.Device = place.Bus, place.Name
		}
	case state.Adding:
		a.State, a.Why = check.Adding, at.Error
	case state.Deleting, state.Restoring:
		a.State, a.Why = check.Deleting, at.DelError
	case state.Undeleted:
		a.State, a.Why = check.Undeleted, fmt.Sprintf("given up after %d tries: %s", at.Tries, at.DelError)
	default:
		e := &journal.Entry{Key: a.Key(), BootID: at.BootID, Netns: at.Netns, Args: pod.ClaimArg + "=" + c.Name, Complete: true, Device: journal.Identity{Type: a.Type, ID: a.Device}}
		a.State, a.Why = n.checker.State(e, nil)
	}
	return a
}

// compareRecord is like compare, for an attachment that is only in a claim's record.
func (a *Attachment) compareRecord(c *Comparison) {
	switch a.State {
	case check.OK:
		c.NotCompared = []string{"the results of the plugins, which only their own CHECK can compare"}
	case check.Prepared, check.Adding:
		if a.Why != "" {
			c.Warnings = []string{a.Why}
		}
	case check.Unknown:
		c.NotCompared = []string{a.Why}
	default:
		if a.Why != "" { // without an error DEL still runs, which is not a problem
			uid, _ := state.RecordOf(a.record)
			c.Problem, c.Remedy = a.Why, strings.ReplaceAll(cmp.Or(claimRemedies[a.State], check.DeviceLost.Remedy()), "{uid}", uid)
		}
	}
}

// claimRemedies are the remedies for attachments of claims. {uid} is the claim's.
var claimRemedies = map[check.State]string{
	check.Undeleted: "correct the cause of the error, and cni-dra-driver runs DEL again every hour, and at its next start; " +
		"or clean up by hand, and run in its pod: cni-dra-driver clear {uid}",
	check.Deleting: "correct the cause of the error, and cni-dra-driver runs DEL again by itself",
	check.Stale:    "check that cni-dra-driver runs on this node: it runs DEL when the pod is deleted",
	check.Newer:    "run the cni-dra-driver that wrote it, or a newer one",
	check.Corrupt:  "restart cni-dra-driver, which renames the record and prepares the claim again",
}

// DriverAway reports whether cni-dra-driver has a state directory on this node, but does not run: no process accepts
// connections of the kubelet. It is false for a capture, and if the connection fails for another reason.
func (n *Node) DriverAway() bool {
	if n.Root != "" || !n.FileThere(n.ClaimDir) {
		return false
	}
	conn, err := net.DialTimeout("unix", filepath.Join(filepath.Dir(n.ClaimDir), "dra.sock"), time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}

// Offer returns the node's devices that cni-dra-driver offers; nil if it offers none. If Problem is set, the
// rules are invalid, and the driver does not start.
func (n *Node) Offer() (*state.Offer, error) {
	o, err := state.ReadOffer(n.Path(n.ClaimDir))
	if err = n.unread("offered devices", n.ClaimDir, err); err != nil && !errors.Is(err, fs.ErrPermission) {
		err = clierr.For(err, RenewOffer)
	}
	return o, err
}

// RenewOffer is the remedy for offered devices that cannot be read.
const RenewOffer = "restart cni-dra-driver, which records them again"

// OfferedDevice is a device that a rule of cni-dra-driver names.
type OfferedDevice struct {
	state.Offered
	Where   string   `json:"where"`             // PCI address, auxiliary or vDPA device, or interface
	GivenTo []string `json:"givenTo,omitempty"` // holders of the device: pods, else short container IDs, else claims
}

// Offered returns the devices of an offer that rules name, sorted by name.
func (n *Node) Offered(o *state.Offer) ([]OfferedDevice, error) {
	list := []OfferedDevice{}
	if o == nil {
		return list, nil
	}
	claimed, err := n.claimed()
	if err != nil {
		return nil, err
	}
	given := map[hostdev.Place][]string{}
	for _, a := range claimed {
		if at, ok := a.Place(); ok {
			given[at] = append(given[at], a.Holder())
		}
	}
	for _, d := range o.Devices {
		at := d.Place()
		list = append(list, OfferedDevice{d, at.Name, given[at]})
	}
	return list, nil
}

// Place returns the location of a claim's device; ok is false if it is not a device of the node.
func (a *Attachment) Place() (at hostdev.Place, ok bool) {
	if a.node == nil {
		return at, false
	}
	return a.node.Place(), true
}
