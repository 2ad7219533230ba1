package devinfo_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

// evil is a text that a terminal obeys, with a line that looks like another message.
const evil = difftest.Unprintable + "\n\tok"

// poisonings returns the JSON text once for each string, key, number and boolean in it that evil can be in.
func poisonings(text string) (list []string) {
	var tokens []json.Token
	var ends []int64
	d := json.NewDecoder(strings.NewReader(text))
	for token, err := d.Token(); err == nil; token, err = d.Token() {
		tokens, ends = append(tokens, token), append(ends, d.InputOffset())
	}
	for n, token := range tokens {
		old := fmt.Sprint(token)
		if _, delimiter := token.(json.Delim); delimiter {
			continue
		} else if s, ok := token.(string); ok {
			quoted, _ := json.Marshal(s)
			old = string(quoted)
		}
		for _, with := range []string{fmt.Sprint(token) + evil, evil} {
			quoted, _ := json.Marshal(with)
			list = append(list, text[:ends[n]-int64(len(old))]+string(quoted)+text[ends[n]:])
		}
	}
	return list
}

// Whatever a runtime, the author of a network, a delegate or another program on the node gives, no error of the plugin
// reaches a terminal raw. kubectl describe prints these errors.
func TestErrorsArePrintable(t *testing.T) {
	const info = `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:00.4", "rdma-device": "mlx5_0"}}`
	configs := []string{
		`{"cniVersion": "1.1.0", "name": "net-a", "type": "devinfo", "strict": true, "capabilities": {"deviceID": true}, "runtimeConfig": {"CNIDeviceInfoFile": "/run/infos/f", "deviceID": "0000:3b:00.4"}, "pciBusID": "0000:3b:00.4", "resourceName": "a.io/b",
			"deviceInfo": {"type": "pci", "pci": {"rdma-device": "m"}}, "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "/run/netns/pod", "pciID": "0000:3b:00.4"}]}}`,
		`{"cniVersion": "1.1.0", "name": "net-a", "type": "devinfo", "strict": true, "deviceInfoFile": "auto", "deviceInfo": {"type": "memif", "memif": {"role": "slave", "path": "/run/{podUID}.sock", "mode": "ethernet"}},
			"cdi": {"kind": "a.io/b", "name": "{podUID}-{ifName}", "socketDir": "/run/sockets/{podUID}"}, "cni.dev/valid-attachments": [{"containerID": "c", "ifname": "net1"}]}`,
		`{"cniVersion": "1.1.0", "name": "net-a", "type": "devinfo", "deviceInfoFile": "auto", "args": {"cni": {"x": "y"}}, "delegates": [{"type": "child", "device": "ens1f0np0", "hwaddr": "x", "kernelpath": "/sys/devices/x", "ipam": {"type": "dhcp"}, "dns": {"search": ["x"]}}]}`,
	}
	env := map[string]string{
		"CNI_CONTAINERID": "c0ffee", "CNI_IFNAME": "net1", "CNI_NETNS": podNetns, "CNI_PATH": binDir, "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=6e0c",
	}
	linktest.Run(t, func(t *testing.T) {
		settled(t)
		found := 0
		call := func(what, config string, env map[string]string) {
			for _, verb := range []string{"STATUS", "CHECK", "ADD", "ADD", "CHECK", "GC", "DEL"} {
				var out bytes.Buffer
				env["CNI_COMMAND"] = verb
				if exit, _ := run(quiet(&out), env, strings.NewReader(config)); exit == 0 {
					continue
				}
				var err types.Error
				check(t, json.Unmarshal(out.Bytes(), &err))
				text := err.Msg + err.Details
				if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%s with %q prints %q", verb, what, text)
				}
				if strings.Contains(text, `u001b`) || strings.Contains(text, `\x1b`) {
					found++
				}
			}
		}
		for _, c := range configs {
			for _, poisoned := range poisonings(c) {
				call(poisoned, poisoned, env)
			}
			delete(env, "CNI_COMMAND")
			for name, value := range env {
				for _, with := range []string{value + evil, evil, strings.ReplaceAll(value, ";", evil+";")} {
					changed := maps.Clone(env)
					changed[name] = with
					call(name+"="+with, c, changed)
				}
			}
		}
		for _, poisoned := range slices.Concat(poisonings(info), []string{evil}) {
			difftest.Write(t, infoDir+"/f", poisoned, 0o644)
			call("the file "+poisoned, configs[0], env)
		}
		check(t, os.RemoveAll(infoDir))
		quoted, _ := json.Marshal(evil)
		for _, part := range []string{`{"error": {"code": 100, "msg": @, "details": @}}`, `{"error": {"msg": @}}`, `{"garbage": @}`, `{"result": {"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": @}], @: 1}}`} {
			part = strings.ReplaceAll(part, "@", string(quoted))
			call(part, `{"cniVersion": "1.1.0", "name": "net-a", "type": "devinfo", "delegates": [{"type": "child", "story": {"ADD": `+part+`, "DEL": `+part+`, "STATUS": `+part+`}}]}`, env)
		}
		holder := map[string]string{"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "decade", "CNI_IFNAME": "net1", "CNI_NETNS": podNetns, "CNI_PATH": binDir, "CNI_ARGS": "K8S_POD_NAMESPACE=" + evil + ";K8S_POD_NAME=" + evil}
		const held = `{"cniVersion": "1.1.0", "name": "net-b", "type": "devinfo", "delegates": [{"type": "child", "deviceID": "0000:3b:00.4"}]}`
		exit, said := run(quiet(io.Discard), holder, strings.NewReader(held))
		difftest.Same(t, "of the holder: "+said, exit, 0)
		call("a holder of an evil name", held, env)
		if found < 300 {
			t.Errorf("only %d errors quote the text", found)
		}
	})
}
