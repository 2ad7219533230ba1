package devinfo

import "encoding/json"

// VhostUser is the map "vhost-user" (section 3.1.5): a vhost-user socket.
type VhostUser struct {
	Mode string // "mode": required, "client" or "server"; "server" is the workload creating the socket, 3.1.5.1
	Path string // "path": required, path of the socket as the workload sees it, 3.1.5.2

	Extra map[string]json.RawMessage // keys that the specification does not name

	malformed map[string]json.RawMessage
}

func (v *VhostUser) table() *table {
	return &table{&v.Extra, &v.malformed, []field{
		{key: "mode", section: "3.1.5.1", required: true, value: &v.Mode, check: oneOf("client", "server"), pick: fixed},
		{key: "path", section: "3.1.5.2", required: true, value: &v.Path, check: isPath, pick: settled},
	}}
}
