package cniconfig_test

import (
	"encoding/json"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/cniconfig"
)

const static = `{"cniVersion":"1.0.0","name":"lan","plugins":[{"type":"macvlan","capabilities":{"ips":true,"mac":true}},` +
	`{"type":"bandwidth","capabilities":{"bandwidth":true,"portMappings":true,"infinibandGUID":true}}]}`

func TestAClaimMaySetWhatItsClassSays(t *testing.T) {
	c := claim(t, "class "+with(`"ifName":"net1","attach":"Late","claimMaySet":["ips","mac"],"config":`+static),
		"claim "+with(`"ips":["10.1.0.7/24","fd00::7"],"mac":"02:00:00:00:00:07"`))
	got := resolve(t, c, cniconfig.Policy{Driver: driver})[0]
	want := map[string]json.RawMessage{"ips": json.RawMessage(`["10.1.0.7/24","fd00::7"]`), "mac": json.RawMessage(`"02:00:00:00:00:07"`)}
	difftest.Equal(t, got.Capabilities, want)
	if !got.Late {
		t.Error("not late")
	}
}

func TestAValueThatAClaimMayNotSetIsRefusedByKeyAndValue(t *testing.T) {
	all := `"claimMaySet":["ips","mac","bandwidth","portMappings","infinibandGUID"],`
	for value, test := range map[string]struct{ may, rule, remedy string }{
		`"ips":["10.1.0.7/24"]`:                {"", `ips ["10.1.0.7/24"]: the DeviceClass does not let claims set it`, "claimMaySet: [ips]"},
		`"mac":"02:00:00:00:00:07"`:            {`"claimMaySet":["ips"],`, "mac", "claimMaySet: [mac]"},
		`"ips":["10.1.0.777/24"]`:              {all, `"10.1.0.777/24" is not an address`, "fd00::7/64"},
		`"ips":"10.1.0.7/24"`:                  {all, "ips", "fd00::7/64"},
		`"ips":[]`:                             {all, "it is empty", "fd00::7/64"},
		`"ips":["fe80::1%eth0"]`:               {all, "not an address", "fd00::7/64"},
		`"mac":"02:00:00:00:00"`:               {all, "not a hardware address of 6 bytes", "02:00"},
		`"infinibandGUID":"02:00:00:00:00:07"`: {all, "of 8 bytes", "c2:11"},
		`"bandwidth":{"ingressRate":-1}`:       {all, "bandwidth", "in bits"},
		`"bandwidth":{"rate":1}`:               {all, `unknown field`, "in bits"},
		`"portMappings":[{"hostPort":0,"containerPort":80,"protocol":"tcp"}]`:                    {all, "1 to 65535", "hostPort"},
		`"portMappings":[{"hostPort":1,"containerPort":80,"protocol":"icmp"}]`:                   {all, `protocol "icmp"`, "hostPort"},
		`"portMappings":[{"hostPort":1,"containerPort":80,"protocol":"tcp","hostIP":"nowhere"}]`: {all, `hostIP "nowhere"`, "hostPort"},
		`"dns":{}`:        {all, `unknown key "dns"`, "infinibandGUID"},
		`"attach":"Late"`: {all, `unknown key "attach"`, "infinibandGUID"},
	} {
		c := claim(t, "class "+with(`"ifName":"net1",`+test.may+`"config":`+static), "claim "+with(value))
		r := refused(t, c, cniconfig.Policy{Driver: driver})
		if !strings.Contains(r.Rule, test.rule) || !strings.Contains(r.Remedy, test.remedy) {
			t.Errorf("%s: got %v", value, r)
		}
	}
}

func TestAValueThatNoPluginTakesIsRefused(t *testing.T) {
	c := claim(t, "class "+with(`"ifName":"net1","claimMaySet":["ips"],"config":`+macvlan), "claim "+with(`"ips":["10.1.0.7/24"]`))
	if r := refused(t, c, node); !strings.Contains(r.Rule, "no plugin of network lan takes it") {
		t.Error(r)
	}
}

func TestExtensionsOfAClassAreChecked(t *testing.T) {
	for extra, rule := range map[string]string{
		`"attach":"Early"`:          `attach "Early" is not known`,
		`"claimMaySet":"ips"`:       "claimMaySet is not a list",
		`"claimMaySet":["ips","x"]`: `claimMaySet: "x" is not known`,
		`"ips":["10.1.0.7/24"]`:     `unknown key "ips"`,
	} {
		c := claim(t, "class "+with(`"ifName":"net1",`+extra+`,"config":`+macvlan))
		if r := refused(t, c, node); !strings.Contains(r.Rule, rule) {
			t.Errorf("%s: got %v", extra, r)
		}
	}
}
