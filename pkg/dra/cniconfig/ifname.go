package cniconfig

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// maxIfName is IFNAMSIZ without the NUL (include/uapi/linux/if.h), in bytes.
const maxIfName = 15

// indexMark is where an ifName has the number of the device among those of its request.
const indexMark = "{index}"

// numbered is the name of the n-th interface, from 0.
func numbered(ifName string, n int) string {
	return strings.ReplaceAll(ifName, indexMark, strconv.Itoa(n))
}

// checkIfName refuses what is no name for an interface that the driver makes: what the
// kernel does not take (dev_valid_name in net/core/dev.c; "%" is its template for
// numbers), what a pod has already, and what cannot be shown.
func checkIfName(name string) *Refusal {
	bad := func(why string) *Refusal {
		return refuse("ifName", fmt.Sprintf("ifName %s: %s", quote(name), why), `name an interface, such as "net1"`)
	}
	switch {
	case name == "":
		return refuse("ifName", "no ifName, neither from the claim nor from the DeviceClass", `add ifName: net1 to the parameters in the claim`)
	case len(name) > maxIfName:
		return bad(fmt.Sprintf("an interface name has at most %d bytes, this one has %d", maxIfName, len(name)))
	case name == "eth0" || name == "lo":
		return bad("each pod has it already")
	case name == "." || name == "..":
		return bad("the kernel does not take it")
	case strings.ContainsAny(name, "/:%"):
		return bad(`an interface name must not hold "/", ":" or "%"`)
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return bad("an interface name must not hold white space or what cannot be printed")
	}
	return nil
}

// Distinct refuses interface names that are there twice: among the networks, or in
// taken, which maps the names that the pod's other claims have to who has them, such as
// "claim default/a, request b".
func Distinct(networks []Network, taken map[string]string) error {
	seen := map[string]string{}
	for _, n := range networks {
		if n.List == nil {
			continue
		}
		holder, ok := taken[n.IfName]
		if !ok {
			holder, ok = seen[n.IfName]
		}
		if ok {
			return &Refusal{Request: n.Request, Rule: fmt.Sprintf("ifName %q is that of %s too", n.IfName, holder),
				Remedy: "give each request an ifName of its own, by parameters in the claim for this request alone"}
		}
		seen[n.IfName] = fmt.Sprintf("request %q", n.Request)
	}
	return nil
}
