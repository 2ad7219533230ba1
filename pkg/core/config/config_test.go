package config_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text))
	must(t, err)
	return c
}

var must, equal = difftest.Must, difftest.Same

func TestEveryKeyIsRead(t *testing.T) {
	got := parse(t, `{
		"cniVersion": "1.1.0", "name": "net-a", "type": "devinfo",
		"args": {"cni": {}}, "ipMasq": true, "ipam": {"type": "static"}, "dns": {}, "disableCheck": true, "disableGC": false, "cniVersions": ["1.0.0", "1.1.0"],
		"prevResult": {"cniVersion": "1.1.0"},
		"capabilities": {"CNIDeviceInfoFile": true, "deviceID": false},
		"runtimeConfig": {"CNIDeviceInfoFile": "/run/x", "deviceID": "0000:01:00.1", "mac": "02:00:00:00:00:01"},
		"deviceID": "0000:01:00.2", "pciBusID": "0000:01:00.3",
		"resourceName": "example.com/vf",
		"deviceInfo": {"type": "pci"},
		"deviceInfoFile": "auto",
		"delegates": [{"type": "macvlan", "master": "eth0"}, {"type": "tuning"}],
		"strict": true, "followLower": false, "subfunctionParent": true,
		"cdi": {"kind": "vendor.example/class", "name": "{podUID}", "socketDir": "/run/s"},
		"cni.dev/valid-attachments": [{"containerID": "c", "ifname": "net1"}],
		"cni.dev/attachments": []
	}`)
	equal(t, "configuration", got, &config.Config{
		CNIVersion: "1.1.0", Name: "net-a", Type: "devinfo",
		PrevResult: json.RawMessage(`{"cniVersion": "1.1.0"}`),
		Args:       map[string]json.RawMessage{"cni": json.RawMessage("{}")},
		Idle:       []string{"ipam", "ipMasq"},
		Runtime: map[string]json.RawMessage{
			"CNIDeviceInfoFile": json.RawMessage(`"/run/x"`), "deviceID": json.RawMessage(`"0000:01:00.1"`), "mac": json.RawMessage(`"02:00:00:00:00:01"`),
		},
		Capabilities: map[string]bool{"CNIDeviceInfoFile": true, "deviceID": false},
		InfoFile:     "/run/x",
		DeviceIDs:    []config.NamedID{{Key: "runtimeConfig.deviceID", ID: "0000:01:00.1"}, {Key: "deviceID", ID: "0000:01:00.2"}, {Key: "pciBusID", ID: "0000:01:00.3"}},
		DeviceID:     "0000:01:00.1", PCIBusID: "0000:01:00.3",
		ResourceName: "example.com/vf",
		DeviceInfo:   json.RawMessage(`{"type": "pci"}`),
		AutoFile:     true,
		Delegates: []config.Delegate{
			{Key: "delegates[0]", Type: "macvlan", Raw: json.RawMessage(`{"type": "macvlan", "master": "eth0"}`)}, {Key: "delegates[1]", Type: "tuning", Raw: json.RawMessage(`{"type": "tuning"}`)},
		},
		Strict: true, FollowLower: false, SubfunctionParent: true,
		CDI:   &config.CDI{Kind: "vendor.example/class", Name: "{podUID}", SocketDir: "/run/s"},
		Valid: []types.GCAttachment{{ContainerID: "c", IfName: "net1"}},
	})
}

func TestEveryKeyIsOptional(t *testing.T) {
	want := &config.Config{CNIVersion: "0.1.0", FollowLower: true}
	equal(t, "{}", parse(t, `{}`), want)
	equal(t, "nulls", parse(t, `{
		"cniVersion": null, "name": null, "type": null, "prevResult": null, "capabilities": null, "runtimeConfig": null,
		"deviceID": null, "pciBusID": null, "resourceName": null, "deviceInfo": null, "deviceInfoFile": null, "delegates": null,
		"strict": null, "cdi": null, "followLower": null, "subfunctionParent": null, "cni.dev/valid-attachments": null
	}`), want)
	got := parse(t, `{"runtimeConfig": {"CNIDeviceInfoFile": null, "deviceID": null}}`)
	if got.InfoFile != "" || got.DeviceID != "" || len(got.Problems) > 0 {
		t.Errorf("nulls in runtimeConfig: %+v", got)
	}
}

// Each line of the file is a configuration. Its output is what it says of devices, CDI and valid attachments.
func TestDevicesCDIAndValidAttachmentsAreRead(t *testing.T) {
	goldentest.Lines(t, "testdata/read.txt", func(text string) (output []string) {
		c, err := config.Parse([]byte(text))
		if err != nil {
			message, _, _ := strings.Cut(err.Error(), " json: ") // the library's words
			return []string{message}
		}
		equal(t, text+": device", append(c.DeviceIDs, config.NamedID{})[0].ID, c.DeviceID)
		for _, id := range c.DeviceIDs {
			output = append(output, fmt.Sprintf("%s: %s", id.Key, id.ID))
		}
		if c.PCIBusID != "" {
			output = append(output, "PCI bus ID: "+c.PCIBusID)
		}
		if len(c.Delegates) > 0 {
			output = append(output, "delegate: "+string(c.DelegateConfig(0)))
			devices, problem := config.DelegateDevices("delegates[0]", c.DelegateConfig(0), c.Runtime)
			for _, d := range devices {
				output = append(output, fmt.Sprintf("delegate: %s as %s: %s", d.Key, d.As, d.Value))
			}
			if problem != nil || c.DelegateProblem(0) != nil {
				t.Errorf("%s: %v, %v", text, problem, c.DelegateProblem(0))
			}
		}
		if c.CDI != nil {
			output = append(output, fmt.Sprintf("CDI: %+v", *c.CDI))
		}
		if c.Valid != nil {
			output = append(output, fmt.Sprint("valid: ", c.Valid))
		}
		if len(c.Delegates) > 1 {
			output = append(output, "the last delegate: "+c.Delegates[len(c.Delegates)-1].Type)
		}
		for _, p := range c.Problems {
			output = append(output, "problem: "+p.Key)
		}
		return output
	})
}

// A key that is not understood, or not known, leaves the default.
func TestProblemsAndUnknownKeysMatchGoldenFile(t *testing.T) {
	goldentest.Lines(t, "testdata/problems.txt", func(text string) (output []string) {
		c := parse(t, text)
		for _, p := range c.Problems {
			output = append(output, p.Error())
		}
		for _, p := range c.DelegateProblems() {
			output = append(output, "only ADD: "+p.Error())
		}
		if !c.FollowLower || c.Strict || c.SubfunctionParent || c.AutoFile {
			t.Errorf("%s: %+v", text, c)
		}
		return append(output, c.Warnings()...)
	})
}

func TestLongValueIsCutAtCharacterBoundary(t *testing.T) {
	full := strings.Repeat("x", 118) // and two quotes
	equal(t, "120 bytes", parse(t, `{"deviceInfoFile": "`+full+`"}`).Problems[0].Value, `"`+full+`"`)
	for n := range 4 {
		value := strings.Repeat("x", n) + strings.Repeat("é€", 100)
		for _, text := range []string{`{"deviceInfoFile": "` + value + `"}`, `{"delegates": ["` + value + `"]}`} {
			got := parse(t, text).Problems[0].Value
			if len(got) > 125 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") || !strings.HasPrefix(`"`+value, strings.TrimSuffix(got, "…")) {
				t.Errorf("%q", got)
			}
		}
	}
}

// The author of a network could otherwise slow down every plugin call and fill the node's log.
func TestAtMostTenUnknownKeysAreListed(t *testing.T) {
	const keys = 140_000
	var many strings.Builder
	for n := range keys {
		fmt.Fprintf(&many, `"key %06d": 0, `, n)
	}
	for text, more := range map[string]int{
		`{` + many.String() + `"name": "n"}`: keys - 10, `{"cdi": {` + many.String() + `"name": ""}}`: keys - 10,
		`{"` + strings.Repeat("a", 2<<20) + `": 1, "cdi": {` + many.String() + `"name": ""}}`:                                         keys + 1 - 10,
		`{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7, "h": 8, "i": 9, "j": 10, "` + strings.Repeat("k", 2<<20) + `": 11}`: 1,
	} {
		c := parse(t, text)
		lines := c.Warnings()
		size := len(strings.Join(lines, "\n"))
		if len(c.Unknown) != 10 || len(lines) != 11 || size > 4096 || c.MoreUnknown != more {
			t.Errorf("%.40s: %d keys, %d more, %d lines of %d bytes", text, len(c.Unknown), c.MoreUnknown, len(lines), size)
		}
		equal(t, "the last line", lines[10], fmt.Sprintf("%d more keys of the network configuration are not known", more))
	}
}

func TestAtMostTenProblemsAreListed(t *testing.T) {
	c := parse(t, `{"name": "n", "delegates": [`+strings.Repeat(`{"Type": 1, "tYPE": 2}, `, 20_000)+`{"type": "b"}], "strict": 5, "cni.dev/valid-attachments": 5}`)
	if len(c.Problems) != 10 || len(c.Delegates) != 0 || !slices.ContainsFunc(c.Problems, func(p *config.Problem) bool { return p.Key == "cni.dev/valid-attachments" }) {
		t.Errorf("%d problems, %d delegates", len(c.Problems), len(c.Delegates))
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`{}`, `null`, `{"name": "n", "delegates": [{"type": "a"}, null, 5], "strict": 1, "unknown": "x"}`,
		`{"runtimeConfig": {"CNIDeviceInfoFile": "/x", "deviceID": 5}, "deviceInfo": {"type": "pci"}}`,
		`{"cni.dev/valid-attachments": [{"containerID": "a", "ifname": "b"}], "prevResult": {}, "deviceInfoFile": "auto"}`,
		`{"deviceInfo":   5, "é": "€"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse(data)
		if (c == nil) != (err != nil) {
			t.Fatalf("%+v, %v", c, err)
		}
		if err != nil {
			return
		}
		for _, p := range c.Problems {
			if p.Key == "" || p.Want == "" || p.Value == "" || p.Error() == "" {
				t.Errorf("problem %+v", p)
			}
		}
		for _, u := range c.Unknown {
			if u.Nearest != "" && u.Nearest == u.Key {
				t.Errorf("unknown %+v", u)
			}
		}
		for _, d := range c.Delegates {
			if d.Type == "" || !json.Valid(d.Raw) {
				t.Errorf("delegate %+v", d)
			}
		}
		first := append(c.DeviceIDs, config.NamedID{})[0]
		if first.ID != c.DeviceID || slices.ContainsFunc(c.DeviceIDs, func(n config.NamedID) bool { return n.ID == "" || n.Key == "" }) {
			t.Errorf("device %q of %q", c.DeviceID, c.DeviceIDs)
		}
	})
}

// One edit for four bytes is few; two letters that changed places are one. Nearest does not compare bytes after the 64th, so a key of a megabyte costs no more than one of 64 bytes.
// Words that differ only after the 64th byte are equal, and the first wins.
func TestNearestHasFewEdits(t *testing.T) {
	same := strings.Repeat("x", 63)
	words := []string{"deviceID", "deviceInfo", "deviceInfoFile", "strict", "delegates", "name", same + "xa", same + "xb", same + "a", same + "b"}
	for key, want := range map[string]string{
		"DEVICEID": "deviceID", "devicID": "deviceID", "evidceID": "deviceID", "deviceInf": "deviceInfo", "device_info": "deviceInfo", "deviceinfofil": "deviceInfoFile",
		"delegate": "delegates", "strikt": "strict", "nmae": "name", "anme": "name", "anmx": "", "xname": "name", "xyname": "", "nam": "name", "nom": "", "": "", "k1": "", "strict" + strings.Repeat("q", 1<<20): "", same + "xb": same + "xa", same + "b": same + "b", "x" + same + strings.Repeat("y", 1<<20): same + "xa",
	} {
		equal(t, fmt.Sprintf("%.70s", key), config.Nearest(key, words), want)
	}
	equal(t, "a key that resembles one", config.Suggest("strikt", words[3:6]), "did you mean strict?")
	equal(t, "a key that resembles none", config.Suggest("k1", words[3:6]), "the known ones are strict, delegates, name")
}

func TestLevelsDoNotCountBracketsInStrings(t *testing.T) {
	for text, want := range map[string]int{`1`: 0, `[]`: 1, `[[1], {"a": [2]}]`: 3, `"[["`: 0, `["[[a", []]`: 2, `["\"[[", "a"]`: 1, `["\\", [[]]]`: 3} {
		equal(t, text, config.Levels([]byte(text)), want)
	}
}
