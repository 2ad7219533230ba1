package validate

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/result"
)

// fileCapability makes the runtime pass the path of the device-info file (Device Information Specification, section
// 5.1).
const fileCapability = "CNIDeviceInfoFile"

// plugin is a configuration of our plugin in a network, as the runtime would pass it.
type plugin struct {
	*network
	path   string
	object map[string]json.RawMessage
	after  bool   // other plugins run before this one
	maker  string // the type of the first later plugin that makes an interface; "" = none does
	mover  string // the type of an earlier plugin that moves the RDMA device; "" = none does
	binder string // the type of an earlier plugin that makes one interface of several devices; "" = none does
	cfg    *config.Config
}

func (p *plugin) check() {
	p.object["cniVersion"] = config.Encode(p.version)
	if delete(p.object, "name"); p.name != nil {
		p.object["name"] = p.name
	}
	for _, key := range []string{"deviceID", "pciBusID"} {
		if p.resource && p.object[key] != nil {
			p.find("resource-replaces", p.path+"."+key, p.object[key])
			delete(p.object, key)
		}
	}
	var err error
	raw := config.Encode(p.object)
	if p.cfg, err = config.Parse(raw); err != nil {
		p.wrong(p.path, raw, "%v", err)
		return
	}
	p.keys()
	if prev := p.cfg.PrevResult; prev != nil {
		if _, err := result.Parse(prev, p.cfg.CNIVersion); err != nil {
			p.wrong(p.path+".prevResult", prev, "must be a CNI result of a version up to %s: %v", p.cfg.CNIVersion, err)
		}
	}
	declared, ok := p.placeholders()
	p.devices(declared)
	if cdi := p.cfg.CDI; cdi != nil && cdi.SocketDir != "" && !filepath.IsAbs(cdi.SocketDir) {
		p.find("format-doubt", p.path+".cdi.socketDir", config.Encode(cdi.SocketDir), "rule", "must begin with a slash, or no container gets the socket")
	}
	p.capability()
	p.position(ok && !slices.ContainsFunc(p.cfg.Problems, mayNameDevice) && attachment.LeadsToNoDevice(p.cfg, declared))
	p.delegates()
}

// mayNameDevice reports whether a value that is not supported would name a device, or stand for one.
func mayNameDevice(problem *config.Problem) bool {
	key := problem.Key[:strings.IndexAny(problem.Key+".", ".[")]
	return slices.ContainsFunc([]string{"deviceID", "pciBusID", "deviceInfo", "delegates", "runtimeConfig", "prevResult"}, func(k string) bool {
		return strings.EqualFold(k, key) // one in another spelling is a problem too
	})
}

// keys reports keys that are not known, and values that are not supported.
func (p *plugin) keys() {
	for _, problem := range slices.Concat(p.cfg.Problems, p.cfg.DelegateProblems()) {
		if problem.Key != "name" && problem.Key != "cniVersion" { // see identity
			p.problem(problem)
		}
	}
	for _, key := range p.cfg.Idle {
		p.warn(p.path+"."+key, p.object[key], "%s", config.NoEffectWithDelegates)
	}
	for _, u := range p.cfg.Unknown {
		value := p.object[u.Key]
		if parent, key, ok := strings.Cut(u.Key, "."); ok && value == nil { // a key in an object, such as "cdi.knd"
			value = config.Object(p.object[parent])[key]
		}
		p.find("unknown-key", p.path+"."+u.Key, value, "nearest", config.NearestKnown(u.Nearest))
	}
	if p.cfg.MoreUnknown > 0 {
		p.warn(p.path, p.object["type"], "has %d more keys that are not known", p.cfg.MoreUnknown)
	}
}

// problem adds err if it is a [config.Problem].
func (p *plugin) problem(err error) {
	if problem, is := errors.AsType[*config.Problem](err); is {
		p.add(Finding{Path: p.path + "." + problem.Key, Value: problem.Value, Rule: "must be " + problem.Want})
	}
}

// sample is the attachment for checking placeholders. Each placeholder is replaced by its own name in capitals, and the
// IDs have the length that they have in Kubernetes, for the length of a socket's path.
var sample = attachment.Args{
	ContainerID: strings.Repeat("CONTAINERID-", 6)[:64], IfName: "IFNAME",
	CNIArgs: "K8S_POD_NAMESPACE=PODNAMESPACE;K8S_POD_NAME=PODNAME;K8S_POD_UID=" + strings.Repeat("PODUID-", 6)[:36],
}

// placeholders checks deviceInfo and cdi, whose values may have placeholders, and returns the
// declared device information; ok is false if that is wrong.
func (p *plugin) placeholders() (declared *devinfo.Info, ok bool) {
	a, _ := attachment.New(p.cfg, sample, "/") // sample's CNI_ARGS are valid
	doubts, wrong := attachment.Vet(p.cfg)
	p.problem(wrong)
	_, err := a.CDI(p.cfg)
	p.problem(err)
	var all devinfo.Violations
	if info, err := devinfo.Parse(p.cfg.DeviceInfo); err == nil { // otherwise Declared returns the error
		all = info.ValidateDeclared().Errors() // Declared returns only the first one
	}
	for _, v := range all {
		p.violation(p.path+".deviceInfo", v)
	}
	if wrong != nil || len(all) > 0 {
		return nil, false
	}
	declared, warnings, err := a.Declared(p.cfg)
	if err != nil {
		p.problem(err)
		return nil, false
	}
	for _, v := range slices.Concat(doubts, warnings) {
		p.violation(p.path+".deviceInfo", v)
	}
	whole := devinfo.Merge(nil, nil, declared)
	if whole == nil || p.after || p.resource || p.cfg.PrevResult != nil || len(p.cfg.Delegates) > 0 {
		return declared, true
	}
	isSocket := whole.Type == devinfo.TypeVhostUser || whole.Type == devinfo.TypeMemif
	only := p.cfg.DeviceID == "" && !p.dra && (p.multus || !p.cfg.Capabilities["deviceID"]) // nothing else names the device
	if isSocket || whole.Type != "" && only {
		for _, v := range whole.Validate().Errors() {
			p.violation(p.path+".deviceInfo", v)
		}
	}
	return declared, true
}

// devices reports a PCI address that differs from the first one, because ADD refuses two devices. It reports
// nothing if a socket is declared, because ADD then accepts any number.
func (p *plugin) devices(declared *devinfo.Info) {
	ids := p.cfg.DeviceIDs
	switch d := declared.Device().(type) {
	case *devinfo.PCI:
		ids = append([]config.NamedID{{Key: "deviceInfo.pci.pci-address", ID: d.Address}}, ids...)
	case *devinfo.VhostUser, *devinfo.Memif:
		return
	}
	var first string
	for _, id := range ids {
		if a, err := pci.Parse(id.ID); err == nil && cmp.Or(first, a.String()) != a.String() {
			p.find("two-devices", p.path+"."+id.Key, config.Encode(id.ID), "device", first)
		} else if err == nil {
			first = a.String()
		}
	}
}

// capability reports a configuration for which the runtime does not pass the path of the device-info file.
func (p *plugin) capability() {
	switch {
	case p.cfg.AutoFile || p.cfg.InfoFile != "":
	case p.primary:
		p.find("default-network", p.path+".deviceInfoFile", nil)
	case !p.cfg.Capabilities[fileCapability] && p.multus && !p.resource: // declaring the capability alone would have no effect
		p.find("no-resource-nor-capability", p.path+".deviceInfoFile", nil)
	case !p.cfg.Capabilities[fileCapability]:
		p.find("no-capability", p.path+".capabilities", p.object["capabilities"])
	case p.multus && !p.resource && p.cfg.Strict: // ADD refuses it
		p.find("no-resource-strict", p.path+".deviceInfoFile", nil)
	case p.multus && !p.resource:
		p.find("no-resource", p.path+".deviceInfoFile", nil)
	}
}

// position reports a wrong position in the chain, where devinfo looks for the device too early or too late. If devinfo has
// no source of a device (idle), ADD refuses the configuration. If the plugin that creates the interface runs after devinfo,
// the interface does not exist yet.
func (p *plugin) position(idle bool) {
	device := p.resource || !p.multus && p.cfg.Capabilities["deviceID"] // the runtime passes a deviceID
	idle = idle && !p.after && !device
	kind := p.object["type"]
	if p.mover != "" {
		p.find("after-mover", p.path, kind, "plugin", p.mover)
	}
	if p.binder != "" && p.cfg.DeviceInfo == nil && p.cfg.DeviceID == "" && !device {
		p.find("after-binder", p.path, kind, "plugin", p.binder)
	}
	switch {
	case idle && p.maker != "":
		p.find("before-maker", p.path, kind, "plugin", p.maker)
	case idle && p.dra:
		p.find("no-source-of-claim", p.path, kind)
	case idle:
		remedy := `declare "capabilities": {"deviceID": true} if the runtime passes one`
		if p.primary {
			remedy = "attach the device by a secondary network"
		} else if p.multus {
			remedy = "give the " + definition + " the annotation " + resourceAnnotation
		}
		p.find("no-source", p.path, kind, "remedy", remedy)
	case p.maker != "" && p.cfg.DeviceInfo == nil && (p.after || p.cfg.DeviceID != "" || device || p.object["delegates"] != nil):
		p.find("no-pciid", p.path, kind, "plugin", p.maker)
	}
}

// delegates checks the plugins that devinfo runs as its delegates.
func (p *plugin) delegates() {
	taken := map[string]bool{fileCapability: true, "deviceID": true}
	for _, d := range p.cfg.Delegates {
		here := p.path + "." + d.Key
		if p.Find != nil && d.Type != p.cfg.Type { // keys has reported devinfo itself
			if err := p.Find(d.Type); err != nil {
				p.find("delegate-missing", here+".type", config.Encode(d.Type), "why", err.Error())
			}
		}
		wanted := wanted(d.Raw)
		if d.Type == "portmap" && !slices.Contains(wanted, "portMappings") {
			p.find("portmap", here+".capabilities", nil)
		}
		if roles[d.Type] == mover {
			p.find("delegate-mover", here+".type", config.Encode(d.Type), "plugin", d.Type)
		}
		for _, name := range wanted {
			if taken[name] = true; !p.cfg.Capabilities[name] && (name != fileCapability || !p.cfg.AutoFile) { // ADD passes an automatic path
				p.find("capability-deeper", here+".capabilities."+name, json.RawMessage("true"), "at", strings.TrimPrefix(p.path+".capabilities", "."))
			}
		}
	}
	known := []string{fileCapability, "deviceID"}
	for _, name := range slices.Sorted(maps.Keys(p.cfg.Capabilities)) {
		switch here, near := p.path+".capabilities."+name, config.Nearest(name, known); {
		case !p.cfg.Capabilities[name] || taken[name]:
		case near != "":
			p.find("unknown-key", here, json.RawMessage("true"), "nearest", config.NearestKnown(near))
		case len(p.cfg.Delegates) > 0:
			p.find("capability-idle", here, json.RawMessage("true"))
		}
	}
}

// wanted returns the capabilities that a delegate declares, sorted.
func wanted(delegate json.RawMessage) []string {
	var child struct{ Capabilities map[string]bool }
	_ = json.Unmarshal(delegate, &child) // DelegateProblems has the error
	maps.DeleteFunc(child.Capabilities, func(_ string, declared bool) bool { return !declared })
	return slices.Sorted(maps.Keys(child.Capabilities))
}
