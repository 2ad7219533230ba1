package devinfo

import "encoding/json"

// Memif is the map "memif" (section 3.1.6): a shared memory packet interface.
type Memif struct {
	Role string // "role": required, "master" or "slave"; "master" is the workload creating the socket, 3.1.6.1
	Path string // "path": required, path of the socket as the workload sees it, 3.1.6.2
	Mode string // "mode": required, "ethernet", "ip" or "inject-punt", 3.1.6.3

	Extra map[string]json.RawMessage // keys that the specification does not name

	malformed map[string]json.RawMessage
}

// punt is how network-attachment-definition-client spells "inject-punt".
const punt, injectPunt = "punt", "inject-punt"

func (m *Memif) table() *table {
	return &table{&m.Extra, &m.malformed, []field{
		{key: "role", section: "3.1.6.1", required: true, value: &m.Role, check: oneOf("master", "slave"), pick: fixed},
		{key: "path", section: "3.1.6.2", required: true, value: &m.Path, check: isPath, pick: settled},
		{key: "mode", section: "3.1.6.3", required: true, value: &m.Mode, check: oneOf("ethernet", "ip", injectPunt), pick: fixed},
	}}
}
