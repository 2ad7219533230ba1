package attachment_test

import (
	"fmt"
	"strings"
)

// most is the number of bytes of an object in etcd.
const most = 1_500_000

// A shape is a network configuration without its braces, cniVersion, name and type.
type shape struct{ name, keys string }

// shapes returns configurations of one size. None has more than most bytes.
func shapes() (list []shape) {
	add := func(name, before, item, after string) {
		count := strings.Contains(item, "%")
		var b strings.Builder
		b.WriteString(before)
		for n := 0; b.Len()+len(item)+10+len(after) < most-100; n++ {
			if n > 0 {
				b.WriteByte(',')
			}
			if count {
				fmt.Fprintf(&b, item, n)
			} else {
				b.WriteString(item)
			}
		}
		b.WriteString(after)
		list = append(list, shape{name, b.String()})
	}
	const inOne = `"delegates": [{"type": "quiet", "x": `
	many := `"delegates": [{"type": "quiet"}` + strings.Repeat(`, {"type": "quiet"}`, 31) + "]"
	deep := strings.Repeat("[", 90) + strings.Repeat("]", 90)
	long := func(text string) string { return strings.Repeat(text, (most-4000)/len(text)) }
	short := func(text string) string {
		return strings.TrimSuffix(strings.Repeat(text+",", 32_000/(len(text)+1)), ",")
	} // 1 MB for 32 delegates
	add("deep delegate", inOne+"[", deep, "]}]")
	add("wide delegate", inOne+"{", `"k%d": 1`, "}}]")
	add("many lists in a delegate", inOne+"[", "[]", "]}]")
	add("many objects in a delegate", inOne+"[", `{"a": {}}`, "]}]")
	add("many delegates with a type", `"delegates": [`, `{"type": "quiet"}`, "]")
	add("keys that differ in letter case", `"delegates": [{"type": "quiet",`, `"DEVICEid%d": 1, "deviceID%[1]d": 1`, "}]")
	add("many keys", "", `"k%d": 1`, "")
	const prev = `"prevResult": {"cniVersion": "1.0.0", `
	add("many addresses", prev+`"interfaces": [{"name": "net1", "sandbox": "/x"}], "ips": [`, `{"address": "10.0.0.1/8", "interface": 0}`, "]}")
	add("wide deviceInfo", `"deviceInfo": {"type": "memif", "memif": {`, `"rolE%d": 1`, "}}")
	add("placeholders", `"deviceInfo": {"type": "memif", "x": [`, `"{network}"`, "]}")
	add("valid attachments", `"cni.dev/valid-attachments": [`, `{"containerID": "a", "ifname": "b"}`, "]")
	return append(list,
		shape{"long delegate with <", inOne + `"` + long("<") + `"}]`}, // encoding/json makes six bytes of each
		shape{"long prevResult", prev + `"x": "` + long("a") + `"}`},
		shape{"long prevResult, 32 delegates", many + ", " + prev + `"x": "` + long("a") + `"}`},
		shape{"short prevResult, 32 delegates", many + ", " + prev + `"interfaces": [` + short(`{"name": "a"}`) + `]}`},
		shape{"long deviceID, 32 delegates", `"deviceID": "` + long("a") + `", ` + many},
		shape{"long key", `"` + long("a") + `": 1`},
		shape{"long deviceInfo", `"deviceInfo": {"type": "memif", "x": "` + long("{") + `"}`},
		shape{"long args, 32 delegates", many + `, "args": {"cni": {"a": "` + long("a") + `"}}`},
		shape{"short args, 32 delegates", many + `, "args": {"cni": {"a": [` + short(`[[],"<"]`) + `]}}`},
		shape{"long runtimeConfig, 32 delegates", strings.ReplaceAll(many, `}`, `, "capabilities": {"x": true}}`) + `, "runtimeConfig": {"x": "` + long("a") + `"}`},
	)
}
