package config

import "encoding/json"

// CDI is the key "cdi": the CDI spec that ADD is to write. In the strings of a
// configuration placeholders are not yet filled in.
type CDI struct {
	Kind      string // vendor/class; "" = ours
	Name      string // of the device; "" = made of the container ID and the interface name
	SocketDir string // the host's directory of the socket; "" = its path is the same on both sides
}

// readCDI takes true, false or an object, and returns the object's reader.
func (c *Config) readCDI(r *reader) (object reader) {
	const key, want = "cdi", `true, or an object {"kind": "vendor.example/class", "name": "{podUID}-{ifName}", "socketDir": "/run/vhost-user/{podUID}"}`
	raw := r.value(key)
	if raw == nil || string(raw) == "false" {
		return object
	}
	object.prefix = key + "."
	if string(raw) != "true" && json.Unmarshal(raw, &object.raw) != nil {
		r.problem(key, want)
		return reader{}
	}
	c.CDI = &CDI{}
	object.string("kind", &c.CDI.Kind)
	object.string("name", &c.CDI.Name)
	object.string("socketDir", &c.CDI.SocketDir)
	r.problems = append(r.problems, object.problems...)
	return object
}
