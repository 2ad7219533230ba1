package state

import (
	"encoding/json"
	"errors"
	"io/fs"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/private"
)

// OfferFile is the file with an [Offer] in the state directory. The agent writes it for people, and
// never reads it.
const OfferFile = "offer"

// Offer lists the node's own devices, by whether they are offered: see package inventory.
type Offer struct {
	Rules   string    `json:"rules"`             // path of the file with the rules
	Digest  string    `json:"digest,omitempty"`  // of that file as it was read, SHA-256 in hexadecimal digits
	Problem string    `json:"problem,omitempty"` // why they cannot be used: no agent runs then
	Devices []Offered `json:"devices,omitempty"` // by name; those that no rule names are left out
	Idle    []Idle    `json:"idle,omitempty"`    // by index
}

// Idle is a rule that no device of the node meets first: it has no effect on this node.
type Idle struct {
	Rule    string `json:"names"`             // "devices[1] (ifNames: eth77)"; "devices" = there is none
	Why     string `json:"why"`               // which of its values no device has, and the nearest one that a device has
	Nearest string `json:"nearest,omitempty"` // the first of the latter; "" = nothing comes near
}

func (i Idle) String() string { return i.Rule + " names no device of this node: " + i.Why }

// Offered is one of the node's own devices.
type Offered struct {
	Name string `json:"name"` // in the ResourceSlice
	hostdev.Ref
	As           string `json:"as"` // "shared" or "exclusive"
	ResourceName string `json:"resourceName,omitempty"`
	Why          string `json:"why,omitempty"` // it is not offered, though a rule names it; "" = it is
}

// WriteOffer writes an offer to a state directory; nil removes the file.
func WriteOffer(dir string, o *Offer) error {
	d := private.Open(dir)
	if o == nil {
		return d.Remove(OfferFile)
	}
	data, err := json.Marshal(o)
	if err == nil {
		err = d.Write(OfferFile, append(data, '\n'))
	}
	return err
}

// ReadOffer reads an offer; nil = there is none. Invalid content is a [*store.CorruptError].
func ReadOffer(dir string) (*Offer, error) {
	d := private.Open(dir)
	data, err := d.Read(OfferFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	o := new(Offer)
	if err := json.Unmarshal(data, o); err != nil {
		return nil, &store.CorruptError{Path: d.Path(OfferFile), Err: err}
	}
	return o, nil
}
