package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/journal"
)

// State is what has become of an attachment.
type State string

// The states.
const (
	OK          State = "ok"           // the network namespace, the device and the files are there
	Adding      State = "adding"       // ADD has not ended yet, or was killed
	FileMissing State = "file missing" // the device-info file or the CDI spec that ADD wrote is gone
	DeviceLost  State = "device gone"  // the device that ADD found is not on the node
	NetnsGone   State = "netns gone"   // the network namespace is gone, and no DEL has come, or it failed
	Orphan      State = "orphan"       // of an earlier boot
	Corrupt     State = "corrupt"      // the journal's entry cannot be read
	Newer       State = "newer format" // it was written by a newer devinfo
	Unknown     State = "unknown"      // it cannot be read

	// Of attachments by DRA only, as cni-dra-driver's records have them: an Auditor knows
	// none of them.
	Prepared  State = "prepared"  // its pod has no sandbox yet
	Deleting  State = "deleting"  // DEL runs, or has failed and will be tried again; or its device is being restored
	Abandoned State = "abandoned" // DEL failed so often that nothing waits for it any more
)

// States are all states.
func States() []State {
	return []State{OK, Adding, FileMissing, DeviceLost, NetnsGone, Orphan, Corrupt, Newer, Unknown, Prepared, Deleting, Abandoned}
}

// stateKinds are the states of attachments of which nothing is left to compare.
var stateKinds = map[State]Kind{NetnsGone: ContainerGone, Orphan: ContainerGone, Corrupt: EntryInvalid, Newer: EntryNewer}

// State returns the state of an attachment and, unless it is OK, the reason in words. It
// takes what [journal.Journal.Get] returned; e is nil only with an error. The gravest state
// wins: an orphan may also lack everything else.
func (a *Auditor) State(e *journal.Entry, err error) (state State, why string) {
	switch {
	case as[*journal.FormatError](err):
		return Newer, err.Error()
	case as[*store.CorruptError](err), errors.Is(err, store.ErrTooLarge):
		return Corrupt, err.Error()
	case err != nil:
		return Unknown, err.Error()
	}
	if end, why, err := a.Ended(e); err != nil {
		return Unknown, err.Error()
	} else if end != "" {
		return end, why
	}
	if !e.Complete {
		return Adding, "ADD runs, or was killed; DEL, or the next ADD, cleans up after it"
	}
	if there, err := a.deviceThere(e.Device); err != nil {
		return Unknown, err.Error()
	} else if !there {
		return DeviceLost, fmt.Sprintf("%s device %s is not on the node", e.Device.Type, e.Device.ID)
	}
	if e.Wrote && !a.fileThere(e.Dir, e.File) {
		return FileMissing, e.Path() + " is gone"
	}
	if e.CDI.File != "" && !a.fileThere(e.CDI.Dir, e.CDI.File) {
		return FileMissing, "CDI spec " + filepath.Join(e.CDI.Dir, e.CDI.File) + " is gone"
	}
	return OK, ""
}

// Ended reports whether nobody can use an attachment any more: the state is then Orphan or
// NetnsGone, with the reason in words; otherwise it is "". An error means that it cannot be
// told. This is the one rule by which leftovers may be removed without a DEL.
func (a *Auditor) Ended(e *journal.Entry) (end State, why string, err error) {
	if !e.OfBoot(a.BootID) {
		return Orphan, "of an earlier boot", nil
	}
	if e.Netns == "" {
		return "", "", nil
	}
	gone, err := a.NetnsGone(e.Netns)
	if err != nil || !gone {
		return "", "", err
	}
	return NetnsGone, "network namespace " + e.Netns + " is gone", nil
}

// deviceThere is true of a socket, whose path is a container's.
func (a *Auditor) deviceThere(d journal.Device) (there bool, err error) {
	if !named(devinfo.Type(d.Type)) || d.ID == "" {
		return true, nil
	}
	if address, err := pci.Parse(d.ID); err == nil {
		_, there, err := a.Finder.Sys.PCI(address)
		return there, err
	}
	_, there, err = a.Finder.Sys.VDPA(d.ID)
	return there, err
}

// fileThere takes what cannot be looked at for a file that is there.
func (a *Auditor) fileThere(dir, file string) bool {
	_, err := a.Dir(dir).Read(file)
	return !errors.Is(err, fs.ErrNotExist)
}
