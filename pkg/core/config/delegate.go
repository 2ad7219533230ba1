package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/devinfo/pci"
)

var given = []string{"type", "name", "cniVersion", "runtimeConfig", "prevResult", "args", "cni.dev/valid-attachments", "cni.dev/attachments"}

// mostGiven limits what all delegates together get of the network's configuration, which is a copy for each of them.
const mostGiven = 1 << 20

// DelegateProblem returns the reason why the n-th delegate cannot run on any node, or nil. It is not in
// Problems, because DEL still runs the other delegates.
func (c *Config) DelegateProblem(n int) *Problem {
	if p := c.Unusable(n); p != nil {
		return p
	}
	for _, id := range c.DeviceIDs {
		if p := (DeviceKey{id.Key, AsID, id.ID}).Ambiguous(); p != nil {
			return p
		}
	}
	_, problem := DelegateDevices(c.Delegates[n].Key, c.DelegateConfig(n), c.Runtime)
	return problem
}

// Unusable is like DelegateProblem, but takes a delegate whose device other parsers could read as another one.
func (c *Config) Unusable(n int) *Problem {
	d := c.Delegates[n]
	if d.Type == c.Type {
		return &Problem{d.Key + ".type", fmt.Sprintf("%q", d.Type), "a plugin other than devinfo itself"}
	}
	if p := c.givenProblem(); p != nil {
		return p
	}
	var conf types.PluginConf
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(d.Raw, &conf))
	if ok {
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(d.Raw, &fields) // Parse has accepted it
		key, _, _ := strings.Cut(wrong.Field, ".")
		return &Problem{d.Key + "." + wrong.Field, clip(fields[key]), TypeInWords(wrong.Type)}
	}
	return nil
}

// DelegateConfig returns the configuration of the n-th delegate as ADD passes it on. It contains the network's name and
// version, and devinfo's args, such as the pod's. A delegate without a device of its own also gets devinfo's deviceID and,
// as with Multus, pciBusID.
func (c *Config) DelegateConfig(n int) json.RawMessage {
	keys := Object(c.Delegates[n].Raw)
	set := func(key, value string) {
		if value != "" {
			keys[key] = Encode(value)
		}
	}
	set("name", c.Name)
	set("cniVersion", c.CNIVersion)
	hasDevice := false
	for key := range keys {
		hasDevice = hasDevice || strings.EqualFold(key, "deviceID") || strings.EqualFold(key, "pciBusID")
	}
	if !hasDevice {
		set("deviceID", c.DeviceID)
		busID := c.PCIBusID
		if _, err := pci.Parse(c.DeviceID); busID == "" && err == nil {
			busID = c.DeviceID
		}
		set("pciBusID", busID)
	}
	if len(c.Args) > 0 {
		args := Object(keys["args"])
		for key, value := range c.Args {
			if key == "cni" { // contains the pod's cni-args
				cni := Object(args[key])
				maps.Copy(cni, Object(value))
				value = Encode(cni)
			}
			args[key] = value
		}
		keys["args"] = Encode(args)
	}
	return Encode(keys)
}

// Encode returns the JSON of a value that always encodes, such as a string or an object's keys. It leaves "<", ">" and "&"
// as they are, because six bytes for each would take much of a node's memory.
func Encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func (c *Config) DelegateConfigs() (list []json.RawMessage) {
	for n := range c.Delegates {
		list = append(list, c.DelegateConfig(n))
	}
	return list
}

// Object returns the keys of a JSON object, or none for anything else.
func Object(text json.RawMessage) map[string]json.RawMessage {
	keys := map[string]json.RawMessage{}
	if json.Unmarshal(text, &keys) != nil || keys == nil {
		return map[string]json.RawMessage{}
	}
	return keys
}

// givenProblem returns an error if the delegates together get too many bytes.
func (c *Config) givenProblem() *Problem {
	each := len(c.Name) + len(c.CNIVersion) + len(c.DeviceID) + max(len(c.DeviceID), len(c.PCIBusID)) + len(c.PrevResult)
	for _, object := range []map[string]json.RawMessage{c.Args, c.Runtime} {
		for key, value := range object {
			each += len(key) + len(value)
		}
	}
	if each*len(c.Delegates) > mostGiven {
		return &Problem{"delegates", fmt.Sprintf("a list of %d plugins, which get %d bytes of args, runtimeConfig and prevResult each", len(c.Delegates), each), "at most 1 MiB for all plugins together"}
	}
	return nil
}

// DelegateProblems returns the problems of all delegates.
func (c *Config) DelegateProblems() (list []*Problem) {
	for n := range c.Delegates {
		if p := c.DelegateProblem(n); p != nil {
			list = append(list, p)
		}
	}
	return list
}

// InWords returns an error of encoding/json without the names of Go's types.
func InWords(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	return fmt.Errorf("%smust be %s, not JSON of type %s", strings.TrimPrefix(wrong.Field+": ", ": "), TypeInWords(wrong.Type), wrong.Value)
}

// TypeInWords describes the JSON that decodes into a Go type.
func TypeInWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Int, reflect.Int64:
		return "a number"
	case reflect.Uint64:
		return "a number of at least 0"
	case reflect.Map:
		if t.Elem().Kind() == reflect.Bool {
			return `an object of booleans, {"mac": true}`
		}
	}
	return "an object"
}
