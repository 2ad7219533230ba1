package doctor

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/host/nic"
)

func plugin(e *Evidence, list *findings) {
	p, there := e.Live.Plugins[validate.Plugin]
	switch {
	case !there:
		list.add("plugin-missing", "dirs", cmp.Or(strings.Join(e.Live.PluginDirs, " or "), "any directory of --cni-path"))
	case p.Problem != "":
		list.add("plugin-broken", "path", p.Path, "why", p.Problem)
	case !p.Build.Same(e.Asking):
		list.add("plugin-other", "path", p.Path, "build", p.Build.String(), "own", e.Asking.String())
	}
}

// nodeSettings reports node settings that cannot be used. Every ADD needs valid node settings.
func nodeSettings(e *Evidence, list *findings) {
	if e.NodeFile != "" {
		list.add("settings", "why", e.NodeFile)
	}
}

func networks(e *Evidence, list *findings) {
	if e.Live.NoConf != "" {
		list.add("conf-missing", "path", e.Live.NoConf)
		return
	}
	if len(e.Live.Networks) == 0 {
		list.add("no-network")
	}
	for _, n := range e.Live.Networks {
		for _, finding := range n.Findings {
			rule := "network"
			if finding.Warning {
				rule = "network-doubt"
			}
			list.add(rule, "path", n.Path, "finding", finding.String())
		}
	}
}

func directories(e *Evidence, list *findings) {
	for _, path := range slices.Sorted(maps.Keys(e.Live.Missing)) {
		list.add("directory", "path", path, "why", e.Live.Missing[path])
	}
	useless := func(rule, path string) {
		if path == e.CDIDir {
			rule = "cdi-" + rule
		}
		list.add(rule, "path", path, "why", e.Live.Unwritable[path])
	}
	for _, path := range e.Live.ReadOnly {
		useless("read-only", path)
	}
	for _, path := range slices.Sorted(maps.Keys(e.Live.Unwritable)) {
		useless("unwritable", path)
	}
	if e.Live.NFS {
		list.add("nfs")
	}
	if e.Live.Exposed != "" {
		list.add("exposed", "why", e.Live.Exposed)
	}
	// The defaults of cdi_spec_dirs in containerd (docs/cri/config.md) and of CRI-O (docs/crio.conf.5.md).
	if usual := []string{"/etc/cdi", "/var/run/cdi", "/run/cdi"}; e.CDIDir != "" && !slices.Contains(usual, e.CDIDir) {
		list.add("cdi-elsewhere", "path", e.CDIDir)
	}
}

// runtime checks for NRI, because cni-dra-driver and devinfo-agent learn of pods only through it. Its defaults are in docs/NRI.md
// of containerd and in docs/crio.conf.5.md of CRI-O.
func runtime(e *Evidence, list *findings) {
	switch {
	case e.Live.NRI:
	case e.DRA:
		list.add("no-nri")
	default:
		list.add("no-nri-yet")
	}
}

// offer checks the rules for the devices that cni-dra-driver offers. A rule that matches no device may be meant for
// other nodes.
func offer(e *Evidence, list *findings) {
	switch {
	case e.Offer == nil:
	case e.Offer.Problem != "":
		list.add("rules", "why", e.Offer.Problem)
	case e.Live.DriverAway:
		list.add("driver-away-offer")
	default:
		for _, idle := range e.Offer.Unmatched {
			list.add("rule-unmatched", "rules", e.Offer.Rules, "why", idle.String())
		}
	}
}

// cards tells which NICs of the node devinfo knows, and how it was tried on them.
func cards(e *Evidence, list *findings) {
	for _, card := range e.Cards {
		remedy := nic.Remedy
		if card.OnCard {
			remedy = ""
		}
		list.add("card", "text", card.Text, "remedy", remedy)
	}
}

func sight(e *Evidence, list *findings) {
	if e.OfferError != nil {
		list.add("unread", "why", e.OfferError.Error(), "remedy", node.RenewOffer)
	}
	if e.Unseen > 0 {
		list.add("records-unseen", "number", strconv.Itoa(e.Unseen))
	}
	if e.Live.None {
		list.add("not-captured")
	}
	for _, note := range e.Live.Notes {
		list.add("unread", "why", note.Text, "remedy", note.Remedy)
	}
}
