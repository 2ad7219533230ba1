package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/pci"
)

// state is what has become of an attachment; listHelp says what each means.
type state string

const (
	stateOK          state = "ok"
	stateAdding      state = "adding"
	stateFileMissing state = "file missing"
	stateDeviceGone  state = "device gone"
	stateNetnsGone   state = "netns gone"
	stateOrphan      state = "orphan"
	stateCorrupt     state = "corrupt"
	stateUnknown     state = "unknown"
)

func (s state) colour() colour {
	switch s {
	case stateOK:
		return green
	case stateAdding, stateUnknown:
		return yellow
	}
	return red
}

// attachment is one entry of the journal, and what has become of it.
type attachment struct {
	journal.Key
	Type   string     `json:"type,omitempty"`
	Device string     `json:"device,omitempty"` // PCI address, vDPA device or socket
	File   string     `json:"file,omitempty"`   // path of the device-info file; "" = ADD wrote none
	CDI    string     `json:"cdi,omitempty"`    // the CDI device, vendor/class=name
	Netns  string     `json:"netns,omitempty"`
	Since  *time.Time `json:"since,omitempty"` // of ADD
	State  state      `json:"state"`
	Why    string     `json:"why,omitempty"` // more of a state that is not ok

	entry *journal.Entry // nil = corrupt
}

// attachments looks at every entry of the journal, sorted by network.
func (h *host) attachments() ([]attachment, error) {
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

// attachment looks at one entry; it is not ok if there is none.
func (h *host) attachment(key journal.Key) (a attachment, ok bool, err error) {
	a.Key = key
	e, err := h.journal.Get(key)
	var corrupt *store.CorruptError
	switch {
	case errors.As(err, &corrupt), errors.Is(err, store.ErrTooLarge):
		a.State, a.Why = stateCorrupt, h.text(err)
		return a, true, nil
	case err != nil || e == nil: // dropped since All
		return a, false, err
	}
	a.entry = e
	a.Type, a.Device, a.CDI, a.Netns = e.Device.Type, e.Device.ID, e.CDI.Device, e.Netns
	if !e.Time.IsZero() {
		a.Since = &e.Time
	}
	if e.File != "" && (e.Wrote || !e.Complete) {
		a.File = e.Path()
	}
	a.State, a.Why = h.stateOf(e)
	return a, true, nil
}

// text is an error's message in the paths of the host.
func (h *host) text(err error) string {
	if h.root == "" {
		return err.Error()
	}
	return strings.ReplaceAll(err.Error(), h.root+"/", "/")
}

// stateOf asks the gravest question first: what is an orphan may lack all the rest.
func (h *host) stateOf(e *journal.Entry) (state, string) {
	if why, err := h.orphaned(e); err != nil {
		return stateUnknown, h.text(err)
	} else if why != "" && e.BootID != h.bootID {
		return stateOrphan, why
	} else if why != "" {
		return stateNetnsGone, why
	}
	if !e.Complete {
		return stateAdding, "ADD runs, or was killed; DEL, or the next ADD, cleans up after it"
	}
	if there, err := h.deviceThere(e.Device); err != nil {
		return stateUnknown, h.text(err)
	} else if !there {
		return stateDeviceGone, fmt.Sprintf("%s device %s is not on the node", e.Device.Type, e.Device.ID)
	}
	if e.Wrote && !h.fileThere(e.Path()) {
		return stateFileMissing, e.Path() + " is gone"
	}
	if spec := filepath.Join(e.CDI.Dir, e.CDI.File); e.CDI.File != "" && !h.fileThere(spec) {
		return stateFileMissing, "CDI spec " + spec + " is gone"
	}
	return stateOK, ""
}

// orphaned says why nobody can use the attachment any more; "" = somebody may.
func (h *host) orphaned(e *journal.Entry) (why string, err error) {
	if h.bootID != "" && e.BootID != h.bootID {
		return "of an earlier boot", nil
	}
	if e.Netns == "" {
		return "", nil
	}
	there, err := h.netns(e.Netns)
	if err != nil && !there {
		return "", err
	}
	if there {
		return "", nil
	}
	if h.captured == "" && !link.NetnsNamesProcess(e.Netns) {
		if err := h.wouldBeSeen(e.Netns); err != nil {
			return "", err
		}
	}
	return "network namespace " + e.Netns + " is gone", nil
}

// wouldBeSeen is the error that a network namespace of the node would not be seen from
// here, if it were there.
func (h *host) wouldBeSeen(netns string) error {
	if dir := filepath.Dir(netns); !h.fileThere(dir) {
		return fmt.Errorf("%s, where ADD found the network namespace, is not there: in a container the node's cannot be seen", dir)
	}
	sees, err := link.SeesMounts(netns)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !sees {
		return fmt.Errorf("%s is a plain file, on which a network namespace may be mounted that is not seen from here: run devinfoctl on the node itself; "+
			"if it is, nothing uses the file, and it can be removed", netns)
	}
	return err
}

// deviceThere is true of a socket, whose path is a container's.
func (h *host) deviceThere(d journal.Device) (bool, error) {
	if d.Type != "pci" && d.Type != "vdpa" || d.ID == "" {
		return true, nil
	}
	if address, err := pci.Parse(d.ID); err == nil {
		_, ok, err := h.sys.PCI(address)
		return ok, err
	}
	_, ok, err := h.sys.VDPA(d.ID)
	return ok, err
}

// fileThere takes what may not be looked at for a file that is there.
func (h *host) fileThere(path string) bool {
	_, err := os.Lstat(h.path(path))
	return !errors.Is(err, fs.ErrNotExist)
}
