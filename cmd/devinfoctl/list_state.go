package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"devinfo-cni.io/pkg/audit"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/journal"
)

func colourOf(s audit.State) colour {
	switch s {
	case audit.OK:
		return green
	case audit.Adding, audit.Prepared, audit.Deleting, audit.Unknown:
		return yellow
	}
	return red
}

// attachment is one entry of the journal, or one of a claim's records, and what has
// become of it.
type attachment struct {
	Pod string `json:"pod,omitempty"` // namespace/name; "" = no Kubernetes asked for it
	journal.Key
	Type   string      `json:"type,omitempty"`
	Device string      `json:"device,omitempty"` // PCI address, vDPA device or socket
	File   string      `json:"file,omitempty"`   // path of the device-info file; "" = ADD wrote none
	CDI    string      `json:"cdi,omitempty"`    // the CDI device, vendor/class=name
	Netns  string      `json:"netns,omitempty"`
	Claim  string      `json:"claim,omitempty"` // namespace/name of the ResourceClaim; "" = not by DRA
	Since  *time.Time  `json:"since,omitempty"` // of ADD
	State  audit.State `json:"state"`
	Why    string      `json:"why,omitempty"` // more of a state that is not ok

	entry  *journal.Entry    // nil = it is not in the journal, or cannot be read
	unread error             // why it cannot be read
	record string            // path of the claim's record; "" = not by DRA
	node   *state.NodeDevice // the claim's device; nil = it is none of the node's own
}

// id tells an attachment from all others: what was only prepared has no container yet.
type id struct {
	journal.Key
	claim string
}

// String names the attachment in full: by the claim where it has no container yet, or
// where nothing else is known.
func (a attachment) String() string {
	switch {
	case a.Network == "":
		return "claim " + a.Claim
	case a.ContainerID == "":
		return a.Network + "/claim " + a.Claim + "/" + a.IfName
	}
	return a.Key.String()
}

// holder is the pod or, where none is known, the container or the claim.
func (a *attachment) holder() string {
	return cmp.Or(a.Pod, shortID(a.ContainerID), "claim "+a.Claim)
}

// podName is namespace/name; "" without a name.
func podName(namespace, name string) string {
	if name == "" {
		return ""
	}
	return namespace + "/" + name
}

func (a *attachment) id() id { return id{a.Key, a.Claim} }

// attachments reads every entry of the journal and every claim's record, sorted by pod.
func (h *host) attachments() ([]attachment, error) {
	list, err := h.journaled()
	if err != nil {
		return nil, err
	}
	claimed, err := h.claimed()
	if err != nil {
		return nil, err
	}
	own := list
	for _, c := range claimed {
		n := slices.IndexFunc(own, func(a attachment) bool { return a.Key == c.Key })
		if n < 0 {
			list = append(list, c)
			continue
		}
		list[n].Claim, list[n].record, list[n].node = c.Claim, c.record, c.node
		if c.State == audit.Abandoned || c.State == audit.Deleting {
			list[n].State, list[n].Why = c.State, c.Why
		}
	}
	slices.SortStableFunc(list, func(a, b attachment) int { return strings.Compare(a.Pod, b.Pod) })
	return list, nil
}

// journaled reads every entry of the journal, sorted by network.
func (h *host) journaled() ([]attachment, error) {
	keys, err := h.journal.All()
	if err != nil {
		return nil, h.journalError(err)
	}
	list := []attachment{}
	for _, key := range keys {
		a, ok, err := h.attachment(key)
		if err != nil {
			return nil, h.journalError(err)
		}
		if ok {
			list = append(list, a)
		}
	}
	return list, nil
}

func (h *host) journalError(err error) error {
	if err = fmt.Errorf("journal: %w", err); errors.Is(err, errPermission) {
		return blind(err, "run as root: the journal in "+h.node.StateDir+" is root's alone")
	}
	return err
}

// attachment reads one entry; ok is false if there is none.
func (h *host) attachment(key journal.Key) (a attachment, ok bool, err error) {
	e, err := h.journal.Get(key)
	if e == nil && err == nil { // dropped since All
		return a, false, nil
	}
	state, why := h.auditor.State(e, err)
	a = attachment{Key: key, State: state, Why: h.text(why), entry: e, unread: err}
	if e == nil {
		if state == audit.Unknown {
			return a, false, err
		}
		return a, true, nil
	}
	a.Pod = podName(e.PodName())
	a.Type, a.Device, a.CDI, a.Netns = e.Device.Type, e.Device.ID, e.CDI.Device, e.Netns
	if !e.Time.IsZero() {
		a.Since = &e.Time
	}
	if e.File != "" && (e.Wrote || !e.Complete) {
		a.File = e.Path()
	}
	return a, true, nil
}

// text is a message with its paths as they are on the host.
func (h *host) text(message string) string {
	if h.root == "" {
		return message
	}
	return strings.ReplaceAll(message, h.root+"/", "/")
}

// fileThere reports whether a file exists; one that we may not see counts as existing.
func (h *host) fileThere(path string) bool {
	_, err := os.Lstat(h.path(path))
	return !errors.Is(err, fs.ErrNotExist)
}
