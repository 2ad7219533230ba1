package devices_test

import (
	"encoding/json"
	"testing"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/test/difftest"
)

func TestRecordWithInvalidAPIObjectIsRefused(t *testing.T) {
	for published, invalid := range map[string]string{
		`{"name":"vf","attributes":{"ifName":{"string":"eth0"}}}`: `{"networkData":{"interfaceName":["net1"]}}`,
		`{"name":"vf","attributes":["ifName"]}`:                   `{}`,
	} {
		at := state.Attachment{Request: "nic", NodeDevice: &state.NodeDevice{Published: json.RawMessage(published)}}
		at.Metadata = json.RawMessage(invalid)
		record := &state.Claim{Attachments: []state.Attachment{{Request: "bare"}, at}}
		difftest.Says(t, devices.CheckRecord(record), `request "nic": json: cannot unmarshal`)
		record.Undeleted, record.Attachments = record.Attachments, nil
		difftest.Says(t, devices.CheckRecord(record), `request "nic": json: cannot unmarshal`)
	}
	valid := state.NodeDevice{Published: devices.Encoded(map[string]string{"name": "vf"})}
	difftest.Must(t, devices.CheckRecord(&state.Claim{Attachments: []state.Attachment{{NodeDevice: &valid}}}))
	difftest.Equal(t, devices.Published(&valid).Name, "vf")
}
