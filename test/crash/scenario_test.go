package crash_test

import (
	"encoding/json"
	"maps"
)

// conf is a network configuration.
type conf map[string]any

func (c conf) with(more conf) conf {
	all := maps.Clone(c)
	maps.Copy(all, more)
	return all
}

// gc returns the configuration as a runtime passes it to GC: without the data of an attachment, and with an empty
// list of valid attachments.
func (c conf) gc() conf {
	all := c.with(conf{"cni.dev/valid-attachments": []any{}})
	for _, key := range []string{"runtimeConfig", "prevResult", "deviceID"} {
		delete(all, key)
	}
	return all
}

func (c conf) String() string {
	text, _ := json.Marshal(c) // strings and lists of them always encode
	return string(text)
}

// An attachment is one interface of one container. uid is that of its pod.
type attachment struct{ container, ifName, netns, uid string }

// ours is the attachment of the calls with faults.
var ours = attachment{"c0ffee00c0ffee00c0ffee00", "net1", podNetns, podUID}

// path returns the path of the device-info file that the runtime requests. Its name is like Multus's.
func (a attachment) path(network string) string {
	return infoDir + "/default-" + network + "-" + a.container + "_" + a.ifName
}

// base returns a configuration with only the network and the path of the file.
func (a attachment) base(network string) conf {
	return conf{
		"cniVersion": "1.1.0", "name": network, "type": "devinfo",
		"capabilities":  conf{"CNIDeviceInfoFile": true},
		"runtimeConfig": conf{"CNIDeviceInfoFile": a.path(network)},
	}
}

func (a attachment) chained(network string) conf {
	return a.base(network).with(conf{
		"deviceID":   vf,
		"prevResult": conf{"cniVersion": "1.1.0", "interfaces": []any{conf{"name": a.ifName, "sandbox": a.netns}}},
	})
}

func (a attachment) standalone(network string) conf {
	return a.base(network).with(conf{"deviceID": vf})
}

func (a attachment) socket(network string) conf {
	c := a.base(network).with(conf{
		"deviceInfoFile": "auto", "cdi": conf{"name": "{podUID}-{ifName}"},
		"deviceInfo": conf{"type": "vhost-user", "vhost-user": conf{"mode": "client", "path": socketDirs + "/{podUID}/{ifName}.sock"}},
	})
	delete(c, "runtimeConfig")
	return c
}

func (a attachment) macvlan(network string) conf {
	return a.standalone(network).with(conf{"delegates": []any{conf{"type": "macvlan", "master": "nic", "mode": "bridge"}}})
}

func (a attachment) marker(network string) conf {
	return a.standalone(network).with(conf{"delegates": []any{conf{"type": marker}}})
}

func (a attachment) bridge(network string) conf {
	ipam := conf{"type": "host-local", "dataDir": ipamDir, "subnet": "10.1.0.0/16"}
	return a.standalone(network).with(conf{"cdi": true, "delegates": []any{conf{"type": "bridge", "bridge": "br0", "ipam": ipam}}})
}

func named(name string) conf { return conf{"cdi": conf{"name": "{containerID}-" + name}} }

// A scenario is a kind of attachment, and the events before its ADD.
type scenario struct {
	name   string
	conf   conf
	former conf   // configuration of an earlier ADD of the attachment; nil = no earlier ADD
	early  string // content of the device-info file before the ADD; "" = the file does not exist
	pod    bool   // an earlier plugin in the chain has created the pod's interface
}

func (s scenario) delegating() bool { return s.conf["delegates"] != nil }

// scenarios returns the scenarios of the network "net".
func scenarios() []scenario {
	const net = "net"
	withCDI := ours.chained(net).with(conf{"cdi": true})
	elsewhere := conf{"runtimeConfig": conf{"CNIDeviceInfoFile": ours.path("former")}}
	early := `{"type": "pci", "version": "1.0.0", "pci": {"pci-address": "` + vf + `"}}` + "\n"
	return []scenario{
		{name: "chained", conf: ours.chained(net), pod: true},
		{name: "standalone", conf: ours.standalone(net)},
		{name: "prepared", conf: ours.chained(net), early: early, pod: true},
		{name: "socket", conf: ours.socket(net)},
		{name: "cdi", conf: withCDI, pod: true},
		{name: "macvlan", conf: ours.macvlan(net)},
		{name: "bridge", conf: ours.bridge(net)},
		{name: marker, conf: ours.marker(net)},
		{name: "repeated", conf: withCDI, former: withCDI, pod: true},
		{name: "moved", conf: ours.chained(net).with(named("new")), former: ours.chained(net).with(elsewhere).with(named("old")), pod: true},
	}
}

// A bystander is an attachment of another network. It must not change.
type bystander struct {
	attachment
	conf conf
}

// bystanders returns one bystander of each kind.
func bystanders() (list []bystander) {
	const network = "other"
	add := func(ifName string, conf func(attachment, string) conf) {
		a := attachment{"decaf000decaf000decaf000", ifName, otherNetns, otherUID}
		c := conf(a, network)
		if c["deviceID"] != nil {
			c["deviceID"] = othersVF
		}
		list = append(list, bystander{a, c})
	}
	add("net1", attachment.standalone)
	add("net2", attachment.socket)
	add("net3", attachment.macvlan)
	add("net4", attachment.bridge)
	add("net5", func(a attachment, network string) conf { return a.standalone(network).with(conf{"cdi": true}) })
	return list
}
