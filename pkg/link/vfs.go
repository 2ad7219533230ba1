package link

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
)

// VFRecord is what a PF has set for one of its VFs (IFLA_VF_INFO), whether the VF is in
// this network namespace or not.
type VFRecord struct {
	PF     string // PCI address of the PF
	PFName string // its interface
	Index  int    // of the VF on its PF
	MAC    string // the administrative one; "" = none is set
	VLAN   int    // 0 = none
	Trust  bool
}

// VFs lists the VFs of all PFs that have an interface in our own network namespace. A
// driver that configures VFs in another way reports none.
func (Recorder) VFs() (list []VFRecord, err error) {
	links, err := patiently(netlink.LinkList)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, l := range links {
		list = append(list, vfRecords(l.Attrs())...)
	}
	return list, nil
}

func vfRecords(pf *netlink.LinkAttrs) (list []VFRecord) {
	for _, vf := range pf.Vfs {
		const trusted = 1 // ^uint32(0) = the driver does not say
		r := VFRecord{PF: pf.ParentDev, PFName: pf.Name, Index: vf.ID, VLAN: vf.Vlan, Trust: vf.Trust == trusted}
		if mac := vf.Mac.String(); strings.Trim(mac, "0:") != "" {
			r.MAC = mac
		}
		list = append(list, r)
	}
	return list
}
