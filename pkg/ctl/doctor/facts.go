package doctor

import (
	"cmp"
	"slices"

	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/link"
)

// FactsOf are those of a node; live is what the node says by itself, nil = nothing.
func FactsOf(n *node.Node, live *Live) (*Evidence, error) {
	list, err := n.Attachments()
	if err != nil {
		return nil, err
	}
	offer, offerErr := n.Offer()
	unowned, unownedErr := n.Unowned(list)
	stale, staleErr := n.Stale()
	unrecorded, unrecordedErr := n.UnrecordedLeases()
	if err := cmp.Or(offerErr, unownedErr, staleErr, unrecordedErr); err != nil {
		return nil, err
	}
	f := &Evidence{
		Attachments: list, Unowned: unowned, Stale: stale, Unrecorded: unrecorded, Offer: offer,
		CDIDir: n.Settings.CDIDir, DRA: n.FileThere(n.ClaimDir), Live: live,
	}
	if len(f.Unrecorded) > 0 && !n.SeesDriver() {
		f.Unseen, f.Unrecorded = len(f.Unrecorded), nil
	}
	return f, f.devicesOf(n)
}

// devicesOf adds VFs and vDPA devices, with what netlink says of their settings.
func (f *Evidence) devicesOf(n *node.Node) error {
	devices, err := hostdev.List(n.Sys)
	for _, d := range devices {
		switch d.Kind {
		case hostdev.VDPA:
			f.VDPAs = append(f.VDPAs, d)
		case hostdev.VF:
			vf := VF{Address: d.PCI, Driver: d.Driver, VFRecord: link.VFRecord{PF: d.Parent.PCI}}
			if d.Number != nil && f.Live != nil {
				is := func(v link.VFRecord) bool { return v.PF == vf.PF && v.Index == *d.Number }
				if at := slices.IndexFunc(f.Live.VFs, is); at >= 0 {
					vf.Known, vf.VFRecord = true, f.Live.VFs[at]
				}
			}
			f.VFs = append(f.VFs, vf)
		}
	}
	return err
}
