package inject

import (
	"encoding/json"
	"path"
	"slices"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/cdispec"
)

// A nic is what is known of one of the interfaces that a pod has from its networks. It may be
// none to the kernel: a socket, or a device on vfio-pci.
type nic struct {
	network, ifName string
	byClaim         bool   // CDI hands it to the containers that list the claim: all below is empty
	adding          bool   // ADD has not ended: all below is empty
	mac             string // "" = not known
	mtu             int    // bytes; 0 = not known

	file []byte        // what the device-info file says, encoded; nil = there is none
	info *devinfo.Info // what it says; nil also where it is of another major version
	gone error         // why there is no file though ADD wrote one, or why that cannot be told

	socketDir string // the host's directory of a socket; "" = as in the container

	// leased says whether the attachment has an exclusive lease of a device; nil = the journal
	// does not know the attachment.
	leased func(id string) bool
}

// networkInfo is what KubeVirt tells its network binding plugins of a network (its
// pkg/network/downwardapi), with the interface, by which a pod that is twice in one network
// tells the two apart.
type networkInfo struct {
	Network    string          `json:"network"`
	DeviceInfo json.RawMessage `json:"deviceInfo,omitempty"`
	MAC        string          `json:"mac,omitempty"`
	MTU        int             `json:"mtu,omitempty"`
	Interface  string          `json:"interface"` // none of KubeVirt's keys
}

// networkInfoFile has the information of all networks, also in the place of that of an
// interface which is called network-info.
const networkInfoFile = "network-info.json"

// ours says that an agent has something to tell of one of the nics.
func ours(nics []nic) bool { return slices.ContainsFunc(nics, func(n nic) bool { return !n.byClaim }) }

// files are what the directory of the sandbox of the nics holds. One whose file is gone is
// not told of: ADD may be about to write it, and without it a device looks like none.
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
	text, _ := json.MarshalIndent(all, "", "  ") // what was parsed as JSON encodes
	list[networkInfoFile] = append(text, '\n')
	return list
}
