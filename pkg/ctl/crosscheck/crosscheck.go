// Package crosscheck compares the representors that package link finds with those that sriovnet finds. OVN-Kubernetes,
// ovs-cni and the SR-IOV operators use sriovnet. Where the two differ, these programs and the device-info file name
// different interfaces.
//
// Programs that examine a node use it. The plugin must not import it, because sriovnet imports afero, net/http and
// regexp.
package crosscheck

import (
	"fmt"

	"github.com/k8snetworkplumbingwg/sriovnet"

	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
)

// Sriovnet returns the representor that sriovnet finds for a VF or SF below /sys, in the network namespace of the
// process. It returns sriovnet's errors.
func Sriovnet(pf string, flavour link.Flavour, number int) (string, error) {
	if flavour == link.SF {
		return sriovnet.GetSfRepresentor(pf, number)
	}
	return sriovnet.GetVfRepresentor(pf, number)
}

// A Reference answers like its Eswitches, and asks sriovnet the same question, unless the Eswitches could not be read. The
// source of a representor then says what sriovnet finds. It must not be used concurrently.
type Reference struct {
	hostdev.Eswitches
	Ask func(pf string, flavour link.Flavour, number int) (string, error) // [Sriovnet]; nil disables the comparison

	Warnings []string // representors that only sriovnet finds
}

func (r *Reference) Representor(pf string, flavour link.Flavour, number int) (name, source string, err error) {
	name, source, err = r.Eswitches.Representor(pf, flavour, number)
	if err != nil || r.Ask == nil {
		return name, source, err
	}
	theirs, failed := r.Ask(pf, flavour, number)
	switch {
	case name == "" && theirs != "":
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s %d of %s: sriovnet finds %s, and so do OVN-Kubernetes, ovs-cni and the SR-IOV operators; devinfo finds nothing",
			map[link.Flavour]string{link.VF: "VF", link.SF: "SF"}[flavour], number, pf, theirs))
	case failed != nil:
		source += "; sriovnet finds nothing: " + failed.Error()
	case theirs == name:
		source += "; sriovnet agrees"
	default:
		source += "; sriovnet finds " + theirs
	}
	return name, source, nil
}
