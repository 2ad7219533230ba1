package doctor

import (
	"fmt"

	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/link"
)

// FactsOf are those of a node; live is what the node says by itself, nil = nothing.
func FactsOf(n *node.Node, live *Live) (*Evidence, error) {
	list, err := n.Attachments()
	if err != nil {
		return nil, err
	}
	f := &Evidence{Attachments: list, CDIDir: n.Settings.CDIDir, DRA: n.FileThere(n.ClaimDir), Live: live}
	if f.Offer, err = n.Offer(); err != nil {
		return nil, err
	}
	if f.Unowned, err = n.Unowned(list); err != nil {
		return nil, err
	}
	if f.Stale, err = n.Stale(); err != nil {
		return nil, err
	}
	if f.Unrecorded, err = n.UnrecordedLeases(); err != nil {
		return nil, err
	}
	if len(f.Unrecorded) > 0 && !n.SeesDriver() {
		f.Unseen, f.Unrecorded = len(f.Unrecorded), nil
	}
	return f, f.devicesOf(n)
}

// devicesOf adds VFs and vDPA devices, with what netlink says of their settings.
func (f *Evidence) devicesOf(n *node.Node) error {
	functions, err := n.Sys.Functions()
	if err != nil {
		return err
	}
	settings := map[string]link.VFRecord{} // by PF and index
	key := func(pf string, index int) string { return fmt.Sprintf("%s/%d", pf, index) }
	if f.Live != nil {
		for _, v := range f.Live.VFs {
			settings[key(v.PF, v.Index)] = v
		}
	}
	for _, fn := range functions {
		if fn.PF == nil {
			continue
		}
		vf := VF{Address: fn.Address.String(), Driver: fn.Driver, VFRecord: link.VFRecord{PF: fn.PF.String()}}
		index, ok, err := n.Sys.VFIndex(*fn.PF, fn.Address)
		if err != nil {
			return err
		}
		if s, known := settings[key(vf.PF, index)]; ok && known {
			vf.Known, vf.VFRecord = true, s
		}
		f.VFs = append(f.VFs, vf)
	}
	f.VDPAs, err = n.Sys.VDPAs()
	return err
}
