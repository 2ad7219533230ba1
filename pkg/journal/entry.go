package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/containernetworking/cni/pkg/utils"

	"devinfo-cni.io/devinfo/atomicfile"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/pod"
)

// Key names an attachment: one interface of one container in one network.
type Key struct {
	Network     string `json:"network"`     // "name" of the network configuration
	ContainerID string `json:"containerID"` // CNI_CONTAINERID
	IfName      string `json:"ifName"`      // CNI_IFNAME
}

func (k Key) String() string { return k.Network + "/" + k.ContainerID + "/" + k.IfName }

// Path is that of the attachment's entry, below a state directory.
func (k Key) Path(stateDir string) string { return filepath.Join(stateDir, entriesDir, k.file()) }

// file is the name of the entry's file. An "@" is legal in an interface name only, so the first
// two separate.
func (k Key) file() string { return k.Network + "@" + k.ContainerID + "@" + k.IfName }

// entry is the name of the file, if one can have it. An entry is JSON, which has no strings but of
// UTF-8.
func (k Key) entry() (string, error) {
	if !IsIdentifier(k.Network) || !IsIdentifier(k.ContainerID) || k.IfName == "" || strings.ContainsAny(k.IfName, "/\x00") {
		return "", fmt.Errorf("attachment %q: must be network/containerID/ifName; the network and the container ID consist of "+
			"letters, digits, '_', '.' and '-' and begin with a letter or digit; the interface name has no slash", k)
	}
	if !utf8.ValidString(k.IfName) {
		return "", &store.NameError{Name: k.IfName, Err: errors.New("an interface name must be UTF-8")}
	}
	name := k.file()
	const most = 255 - len(sharedMark) // its links have the name too
	err := atomicfile.CheckName(name)
	if err == nil && len(name) > most {
		err = fmt.Errorf("a file name must have at most %d bytes", most)
	}
	if err != nil {
		return "", fmt.Errorf("%w, but has %d (network name: %d, container ID: %d): give the network a shorter name",
			&store.NameError{Name: name, Err: err}, len(name), len(k.Network), len(k.ContainerID))
	}
	return name, nil
}

func parseKey(entry string) (Key, bool) {
	parts := strings.SplitN(entry, "@", 3)
	if len(parts) < 3 {
		return Key{}, false
	}
	k := Key{parts[0], parts[1], parts[2]}
	_, err := k.entry()
	return k, err == nil
}

// IsIdentifier is CNI's rule for network names and container IDs,
// ^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$.
func IsIdentifier(s string) bool { return utils.ValidateNetworkName(s) == nil }

// Format is that of the entries and claims that this build writes. It grows when an older
// build would take one for something else than it is.
const Format = 3

// Entry is what the journal holds of one attachment: what ADD was asked, and what the
// attachment owns or may own. Keys that are not known are ignored.
type Entry struct {
	Format int `json:"format,omitempty"` // set by Record
	Key
	Netns  string    `json:"netns,omitempty"`  // CNI_NETNS
	BootID string    `json:"bootID,omitempty"` // set by Record
	Time   time.Time `json:"time"`             // of ADD
	Pod    string    `json:"pod,omitempty"`    // that has the socket directory and the devices: K8S_POD_UID, else the container's ID

	Asked Asked `json:"asked,omitzero"`

	File      string          `json:"file,omitempty"`      // name in the device-info directory; "" = none
	Dir       string          `json:"dir,omitempty"`       // the device-info directory
	Wrote     bool            `json:"wrote,omitempty"`     // ADD writes the file
	Info      json.RawMessage `json:"info,omitempty"`      // what it writes
	Kept      bool            `json:"kept,omitempty"`      // somebody else had written the same before
	InNetns   bool            `json:"inNetns,omitempty"`   // the interface was in Netns at the end of ADD
	Interface string          `json:"interface,omitempty"` // if it led ADD to the device: the interface's parent device, else its kind
	Device    Identity        `json:"device,omitzero"`     // as ADD found it
	Reason    string          `json:"reason,omitempty"`    // why ADD wrote no device information, with the remedy; "" = it did, or none is expected
	CDI       CDI             `json:"cdi,omitzero"`        // the CDI spec that ADD writes
	SocketDir string          `json:"socketDir,omitempty"` // the host's directory that the CDI spec mounts
	Leases    []DeviceLease   `json:"leases,omitempty"`    // the devices that the pod has by this attachment

	Delegates      []json.RawMessage          `json:"delegates,omitempty"`      // configurations as executed, with name and cniVersion
	CNIVersion     string                     `json:"cniVersion,omitempty"`     // of the network configuration
	Args           string                     `json:"args,omitempty"`           // CNI_ARGS
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs,omitempty"` // runtimeConfig for the delegates
	PrevResult     json.RawMessage            `json:"prevResult,omitempty"`     // handed to the first delegate
	Result         json.RawMessage            `json:"result,omitempty"`         // of the last delegate

	Complete bool `json:"complete,omitempty"` // ADD succeeded, or has nothing left to do but write the files

	raw  []byte   // the content of the file
	file *os.File // while it is locked
}

// Asked is what the configuration said of the device, placeholders filled in: CHECK and
// devinfoctl compare with it.
type Asked struct {
	DeviceIDs         []config.NamedID `json:"deviceIDs,omitempty"` // in order of precedence
	Declared          json.RawMessage  `json:"declared,omitempty"`  // a device-info object, maybe partial
	PCIID             string           `json:"pciID,omitempty"`     // pciID and socketPath of the result before ADD
	SocketPath        string           `json:"socketPath,omitempty"`
	FollowLower       bool             `json:"followLower,omitempty"`
	SubfunctionParent bool             `json:"subfunctionParent,omitempty"`
}

// PodName is the namespace and the name of the pod; both are "" where no Kubernetes asked.
func (e *Entry) PodName() (namespace, name string) {
	args, _ := pod.ParseArgs(e.Args) // what can be read of them
	return args.Name()
}

// pod is namespace/name, or "".
func (e *Entry) pod() string {
	namespace, name := e.PodName()
	if name == "" {
		return ""
	}
	return namespace + "/" + name
}

// ByClaim says that the pod has the attachment by a ResourceClaim, which hands it to those of
// the pod's containers that list it.
func (e *Entry) ByClaim() bool {
	args, _ := pod.ParseArgs(e.Args)
	return args.Claim() != ""
}

// OfBoot reports whether the entry is of the boot with that ID. If one of the IDs could not
// be read, the answer is yes: keeping what another boot left does less harm than taking what
// lives for stale.
func (e *Entry) OfBoot(bootID string) bool { return ofBoot(e.BootID, bootID) }

func ofBoot(is, now string) bool { return is == now || is == "" || now == "" }

// Path is the device-info file's full path at ADD; "" = none.
func (e *Entry) Path() string {
	if e.File == "" {
		return ""
	}
	return filepath.Join(e.Dir, e.File)
}

// CDI is the CDI spec of an attachment. It is zero when there is none.
type CDI struct {
	Dir    string `json:"dir"`    // the CDI directory
	File   string `json:"file"`   // name in the CDI directory
	Device string `json:"device"` // by which a container asks for it: vendor/class=name
}

// Identity is that of a device, for people.
type Identity struct {
	Type string `json:"type"` // "pci", "vdpa", "vhost-user" or "memif"
	ID   string `json:"id"`   // PCI address, vDPA device or socket path
}

// encode leaves the texts that it was given as they are, but for white space.
func encode(e *Entry) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(e)
	return b.Bytes(), err
}

// decode reads an entry. That of a newer build, whatever it looks like, is a FormatError.
func decode(data []byte) (*Entry, error) {
	e := &Entry{raw: data}
	err := json.Unmarshal(data, e)
	if err != nil && !json.Valid(data) {
		return nil, err
	}
	if err != nil { // perhaps a key's type has changed since
		var only struct {
			Format int
			Args   string
		}
		_ = json.Unmarshal(data, &only)
		e.Format, e.Args = only.Format, only.Args
	}
	if e.Format > Format {
		return nil, &FormatError{Format: e.Format, Pod: e.pod()}
	}
	return e, err
}

// head reads what comes before the first list or object of an entry that is corrupt: after a power
// failure it may be torn.
func head(data []byte) *Entry {
	d, end := json.NewDecoder(bytes.NewReader(data)), 0
	for _, err := d.Token(); err == nil; end = int(d.InputOffset()) {
		var value json.Token
		_, noKey := d.Token()
		value, err = d.Token()
		if _, nested := value.(json.Delim); nested || noKey != nil || err != nil {
			break
		}
	}
	e := new(Entry)
	if json.Unmarshal(append(data[:end:end], '}'), e) != nil {
		return new(Entry)
	}
	return e
}
