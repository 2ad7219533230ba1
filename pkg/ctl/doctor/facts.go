package doctor

import (
	"fmt"

	"devinfo-cni.io/pkg/check"
	"devinfo-cni.io/pkg/ctl/node"
)

// FactsOf are those of a node; live is what the node says by itself, nil = nothing.
func FactsOf(n *node.Node, live *Live) (*Evidence, error) {
	list, err := n.Attachments()
	if err != nil {
		return nil, err
	}
	f := &Evidence{CDIDir: n.Settings.CDIDir, DRA: n.FileThere(n.ClaimDir), Live: live}
	for _, a := range list {
		f.Attachments = append(f.Attachments, judged(a))
	}
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

// judged is an attachment with its verdict, as the checks take it.
func judged(a node.Attachment) Finding {
	c := a.Verdict
	p := Finding{Attachment: a, Remedy: c.Remedy}
	switch {
	case c.Problem != "":
		p.Level = Error
	case len(c.Warnings) > 0 && a.State == check.OK:
		p.Level, p.State, p.Why, p.Remedy = Warning, "changed", c.Warnings[0], "devinfoctl check "+a.Short()+" explains it"
	case a.State == check.OK:
		p.Level = OK
	case a.State == check.Unknown:
		p.Level, p.Remedy = Unknown, "run as root, and not in a container"
	default:
		p.Level = Info
	}
	return p
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
