// Package crosscheck asks sriovnet, by which OVN-Kubernetes, ovs-cni and the SR-IOV
// operators find representors, about the functions whose representors package link
// was asked for: where the two differ, those programs and the device-info file name
// different interfaces.
//
// It is for people who examine a node. The plugin itself must not import it: sriovnet
// brings afero, net/http and regular expressions into every call.
package crosscheck

import (
	"fmt"
	"slices"

	"github.com/k8snetworkplumbingwg/sriovnet"

	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/link"
)

// Sriovnet returns the representor that sriovnet finds for the VF or SF on this machine,
// with our privileges, in our network namespace and below /sys. The errors are sriovnet's.
func Sriovnet(pf string, flavour link.Flavour, number int) (string, error) {
	if flavour == link.SF {
		return sriovnet.GetSfRepresentor(pf, number)
	}
	return sriovnet.GetVfRepresentor(pf, number)
}

// A Witness answers like its Switches, and asks for a second opinion on each answer. It is for one
// goroutine.
type Witness struct {
	hostdev.Switches
	Ask func(pf string, flavour link.Flavour, number int) (string, error) // Sriovnet; nil = do not ask

	Opinions []Opinion // on the answers, without those where both find nothing
}

// An Opinion is the representor that was found for one function.
type Opinion struct {
	Function     string // "VF 3 of 0000:03:00.0"
	Ours, Theirs string // interfaces; "" = none
	Err          error  // why sriovnet has none
}

func (w *Witness) Representor(pf string, flavour link.Flavour, number int) (string, bool, error) {
	name, ok, err := w.Switches.Representor(pf, flavour, number)
	o := Opinion{Function: fmt.Sprintf("%s %d of %s", map[link.Flavour]string{link.VF: "VF", link.SF: "SF"}[flavour], number, pf), Ours: name}
	known := func(other Opinion) bool { return other.Function == o.Function && other.Ours == o.Ours }
	if w.Ask == nil || slices.ContainsFunc(w.Opinions, known) {
		return name, ok, err
	}
	if o.Theirs, o.Err = w.Ask(pf, flavour, number); o.Ours != "" || o.Theirs != "" {
		w.Opinions = append(w.Opinions, o)
	}
	return name, ok, err
}

// String says it as "sriovnet agrees" or "sriovnet finds nothing: why".
func (o Opinion) String() string {
	switch {
	case o.Err != nil:
		return "sriovnet finds nothing: " + o.Err.Error()
	case o.Theirs == o.Ours:
		return "sriovnet agrees"
	}
	return "sriovnet finds " + o.Theirs
}
