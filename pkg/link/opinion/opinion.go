// Package opinion asks sriovnet, by which OVN-Kubernetes, ovs-cni and the SR-IOV
// operators find representors, about the functions whose representors package link
// was asked for: where the two differ, those programs and the device-info file name
// different interfaces.
//
// It is for people who examine a node. The plugin itself must not import it: sriovnet
// brings afero, net/http and regular expressions into every call.
package opinion

import (
	"fmt"
	"slices"

	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/link"
	"github.com/k8snetworkplumbingwg/sriovnet"
)

// Sriovnet returns the representor that sriovnet finds for the VF or SF on this machine,
// with our privileges, in our network namespace and below /sys. The errors are sriovnet's.
func Sriovnet(pf string, flavour link.Flavour, number int) (string, error) {
	if flavour == link.SF {
		return sriovnet.GetSfRepresentor(pf, number)
	}
	return sriovnet.GetVfRepresentor(pf, number)
}

// A Witness answers like its Switches and remembers what they were asked. It is for one
// goroutine.
type Witness struct {
	hostdev.Switches
	Ask func(pf string, flavour link.Flavour, number int) (string, error) // Sriovnet

	heard []question
}

type question struct {
	pf      string
	flavour link.Flavour
	number  int
	answer  string
}

// Representor is the Switches'.
func (w *Witness) Representor(pf string, flavour link.Flavour, number int) (string, bool, error) {
	name, ok, err := w.Switches.Representor(pf, flavour, number)
	if q := (question{pf, flavour, number, name}); !slices.Contains(w.heard, q) {
		w.heard = append(w.heard, q)
	}
	return name, ok, err
}

// An Opinion is what was found for one function.
type Opinion struct {
	Function     string // "VF 3 of 0000:03:00.0"
	Ours, Theirs string // interfaces; "" = none
	Err          error  // why sriovnet has none
}

// Opinions asks for a second opinion on every answer since the last call, and leaves out
// those where both find nothing.
func (w *Witness) Opinions() (list []Opinion) {
	for _, q := range w.heard {
		kind := "VF"
		if q.flavour == link.SF {
			kind = "SF"
		}
		theirs, err := w.Ask(q.pf, q.flavour, q.number)
		o := Opinion{Function: fmt.Sprintf("%s %d of %s", kind, q.number, q.pf), Ours: q.answer, Theirs: theirs, Err: err}
		if o.Ours != "" || o.Theirs != "" {
			list = append(list, o)
		}
	}
	w.heard = nil
	return list
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
