// Package crosscheck compares the representors that package link finds with those that sriovnet finds. OVN-Kubernetes,
// ovs-cni and the SR-IOV operators use sriovnet. Where the two differ, these programs and the device-info file name
// different interfaces.
//
// Programs that examine a node use it. The plugin must not import it, because sriovnet imports afero, net/http and
// regexp.
package crosscheck

import (
	"fmt"
	"slices"

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

// A Reference answers like its Eswitches, and asks sriovnet the same question to keep both answers, unless the Eswitches could
// not be read. It must not be used concurrently.
type Reference struct {
	hostdev.Eswitches
	Ask func(pf string, flavour link.Flavour, number int) (string, error) // [Sriovnet]; nil disables the comparison

	Comparisons []Comparison // one for each function for which package link or sriovnet found a representor
}

// A Comparison holds the representors that were found for one function.
type Comparison struct {
	Function     string // "VF 3 of 0000:03:00.0"
	Ours, Theirs string // names of interfaces; "" = none found
	Err          error  // sriovnet's error
}

func (r *Reference) Representor(pf string, flavour link.Flavour, number int) (name, source string, err error) {
	name, source, err = r.Eswitches.Representor(pf, flavour, number)
	o := Comparison{Function: fmt.Sprintf("%s %d of %s", map[link.Flavour]string{link.VF: "VF", link.SF: "SF"}[flavour], number, pf), Ours: name}
	known := func(other Comparison) bool { return other.Function == o.Function }
	if err != nil || r.Ask == nil || slices.ContainsFunc(r.Comparisons, known) {
		return name, source, err
	}
	if o.Theirs, o.Err = r.Ask(pf, flavour, number); o.Ours != "" || o.Theirs != "" {
		r.Comparisons = append(r.Comparisons, o)
	}
	return name, source, nil
}

// String returns "sriovnet agrees" or, for example, "sriovnet finds nothing: no such device".
func (c Comparison) String() string {
	switch {
	case c.Err != nil:
		return "sriovnet finds nothing: " + c.Err.Error()
	case c.Theirs == c.Ours:
		return "sriovnet agrees"
	}
	return "sriovnet finds " + c.Theirs
}
