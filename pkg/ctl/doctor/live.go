package doctor

import (
	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/host/link"
)

// Live contains the facts that are only available on the node itself.
type Live struct {
	VFs        []link.VFRecord      `json:"vfs,omitempty"`     // VFs whose PFs report the settings
	Spoilt     []link.Spoilt        `json:"spoilt,omitempty"`  // interfaces with settings that stop traffic
	Devices    []podresources.Given `json:"devices,omitempty"` // allocations of device plugins to pods
	Locks      []journal.SRIOVLock  `json:"locks,omitempty"`   // locks of sriov-cni
	Plugins    map[string]Plugin    `json:"plugins,omitempty"` // CNI plugins by type: the configured ones and devinfo
	PluginDirs []string             `json:"pluginDirs,omitempty"`
	Networks   []Network            `json:"networks,omitempty"`   // configurations that contain devinfo
	NRI        bool                 `json:"nri,omitempty"`        // the NRI socket exists
	ReadOnly   []string             `json:"readOnly,omitempty"`   // directories of the plugin on a read-only file system
	NFS        bool                 `json:"nfs,omitempty"`        // stateDir is on NFS
	Missing    map[string]string    `json:"missing,omitempty"`    // directories, and why they cannot be used
	NoConf     string               `json:"noConf,omitempty"`     // directory of the network configurations, if it is not there
	DriverAway bool                 `json:"driverAway,omitempty"` // see [node.Node.DriverAway]
	Notes      []Note               `json:"notes,omitempty"`
}

// Plugin is a CNI plugin's executable.
type Plugin struct {
	Path        string     `json:"path"`
	CNIVersions []string   `json:"cniVersions,omitempty"`
	Problem     string     `json:"problem,omitempty"` // why its versions are unknown
	Build       build.Info `json:"build,omitzero"`    // build information of Go programs; devinfo prints its own
}

// Network is a file of the CNI configuration directory. It has no part of the configuration, which may contain secrets.
type Network struct {
	Path     string             `json:"path"`
	Findings []validate.Finding `json:"findings,omitempty"` // without values
}

// Note describes facts that could not be read.
type Note struct {
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

func (l *Live) note(remedy, text string) { l.Notes = append(l.Notes, Note{text, remedy}) }
