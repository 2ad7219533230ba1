package capture

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/hosttxt"
)

// Whatever a file of the host holds, the capture can be read and has it to the byte; and
// scrubbed it can still be read, and has no hardware address that was there.
func FuzzFile(f *testing.F) {
	for _, text := range []string{
		"", "\n-- a --\n", "-- a --", "\r\n", "a\n-- ", "\xff\x00", `{"mac": "02-00-5e-00-53-01", "ip": "fe80::5eff:fe00:5301", "args": "K8S_POD_NAME=0;K8S_POD_UID=02:00"}`,
		"enx02005e005301 0200.5e00.5301 10.0.0.1/8 ::ffff:10.0.0.1", `"phys_switch_id": "02005e005301"`,
	} {
		f.Add([]byte(text), "02")
	}
	f.Add([]byte(strings.Repeat("\xff", 20)+"{\"mac\": \"02:00:5e:00:53:01\"}\xe2"), "box")
	f.Fuzz(func(t *testing.T, data []byte, secret string) {
		const name = "root/var/run/k8s.cni.cncf.io/devinfo/cni/net1.json"
		a := &archive{title: "a host"}
		a.add(name, data)
		if back := reread(t, a, name); !bytes.Equal(back, data) {
			t.Fatalf("%q is read back as %q", data, back)
		}
		a.scrub(newScrubber([]string{secret}))
		scrubbed := bytes.ToLower(reread(t, a, name))
		for _, mac := range hardware[0].FindAllString(string(data), -1) {
			found := map[string]string{}
			if findHardware(mac, found); len(found) > 0 && bytes.Contains(scrubbed, []byte(strings.ToLower(mac))) {
				t.Errorf("%s is still in\n%q, which was\n%q", mac, scrubbed, data)
			}
		}
	})
}

// reread gives a file of the archive as one who gets the text has it.
func reread(t *testing.T, a *archive, name string) []byte {
	t.Helper()
	text, err := a.text("box")
	if err != nil {
		t.Fatal(err)
	}
	h, err := hosttxt.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := h.UnpackRoot(dir); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, strings.TrimPrefix(name, "root/")))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
