package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/test/difftest"
)

// FuzzDecode checks that decode is the inverse of encode, and that it reports an entry of a newer build.
func FuzzDecode(f *testing.F) {
	data, err := encode(Complete())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	for _, text := range []string{
		`{"format": 4}`, `{"format": 4, "time": "never", "network": 7}`, `{"FORMAT": 9, "leases": {}}`, `{"format": 1e1}`, `{"format": 3, "leases": "*"}`,
		`{"time": "9999-12-31T23:59:59.999999999-23:59"}`, `{"info": null, "delegates": [null, "<\u2028>"], "capabilityArgs": {"": 1e400}}`, `[]`, `null`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e := new(Entry)
		err := decode(data, e, &e.Format)
		newer := new(FormatError)
		if isNewer(data) && !errors.As(err, &newer) {
			t.Fatalf("an entry of a newer build: %+v, %v", e, err)
		}
		if err != nil {
			return
		}
		written, err := encode(e)
		difftest.Must(t, err)
		again := new(Entry)
		if err := decode(written, again, &again.Format); err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		if rewritten, err := encode(again); err != nil || !bytes.Equal(rewritten, written) {
			t.Errorf("%v\n%swas\n%s", err, rewritten, written)
		}
		e.Format = Format + 1
		if written, err = encode(e); err != nil {
			t.Fatal(err)
		}
		if err := decode(written, again, &again.Format); !errors.As(err, &newer) || newer.Format != Format+1 {
			t.Errorf("%s: %v", written, err)
		}
	})
}

// isNewer reports whether data has a newer format. It parses no other key, and returns false if "format" occurs
// more than once.
func isNewer(data []byte) bool {
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil || strings.Count(strings.ToLower(string(data)), "format") != 1 {
		return false
	}
	var n int
	return json.Unmarshal(object["format"], &n) == nil && n > Format
}

// Complete returns an entry with every key set.
func Complete() *Entry {
	return &Entry{
		Format: Format, Key: Key{"net", "c0ffee", "net1"}, Netns: "/run/netns/a", BootID: "b", Time: time.Unix(1, 2).UTC(), Pod: "6e0c",
		Requested: Requested{[]config.NamedID{{Key: "deviceID", ID: "0000:01:10.0"}}, json.RawMessage(`{"type":"pci"}`), "0000:01:10.0", "/s", true, true},
		File:      "net-c0ffee_net1", Dir: "/run/infos", Wrote: true, Kept: true, Info: json.RawMessage(`{}`), InNetns: true,
		Device: Identity{"pci", "0000:01:10.0"}, CDI: CDI{"/run/cdi", "a_b.json", "a/b=c"}, SocketDir: "/run/sockets/6e0c",
		Leases:    []DeviceLease{{"pci-0000:01:10.0", Exclusive, 7}, {ID: "pci-0000:01:00.0", Mode: Shared}},
		Delegates: []json.RawMessage{json.RawMessage(`{"type":"bridge"}`)}, CNIVersion: "1.1.0", Args: "IgnoreUnknown=1",
		CapabilityArgs: map[string]json.RawMessage{"mac": json.RawMessage(`"<>"`)}, PrevResult: json.RawMessage(`{}`), Result: json.RawMessage(`{}`), Complete: true,
	}
}

// FuzzKey checks that two attachments never share an entry, and that no key leads outside the directory of the
// entries.
func FuzzKey(f *testing.F) {
	f.Add("net", "c0ffee", "net1")
	f.Add("net@a", "b", "c")
	f.Add("net", "a@b", "c")
	f.Add("net", "a", "b@c")
	f.Add("net", "..", "../../../x")
	f.Add(".net", "a", "b")
	f.Add("n", "a", "b\x00c")
	f.Add("n", "a", "b\xff")
	f.Add("n", strings.Repeat("a", 200), strings.Repeat("b", 60))
	for _, k := range []Key{{}, {"n", "c", ""}, {"n", "", "i"}, {"", "c", "i"}, {"../n", "c", "i"}, {"n", "-c", "i"}, {"n\n", "c", "i"}} {
		f.Add(k.Network, k.ContainerID, k.IfName)
	}
	top := f.TempDir()
	f.Fuzz(func(t *testing.T, network, containerID, ifName string) {
		k := Key{network, containerID, ifName}
		if name, err := k.entry(); err == nil {
			if got, ok := parseKey(name); !ok || got != k {
				t.Errorf("%q is read from %q as %q", k, name, got)
			}
		}
		dir, err := os.MkdirTemp(top, "")
		difftest.Must(t, err)
		defer os.RemoveAll(dir)
		j := Open(filepath.Join(dir, "state"), "boot")
		e := &Entry{Key: k}
		err = j.Put(e, nil)
		e.Unlock()
		found := difftest.Files(t, dir)
		_, get := j.Get(k)
		locked, lock := j.Lock(t.Context(), k, 0)
		locked.Unlock()
		for _, also := range []error{get, lock, j.FillFromLeases(&Entry{Key: k})} {
			if (also == nil) != (err == nil) {
				t.Errorf("%q: Put returns %v, another method %v", k, err, also)
			}
		}
		if err != nil {
			if forgotten := j.Forget(e); forgotten == nil {
				t.Errorf("%q: Put fails and Forget does not", k)
			}
			if len(found) > 0 {
				t.Errorf("%q: Put fails (%v), and leaves %q", k, err, found)
			}
			return
		}
		if len(found) != 1 || filepath.Dir(found[0]) != filepath.Join(dir, "state/attachments") {
			t.Fatalf("%q makes %q", k, found)
		}
		if got, err := j.Get(k); err != nil || got == nil || got.Key != k {
			t.Errorf("%q is read as %+v, %v", k, got, err)
		}
		if err := j.Forget(e); err != nil {
			t.Error(err)
		}
		if found := difftest.Files(t, dir); len(found) > 0 {
			t.Errorf("%q leaves %q", k, found)
		}
	})
}
