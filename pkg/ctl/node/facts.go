package node

import (
	"fmt"
	"path/filepath"

	"devinfo-cni.io/pkg/audit"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/ctl/verify"
	"devinfo-cni.io/pkg/install"
)

// Facts are what a doctor looks at; live is what the node says by itself, nil = nothing.
func (n *Node) Facts(live *doctor.Live) (*doctor.Facts, error) {
	list, err := n.Attachments()
	if err != nil {
		return nil, err
	}
	f := &doctor.Facts{CDIDir: n.Settings.CDIDir, DRA: n.FileThere(n.ClaimDir), Live: live, Networks: checkedNetworks(live)}
	for _, a := range list {
		f.Attachments = append(f.Attachments, n.patient(a))
	}
	if f.Offer, err = n.ruled(); err != nil {
		return nil, err
	}
	if f.Unowned, err = n.Unowned(); err != nil {
		return nil, err
	}
	if f.Stale, err = n.stale(); err != nil {
		return nil, err
	}
	if f.Unrecorded, err = n.unrecordedClaims(); err != nil {
		return nil, err
	}
	return f, n.devicesOf(f)
}

// patient is an attachment of Attachments as the doctor sees it.
func (n *Node) patient(a Attachment) doctor.Attachment {
	c := a.verdict
	p := doctor.Attachment{
		Name: a.Short(), Pod: a.Pod, Claim: a.Claim, Has: a.has, Shares: a.shares, Netns: a.Netns, State: string(a.State), Why: a.Why, Remedy: c.Remedy,
	}
	switch {
	case c.Problem != "":
		p.Level = doctor.Error
	case len(c.Warnings) > 0 && a.State == audit.OK:
		p.Level, p.State, p.Why, p.Remedy = doctor.Warning, "changed", c.Warnings[0], "devinfoctl check "+a.Short()+" explains it"
	case a.State == audit.OK:
		p.Level = doctor.OK
	case a.State == audit.Unknown:
		p.Level, p.Remedy = doctor.Unknown, "run as root, and not in a container"
	default:
		p.Level = doctor.Info
	}
	return p
}

// unrecordedClaims are the claims with leases of which the driver has no record.
func (n *Node) unrecordedClaims() (claims []doctor.Claim, err error) {
	list, err := n.unrecordedLeases()
	for _, l := range list {
		claims = append(claims, doctor.Claim{
			Name: l.Claim, Has: l.has, Devices: l.Devices, Netns: l.of.Netns, Record: n.driverRecord(l.uid), Remedy: l.of.EndCommand(),
		})
	}
	return claims, err
}

// stale are the leases whose holder is gone.
func (n *Node) stale() (paths []string, err error) {
	list, err := n.journal.Stale()
	if err != nil {
		return nil, n.journalError(err)
	}
	for _, path := range list {
		paths = append(paths, filepath.Join(n.Settings.StateDir, path))
	}
	return paths, nil
}

// devicesOf adds VFs and vDPA devices, with what netlink says of their settings.
func (n *Node) devicesOf(f *doctor.Facts) error {
	functions, err := n.Sys.Functions()
	if err != nil {
		return err
	}
	for _, fn := range functions {
		if fn.PF == nil {
			continue
		}
		vf := doctor.VF{Address: fn.Address.String(), PF: fn.PF.String(), Driver: fn.Driver}
		index, ok, err := n.Sys.VFIndex(*fn.PF, fn.Address)
		if err != nil {
			return err
		}
		if ok && f.Live != nil {
			vf.VFSettings = f.Live.VFs[fmt.Sprintf("%s/%d", vf.PF, index)]
		}
		f.VFs = append(f.VFs, vf)
	}
	vdpas, err := n.Sys.VDPAs()
	for _, v := range vdpas {
		f.VDPAs = append(f.VDPAs, doctor.VDPA{Name: v.Name, Driver: v.Driver})
	}
	return err
}

// checkedNetworks are the network configurations, with all that is wrong in them.
func checkedNetworks(l *doctor.Live) (list []doctor.Network) {
	if l == nil {
		return nil
	}
	checker := verify.Checker{Plugin: install.Name, Versions: func(plugin string) []string { return l.Plugins[plugin].CNIVersions }}
	for _, c := range l.Networks {
		network := doctor.Network{Path: c.Path}
		report, err := checker.Check(c.Text, verify.CNIConfig)
		if err != nil { // the kind is given
			continue
		}
		for _, f := range report.Findings {
			network.Findings = append(network.Findings, doctor.Finding{Text: f.String(), Warning: f.Warning})
		}
		list = append(list, network)
	}
	return list
}
