package doctor

import (
	"fmt"

	"devinfo-cni.io/pkg/ctl/node"
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
	for _, fn := range functions {
		if fn.PF == nil {
			continue
		}
		vf := VF{Address: fn.Address.String(), PF: fn.PF.String(), Driver: fn.Driver}
		index, ok, err := n.Sys.VFIndex(*fn.PF, fn.Address)
		if err != nil {
			return err
		}
		if ok && f.Live != nil {
			vf.VFSettings = f.Live.VFs[fmt.Sprintf("%s/%d", vf.PF, index)]
		}
		f.VFs = append(f.VFs, vf)
	}
	f.VDPAs, err = n.Sys.VDPAs()
	return err
}
