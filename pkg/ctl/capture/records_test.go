package capture_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/ctl/capture"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/journal"
)

// The test fails for a new field of a record until one of the two lists contains it.
func TestCaptureContainsOnlyFieldsThatCommandsRead(t *testing.T) {
	node := config.DefaultNode()
	for file, c := range map[string]struct {
		record any
		shown  string
	}{
		node.StateDir + "/attachments/net@c0ffee@net1": {new(journal.Entry),
			`Key.Network Key.ContainerID Key.IfName Netns BootID Pod Requested.DeviceIDs[].Key Requested.DeviceIDs[].ID Requested.Declared Requested.PCIID
			Requested.SocketPath File Dir Info Interface Device.Type Device.ID CDI.Dir CDI.File CDI.Device SocketDir Reason Leases[].ID Leases[].Mode`},
		node.StateDir + "/claims/u1": {new(journal.Claim), `UID Part Namespace Name BootID Pods[] Netns Leases[].ID Leases[].Mode`},
		"/claims/u1.json": {new(state.Claim),
			`Namespace Name UID Pod.Namespace Pod.Name Pod.UID Attachments[].Request Attachments[].Pool
			Attachments[].Device Attachments[].ShareID Attachments[].NodeDevice.Ref.Kind Attachments[].NodeDevice.Ref.PCI Attachments[].NodeDevice.Ref.Aux Attachments[].NodeDevice.Ref.VDPA
			Attachments[].NodeDevice.Ref.IfName Attachments[].Driver Attachments[].Network Attachments[].CNIVersion Attachments[].IfName Attachments[].Phase
			Attachments[].Error Attachments[].Ready.Status Attachments[].Execution.Sandbox Attachments[].Execution.Netns
			Attachments[].Execution.BootID Attachments[].Execution.InfoFile Attachments[].Execution.Info Attachments[].Execution.DelError
			Undeleted[].Request Undeleted[].Pool Undeleted[].Device Undeleted[].ShareID Undeleted[].NodeDevice.Ref.Kind Undeleted[].NodeDevice.Ref.PCI
			Undeleted[].NodeDevice.Ref.Aux Undeleted[].NodeDevice.Ref.VDPA Undeleted[].NodeDevice.Ref.IfName Undeleted[].Driver Undeleted[].Network
			Undeleted[].CNIVersion Undeleted[].IfName Undeleted[].Phase Undeleted[].Error Undeleted[].Ready.Status
			Undeleted[].Execution.Sandbox Undeleted[].Execution.Netns Undeleted[].Execution.BootID Undeleted[].Execution.InfoFile
			Undeleted[].Execution.Info Undeleted[].Execution.DelError`},
		"/claims/offer": {new(state.Offer),
			`Rules Digest Problem Devices[].Name Devices[].Ref.Kind Devices[].Ref.PCI Devices[].Ref.Aux Devices[].Ref.VDPA Devices[].Ref.IfName Devices[].Sharing
			Devices[].ResourceName Devices[].Why Unmatched[].Rule Unmatched[].Why Unmatched[].Nearest`},
	} {
		root, planted := t.TempDir(), map[string]bool{}
		plant(reflect.ValueOf(c.record).Elem(), "", planted)
		text, err := json.Marshal(c.record)
		must(t, err)
		text = []byte(`{"unknown":"{unknown}",` + string(text[1:]))
		difftest.Write(t, filepath.Join(root, file), string(text), 0o600)
		difftest.Contains(t, string(text), slices.Collect(maps.Keys(planted))...)
		got := taken(t, capture.Source{Name: "x", Title: "y", Sys: fstest.MapFS{}, Root: root, Parts: parts{}.Parts, State: capture.State{Settings: node, ClaimDir: "/claims"}}, false)
		var shown []string
		for _, m := range secrets.FindAllStringSubmatch(got, -1) {
			shown = append(shown, m[1])
		}
		want := strings.Fields(c.shown)
		slices.Sort(want)
		slices.Sort(shown)
		difftest.Same(t, file, slices.Compact(shown), want)
	}
}

var secrets = regexp.MustCompile(`\{([A-Za-z.\[\]]+)\}`)

// plant writes a secret with the field's path into each field that can contain text, and adds it to planted.
func plant(v reflect.Value, path string, planted map[string]bool) {
	_, encodesItself := v.Addr().Interface().(json.Marshaler)
	secret := "{" + strings.TrimPrefix(path, ".") + "}"
	switch {
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes(fmt.Appendf(nil, `{"type":"x","key":%q}`, secret))
		planted[secret] = true
	case encodesItself: // times and quantities
	case v.Kind() == reflect.String:
		v.SetString(secret)
		planted[secret] = true
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		plant(v.Elem(), path, planted)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		plant(v.Index(0), path+"[]", planted)
	case v.Kind() == reflect.Array:
		for n := range v.Len() {
			plant(v.Index(n), path+"[]", planted)
		}
	case v.Kind() == reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		plant(key, path+".key", planted)
		plant(value, path+".value", planted)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.Struct:
		for n := range v.NumField() {
			if f := v.Type().Field(n); f.IsExported() {
				plant(v.Field(n), path+"."+f.Name, planted)
			}
		}
	}
}
