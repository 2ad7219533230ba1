package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/private"
)

// DefaultDir is the state directory of the agent of driver cni.dra.networking.x-k8s.io,
// where the kubelet's directories are not elsewhere.
const DefaultDir = "/var/lib/kubelet/plugins/cni.dra.networking.x-k8s.io/state"

// DirVariable is the environment variable that says where it is on this node.
const DirVariable = "DEVINFO_DRA_STATE_DIR"

// NodeDir is where it is on this node.
func NodeDir() string { return cmp.Or(os.Getenv(DirVariable), DefaultDir) }

// Leftover is an attachment whose DEL was given up: what it holds of its network, an
// address or a device, may still be held.
type Leftover struct {
	Claim    string    `json:"claim"`    // namespace/name
	ClaimUID types.UID `json:"claimUID"` // names the record
	Pod      string    `json:"pod"`      // namespace/name of the pod that was attached
	PodUID   types.UID `json:"podUID"`

	Request string `json:"request"`       // of the claim
	Network string `json:"network"`       // "name" of the network configuration
	IfName  string `json:"ifName"`        // CNI_IFNAME
	Sandbox string `json:"sandbox"`       // CNI_CONTAINERID
	Device  string `json:"device"`        // pool/device, as the scheduler allocated it
	PCI     string `json:"pci,omitempty"` // address of the device behind the interface, if its plugin said so

	Error string    `json:"error"` // of the last DEL
	Tries int       `json:"tries"` // of DEL, all of which have failed
	Since time.Time `json:"since"` // when DEL was given up
}

// Leftovers lists the attachments whose DEL was given up, sorted by claim UID, in the
// state directory of an agent, which may run meanwhile. A directory that is missing has
// none. It changes nothing. What it could not read is in the error, a [*SchemaError] or
// [*store.CorruptError] for each file; the list is that of the others.
func Leftovers(dir string) ([]Leftover, error) {
	d := private.Open(dir)
	names, err := d.Names()
	if err != nil {
		return nil, err
	}
	var list []Leftover
	var errs []error
	for _, name := range names {
		uid, ok := strings.CutSuffix(name, suffix)
		if !ok {
			continue
		}
		c, err := readFile(d, types.UID(uid))
		switch {
		case errors.Is(err, fs.ErrNotExist): // forgotten meanwhile
		case err != nil:
			errs = append(errs, err)
		default:
			for n := range c.Abandoned {
				list = append(list, c.leftover(&c.Abandoned[n]))
			}
		}
	}
	return list, errors.Join(errs...)
}

func (c *Claim) leftover(at *Attachment) Leftover {
	return Leftover{
		Claim: c.Namespace + "/" + c.Name, ClaimUID: c.UID,
		Pod: at.Arg("K8S_POD_NAMESPACE") + "/" + at.Arg("K8S_POD_NAME"), PodUID: types.UID(at.Arg("K8S_POD_UID")),
		Request: at.Request, Network: at.Network, IfName: at.IfName, Sandbox: at.Sandbox,
		Device: at.Pool + "/" + at.Device, PCI: at.PCI(), Error: at.DelError, Tries: at.Tries, Since: at.GivenUp.Time,
	}
}

// clearedName is that of the file by which an administrator has a leftover forgotten: only the
// agent may change the record.
func clearedName(uid types.UID, sandbox, ifName string) string {
	return string(uid) + "=" + sandbox + "=" + ifName + ".cleared"
}

// ClearLeftovers has the agent of a state directory forget the leftovers that a claim has
// now, without another DEL: within a minute if it runs, else at its next start. They are
// returned; none is an error, which then has what could not be read.
func ClearLeftovers(dir string, uid types.UID) ([]Leftover, error) {
	list, err := Leftovers(dir)
	list = slices.DeleteFunc(list, func(l Leftover) bool { return l.ClaimUID != uid })
	if len(list) == 0 {
		return nil, errors.Join(fmt.Errorf("claim UID %q: %s has no attachment of it whose DEL was given up", uid, dir), err)
	}
	for _, l := range list {
		if err := private.OpenDurable(dir).Write(clearedName(uid, l.Sandbox, l.IfName), nil); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// IsCleared says whether an administrator has an abandoned attachment of a claim forgotten: see
// [ClearLeftovers].
func (s *Store) IsCleared(uid types.UID, at *Attachment) bool {
	_, err := s.dir.Read(clearedName(uid, at.Sandbox, at.IfName))
	return err == nil
}

// Cleared ends that, once the record is without the attachment. It may come back after a power
// failure: it then speaks of nothing that is there.
func (s *Store) Cleared(uid types.UID, at *Attachment) error {
	return private.Open(s.dir.Path("")).Remove(clearedName(uid, at.Sandbox, at.IfName))
}

// Arg is the value of a CNI argument; "" = it has none.
func (e *Execution) Arg(key string) string {
	for _, arg := range e.Args {
		if arg[0] == key {
			return arg[1]
		}
	}
	return ""
}

// PCI is the address of the device behind the interface; "" = none, or it is not known.
func (e *Execution) PCI() string {
	info, err := devinfo.Parse(e.Info)
	if err != nil || info.PCI == nil {
		return ""
	}
	return string(info.PCI.Address)
}

// OfferFile is what an agent leaves in its state directory for people: an [Offer]. The
// agent never reads it.
const OfferFile = "offer"

// Offer is what has become of the node's own devices: see package inventory.
type Offer struct {
	Rules   string    `json:"rules"`             // path of the file with the rules
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

// WriteOffer leaves an offer in a state directory; nil = removes what is there.
func WriteOffer(dir string, o *Offer) error {
	d := private.Open(dir)
	if o == nil {
		return d.Remove(OfferFile)
	}
	data, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("offer: %w", err)
	}
	return d.Write(OfferFile, append(data, '\n'))
}

// ReadOffer reads what an agent has left; nil = nothing. Invalid content is a
// [*store.CorruptError].
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
