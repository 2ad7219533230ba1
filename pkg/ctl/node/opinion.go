package node

import (
	"fmt"
	"strings"

	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/opinion"
)

// Hear records the host's answers about representors for a second opinion, sriovnet's.
func (n *Node) Hear(sriovnet func(pf string, flavour link.Flavour, number int) (string, error)) {
	n.witness = &opinion.Witness{Switches: n.Finder.Switches, Ask: sriovnet}
	n.Finder.Switches = n.witness
}

// secondOpinion adds to the source of each representor that was found since the last
// time what sriovnet finds; source is nil for one that is not shown. A difference
// without such a source is a warning.
func secondOpinion(w *opinion.Witness, source func(representor string) *string) (warnings []string) {
	if w == nil {
		return nil
	}
	for _, o := range w.Opinions() {
		if s := source(o.Ours); s != nil && o.Ours != "" {
			*s += "; " + o.String()
		} else if o.Ours != o.Theirs {
			warnings = append(warnings, fmt.Sprintf("%s: %s, and so do OVN-Kubernetes, ovs-cni and the SR-IOV operators; devinfo finds %s",
				o.Function, o, orNothing(o.Ours)))
		}
	}
	return warnings
}

func orNothing(name string) string {
	if name == "" {
		return "nothing"
	}
	return name
}

func isRepresentor(key string) bool { return strings.HasSuffix(key, ".representor-device") }
