package journal

import (
	"encoding/json"
	"errors"
	"io/fs"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/devinfo/store"
)

// Holder is an attachment by a ResourceClaim that has a device of the node to itself. Its
// plugins need not include ours, so that the journal may have no [Entry] of it.
type Holder struct {
	Key
	Netns  string `json:"netns"`  // CNI_NETNS
	BootID string `json:"bootID"` // set by Hold
	Pod    string `json:"pod"`    // namespace/name
	Claim  string `json:"claim"`  // namespace/name
}

// Hold notes that h is about to have the device: a PCI address, an auxiliary name, or
// whatever a runtime passes as deviceID.
func (j *Journal) Hold(device string, h Holder) error {
	h.BootID = j.bootID
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return j.held.Write(spelled(device), append(data, '\n'))
}

// LetGo forgets that the attachment has the device. What another one has stays; what a power
// failure has torn tells of nobody.
func (j *Journal) LetGo(device string, k Key) error {
	h, err := j.HolderOf(device)
	torn := errors.As(err, new(*store.CorruptError))
	if !torn && (err != nil || h == nil || h.Key != k) {
		return err
	}
	return j.held.Remove(spelled(device))
}

// HolderOf says who has a device; nil = nobody by a claim, in this boot. The holder's
// network namespace may be gone: then it has nothing any more, and the next Hold replaces it.
// A file that makes no sense is a [*store.CorruptError].
func (j *Journal) HolderOf(device string) (*Holder, error) {
	data, err := j.held.Read(spelled(device))
	var name *store.NameError
	switch {
	case errors.As(err, &name), errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	h := new(Holder)
	if err := json.Unmarshal(data, h); err != nil {
		return nil, &store.CorruptError{Path: j.held.Path(spelled(device)), Err: err}
	}
	if !(&Entry{BootID: h.BootID}).OfBoot(j.bootID) {
		return nil, nil
	}
	return h, nil
}

// spelled gives one spelling to each device.
func spelled(device string) string {
	if a, err := pci.Parse(device); err == nil {
		return a.String()
	}
	return device
}
