package main

import (
	"fmt"
	"strings"

	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/opinion"
)

// hear records the host's answers about representors for secondOpinion.
func (h *host) hear(sriovnet func(pf string, flavour link.Flavour, number int) (string, error)) {
	h.witness = &opinion.Witness{Switches: h.finder.Switches, Ask: sriovnet}
	h.finder.Switches = h.witness
}

// secondOpinion adds to the source of each representor that was found since the last
// time what sriovnet finds; source is nil for one that is not shown. A difference
// without such a source is a warning.
func (h *host) secondOpinion(source func(representor string) *string) (warnings []string) {
	if h.witness == nil {
		return nil
	}
	for _, o := range h.witness.Opinions() {
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

// judge adds the second opinion to what inspect prints.
func (in *inspection) judge(h *host) {
	in.Warnings = append(in.Warnings, h.secondOpinion(func(representor string) *string {
		for n, f := range in.Facts {
			if f.Value == representor && isRepresentor(f.Key) {
				return &in.Facts[n].Source
			}
		}
		return nil
	})...)
}

// judge adds the second opinion to what check prints.
func (c *comparison) judge(h *host) {
	c.Warnings = append(c.Warnings, h.secondOpinion(func(representor string) *string {
		for n, f := range c.Facts {
			if f.Now == representor && isRepresentor(f.Fact) {
				return &c.Facts[n].Source
			}
		}
		return nil
	})...)
}

func isRepresentor(key string) bool { return strings.HasSuffix(key, ".representor-device") }
