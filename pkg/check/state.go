package check

import (
	"errors"
	"fmt"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/journal"
)

// State is what has become of an attachment.
type State string

const (
	OK            State = "ok"             // the network namespace, the device and the files are there
	Adding        State = "adding"         // ADD has not ended yet, or was killed
	FileMissing   State = "file missing"   // the device-info file or the CDI spec that ADD wrote is gone
	BadFile       State = "file invalid"   // it is there, and is not what ADD can have written
	DeviceLost    State = "device gone"    // the device that ADD found is not on the node
	WrongDevice   State = "wrong device"   // the file is another device's, or the interface another one
	InterfaceLost State = "interface gone" // the interface is not in the network namespace
	Stale         State = "stale"          // the network namespace is gone, or it is of an earlier boot; no DEL has come, or it failed
	Corrupt       State = "corrupt"        // the journal's entry cannot be read
	Newer         State = "newer format"   // it was written by a newer devinfo
	Unknown       State = "unknown"        // it, or what is to be compared, cannot be read

	// Of attachments by DRA only, as cni-dra-driver's records have them: an Checker knows
	// none of them.
	Prepared  State = "prepared"  // its pod has no sandbox yet
	Deleting  State = "deleting"  // DEL runs, or has failed and will be tried again; or its device is being restored
	Undeleted State = "undeleted" // DEL failed so often that nothing waits for it any more
)

var overKinds = map[State]Kind{Stale: ContainerGone, Corrupt: EntryInvalid, Newer: EntryNewer, Adding: Unfinished}

// Over says what is wrong with an attachment of which nothing can be compared. Adding is wrong for
// one who has the entry locked: the ADD was killed.
func (s State) Over() (kind Kind, over bool) {
	kind, over = overKinds[s]
	return kind, over
}

// State returns the state of an attachment as far as it can be told without a comparison
// and, unless it is OK, the reason in words: [Checker.Check] has the whole. It takes what
// [journal.Journal.Get] returned; e is nil only with an error. The gravest state wins: what is
// stale may also lack everything else.
func (a *Checker) State(e *journal.Entry, err error) (state State, why string) {
	switch {
	case as[*journal.FormatError](err):
		return Newer, err.Error()
	case as[*store.CorruptError](err), errors.Is(err, store.ErrTooLarge):
		return Corrupt, err.Error()
	case err != nil:
		return Unknown, err.Error()
	}
	why, err = a.Ended(e)
	switch {
	case why != "":
		return Stale, why
	case !e.Complete: // also where it cannot be told whether it has ended: nothing is to be compared yet
		return Adding, "ADD runs, or was killed; " + Unfinished.Remedy()
	case err != nil:
		return Unknown, err.Error()
	}
	switch err := a.deviceThere(e.Device); {
	case as[*Error](err):
		return DeviceLost, err.Error()
	case err != nil:
		return Unknown, err.Error()
	}
	return OK, ""
}

// Ended says why an attachment is stale, so that nobody can use it any more; "" = it is not. An error
// means that it cannot be told. This is the one rule by which leftovers may be removed without a DEL.
func (a *Checker) Ended(e *journal.Entry) (why string, err error) {
	if !e.OfBoot(a.BootID) {
		return "recorded before the last boot", nil
	}
	if e.Netns == "" {
		return "", nil
	}
	gone, err := a.NetnsGone(e.Netns)
	if err != nil || !gone {
		return "", err
	}
	return "network namespace " + e.Netns + " is gone", nil
}

// deviceThere is an [*Error] if the device is not on the node. A socket's path is a container's.
func (a *Checker) deviceThere(d journal.Identity) error {
	bus := d.Type
	if !named(devinfo.Type(bus)) || d.ID == "" {
		return nil
	}
	if _, err := pci.Parse(d.ID); err == nil { // also of a vDPA device whose name is not known
		bus = string(devinfo.TypePCI)
	}
	there, err := a.Finder.Sys.HasDevice(bus, d.ID)
	if err == nil && !there {
		err = &Error{DeviceGone, fmt.Errorf("%s device %s is not on the node", d.Type, d.ID)}
	}
	return err
}
