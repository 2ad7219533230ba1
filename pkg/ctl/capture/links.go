package capture

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/listing"
)

// KernelParts reads the files below netlink/ from the kernel of this machine. netns.json lacks namespaces that no
// longer exist, and has null for a namespace that the caller may not enter.
func KernelParts(netns []string) (parts map[string][]byte, notes []string, err error) {
	host, hostErr := listing.Interfaces("")
	uplinks, advertised, uses, usesErr := listing.Uses(host)
	ports, portsErr := listing.Ports()
	eswitches, eswitchesErr := listing.Eswitches()
	if err := cmp.Or(hostErr, usesErr, portsErr, eswitchesErr); err != nil {
		return nil, nil, err
	}
	for name := range uses { // the capture must not contain IP addresses
		uses[name] = "has an address or a route"
	}
	vdpas, err := listing.VDPAs()
	if err != nil {
		notes = append(notes, fmt.Sprintf("%v", err)) // reading them takes CAP_NET_ADMIN
	}
	pods := map[string][]listing.Interface{}
	for _, path := range netns {
		list, err := listing.Interfaces(path)
		if errors.Is(err, link.ErrNoNetns) {
			continue
		} else if err != nil {
			notes = append(notes, fmt.Sprintf("the interfaces in %s: %v", path, err))
		}
		pods[path] = list
	}
	return map[string][]byte{
		"ip-link.json":         list(host),
		"uplinks.json":         list(uplinks),
		"advertised.json":      list(advertised),
		"uses.json":            object(uses),
		"netns.json":           object(pods),
		"devlink-port.json":    within("port", ports),
		"devlink-eswitch.json": within("dev", eswitches),
		"vdpa-config.json":     within("config", vdpas),
	}, notes, nil
}

// list encodes an array with one element per line.
func list[T any](all []T) []byte {
	var lines [][]byte
	for _, one := range all {
		lines = append(lines, line(one))
	}
	return fmt.Appendf(nil, "[\n%s\n]\n", bytes.Join(lines, []byte(",\n")))
}

// object encodes an object with one member per line.
func object[T any](all map[string]T) []byte {
	var lines [][]byte
	for _, key := range slices.Sorted(maps.Keys(all)) {
		lines = append(lines, fmt.Appendf(nil, "\n%s:%s", line(key), line(all[key])))
	}
	return fmt.Appendf(nil, "{%s\n}\n", bytes.Join(lines, []byte(",")))
}

func within[T any](name string, all map[string]T) []byte {
	return fmt.Appendf(nil, "{%q:%s}\n", name, bytes.TrimSpace(object(all)))
}

// line encodes strings, numbers, or structs of them. Encoding these cannot fail.
func line(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
