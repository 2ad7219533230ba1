package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// fields are the fields kept of an interface, in their order of appearance.
var fields = []string{
	"ifindex", "ifname", "link", "link_index", "link_netnsid", "flags", "mtu", "master", "operstate", "link_type",
	"address", "permaddr", "linkinfo", "phys_port_name", "phys_switch_id", "parentbus", "parentdev", "vfinfo_list", "altnames",
}

var (
	ethtool = regexp.MustCompile(`^ethtool -i (\S+)$`)
	eswitch = regexp.MustCompile(`^devlink dev eswitch show (\S+) -j$`)
	busInfo = regexp.MustCompile(`(?m)^bus-info: *(\S*) *$`)
)

// netlinkParts splits netlink.txt, sections of "== COMMAND" and its output,
// into the files below netlink/. A command that printed nothing, or an empty
// list, gives no file.
func netlinkParts(text string) (map[string][]byte, error) {
	parts := make(map[string][]byte)
	buses := make(map[string]json.RawMessage)
	modes := make(map[string]json.RawMessage)
	for section := range strings.SplitSeq("\n"+text, "\n== ") {
		command, output, _ := strings.Cut(section, "\n")
		output = strings.TrimSpace(output)
		if output == "" || output == "[]" {
			continue
		}
		var err error
		switch {
		case command == "ip -d -j link":
			parts["ip-link.json"], err = list(output, fields)
		case command == "rdma link -j":
			parts["rdma-link.json"], err = list(output, []string{"ifindex", "ifname", "port", "state", "netdev", "netdev_index"})
		case command == "devlink port -j":
			parts["devlink-port.json"], err = object("port", output)
		case command == "vdpa dev config show -j":
			parts["vdpa-config.json"], err = object("config", output)
		case ethtool.MatchString(command):
			if m := busInfo.FindStringSubmatch(output); m != nil {
				buses[ethtool.FindStringSubmatch(command)[1]], err = json.Marshal(m[1])
			}
		case eswitch.MatchString(command):
			var one map[string]map[string]json.RawMessage
			err = json.Unmarshal([]byte(output), &one)
			maps.Copy(modes, one["dev"])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
	}
	parts["ethtool.json"] = []byte(members(buses) + "\n")
	parts["devlink-eswitch.json"] = []byte(`{"dev":` + members(modes) + "}\n")
	return parts, nil
}

// list writes a JSON array with one object on a line, and of that only the
// fields that concern discovery: no queues, offloads and the like.
func list(output string, fields []string) ([]byte, error) {
	var all []map[string]json.RawMessage
	if err := json.Unmarshal([]byte(output), &all); err != nil {
		return nil, err
	}
	objects := make([]string, 0, len(all))
	for _, one := range all {
		var pairs []string
		for _, field := range fields {
			if value, ok := one[field]; ok {
				pairs = append(pairs, fmt.Sprintf("%q:%s", field, value))
			}
		}
		objects = append(objects, "{"+strings.Join(pairs, ",")+"}")
	}
	return []byte("[\n" + strings.Join(objects, ",\n") + "\n]\n"), nil
}

// object writes {"name": {...}} with one member of the inner object on a line.
func object(name, output string) ([]byte, error) {
	var v map[string]map[string]json.RawMessage
	if err := json.Unmarshal([]byte(output), &v); err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "{%q:%s}\n", name, members(v[name])), nil
}

func members(m map[string]json.RawMessage) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, fmt.Sprintf("\n%q:%s", key, m[key]))
	}
	return "{" + strings.Join(pairs, ",") + "\n}"
}
