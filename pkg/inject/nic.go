package inject

import (
	"encoding/json"
	"path"
	"slices"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/cdispec"
)

// nic is one attachment of a pod. Its kernel interface may be missing: a socket and a device on vfio-pci do
// not have one.
type nic struct {
	network, ifName string
	byClaim         bool   // CDI injects the attachment into the containers that list its claim; the fields below are empty
	adding          bool   // ADD has not finished; the fields below are empty
	mac             string // "" if unknown
	mtu             int    // bytes; 0 if unknown

	file []byte        // content of the device-info file; nil if it does not exist
	info *devinfo.Info // parsed content; also nil if the file has an unknown major version
	gone error         // why the journal entry or the device-info file is missing or unusable; nil = it is not

	socketDir string // directory of the socket on the host; "" if it has the same path in the container

	// leased reports whether the attachment has an exclusive lease of a device. It is nil if the journal
	// does not contain the attachment.
	leased func(id string) bool
}

// networkInfo is one element of the file network-info.json. It has the format that KubeVirt writes for its
// network binding plugins (pkg/network/downwardapi in KubeVirt), and an additional key "interface", which
// distinguishes two attachments of a pod to one network.
type networkInfo struct {
	Network    string          `json:"network"`
	DeviceInfo json.RawMessage `json:"deviceInfo,omitempty"`
	MAC        string          `json:"mac,omitempty"`
	MTU        int             `json:"mtu,omitempty"`
	Interface  string          `json:"interface"` // not in KubeVirt's format
}

// networkInfoFile is the name of the file with the information of all networks. It takes precedence over
// the file of an interface that is named network-info.
const networkInfoFile = "network-info.json"

// injectable reports whether the plugin injects one of the attachments. CDI injects those of claims.
func injectable(nics []nic) bool {
	return slices.ContainsFunc(nics, func(n nic) bool { return !n.byClaim })
}

// files returns the files of a sandbox's directory by name. It omits an attachment whose device-info file
// is missing: ADD may be about to write the file, and until then the attachment would appear to have no
// device.
func files(nics []nic) map[string][]byte {
	var all struct {
		Interfaces []networkInfo `json:"interfaces,omitempty"`
	}
	list := map[string][]byte{}
	for _, n := range nics {
		if n.byClaim || n.gone != nil && n.file == nil {
			continue
		}
		all.Interfaces = append(all.Interfaces, networkInfo{
			Network: n.network, DeviceInfo: n.file, MAC: n.mac, MTU: n.mtu, Interface: n.ifName,
		})
		if n.file != nil {
			list[path.Base(cdispec.InfoFile(n.ifName))] = n.file
		}
	}
	text, _ := json.MarshalIndent(all, "", "  ") // cannot fail, because deviceInfo was parsed from JSON
	list[networkInfoFile] = append(text, '\n')
	return list
}
