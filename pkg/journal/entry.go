package journal

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Key names an attachment: one interface of one container in one network.
type Key struct {
	Network     string `json:"network"`     // "name" of the network configuration
	ContainerID string `json:"containerID"` // CNI_CONTAINERID
	IfName      string `json:"ifName"`      // CNI_IFNAME
}

func (k Key) String() string { return k.Network + "/" + k.ContainerID + "/" + k.IfName }

// entry is the name of the file. An "@" is legal in an interface name only, so
// the first two separate.
func (k Key) entry() (string, error) {
	if !isIdentifier(k.Network) || !isIdentifier(k.ContainerID) || k.IfName == "" {
		return "", fmt.Errorf("attachment %q: must be network/containerID/ifName, of which the first two consist of "+
			"letters, digits, '_', '.' and '-' and begin with a letter or digit", k)
	}
	return k.Network + "@" + k.ContainerID + "@" + k.IfName, nil
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

// isIdentifier is CNI's rule for network names and container IDs,
// ^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$.
func isIdentifier(s string) bool {
	for i, c := range []byte(s) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		digit := c >= '0' && c <= '9'
		mark := c == '_' || c == '.' || c == '-'
		if !letter && !digit && (!mark || i == 0) {
			return false
		}
	}
	return s != ""
}

// Entry is what the journal holds of one attachment. Keys of newer versions are
// ignored.
type Entry struct {
	Key
	Netns  string    `json:"netns,omitempty"`  // CNI_NETNS
	BootID string    `json:"bootID,omitempty"` // set by Put
	Time   time.Time `json:"time"`             // of ADD

	File    string `json:"file,omitempty"`    // name in the device-info directory; "" is none
	Dir     string `json:"dir,omitempty"`     // the device-info directory
	Created bool   `json:"created,omitempty"` // there was no file before ADD
	Before  []byte `json:"before,omitempty"`  // what the file held before ADD, in base64 to keep every byte
	Wrote   bool   `json:"wrote,omitempty"`   // ADD wrote the file
	InNetns bool   `json:"inNetns,omitempty"` // the interface was in Netns at the end of ADD
	Device  Device `json:"device,omitzero"`   // as ADD found it
	CDI     CDI    `json:"cdi,omitzero"`      // the CDI spec that ADD wrote

	Delegates      []json.RawMessage          `json:"delegates,omitempty"`      // configurations as executed, with name and cniVersion
	CNIVersion     string                     `json:"cniVersion,omitempty"`     // of the network configuration
	Args           string                     `json:"args,omitempty"`           // CNI_ARGS
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs,omitempty"` // runtimeConfig for the delegates
	PrevResult     json.RawMessage            `json:"prevResult,omitempty"`     // handed to the first delegate
	Result         json.RawMessage            `json:"result,omitempty"`         // of the last delegate

	Complete bool `json:"complete,omitempty"` // ADD succeeded
}

// Path is the device-info file's full path at ADD.
func (e *Entry) Path() string { return filepath.Join(e.Dir, e.File) }

// CDI is the CDI spec of an attachment. It is zero when there is none.
type CDI struct {
	Dir    string `json:"dir"`    // the CDI directory
	File   string `json:"file"`   // name in the CDI directory
	Device string `json:"device"` // by which a container asks for it: vendor/class=name
}

// Device is the identity of a device, for people.
type Device struct {
	Type string `json:"type"` // "pci", "vdpa", "vhost-user" or "memif"
	ID   string `json:"id"`   // PCI address, vDPA device or socket path
}
