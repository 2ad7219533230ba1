// Package shapes generates configurations of one size and of many shapes, for tests and benchmarks that limit the memory
// and the processor time of the plugin.
package shapes

import (
	"fmt"
	"strings"
)

// Size is the number of bytes of an object in etcd.
const Size = 1_500_000

// Delegate is the type of the delegates. It must print a CNI result.
const Delegate = "quiet"

// A Shape is a network configuration without its braces, cniVersion, name and type.
type Shape struct{ Name, Keys string }

// All returns the shapes. None has more than Size bytes.
func All() (list []Shape) {
	add := func(name, before, item, after string) {
		count := strings.Contains(item, "%")
		var b strings.Builder
		b.WriteString(before)
		for n := 0; b.Len()+len(item)+10+len(after) < Size-100; n++ {
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
		list = append(list, Shape{name, b.String()})
	}
	const inOne = `"delegates": [{"type": "quiet", "x": `
	many := `"delegates": [{"type": "quiet"}` + strings.Repeat(`, {"type": "quiet"}`, 31) + "]"
	deep := strings.Repeat("[", 90) + strings.Repeat("]", 90)
	long := func(text string) string { return strings.Repeat(text, (Size-4000)/len(text)) }
	short := func(text string) string {
		return strings.TrimSuffix(strings.Repeat(text+",", 32_000/(len(text)+1)), ",")
	} // 1 MB for 32 delegates
	add("deep delegate", inOne+"[", deep, "]}]")
	add("wide delegate", inOne+"{", `"k%d": 1`, "}}]")
	add("many lists in a delegate", inOne+"[", "[]", "]}]")
	add("many objects in a delegate", inOne+"[", `{"a": {}}`, "]}]")
	add("many delegates", `"delegates": [`, "{}", "]")
	add("many delegates with a type", `"delegates": [`, `{"type": "quiet"}`, "]")
	add("keys that differ in letter case", `"delegates": [{"type": "quiet",`, `"DEVICEid%d": 1, "deviceID%[1]d": 1`, "}]")
	add("many keys", "", `"k%d": 1`, "")
	const prev = `"prevResult": {"cniVersion": "1.0.0", `
	add("many interfaces", prev+`"interfaces": [`, "{}", "]}")
	add("many addresses", prev+`"interfaces": [{"name": "net1", "sandbox": "/x"}], "ips": [`, `{"address": "10.0.0.1/8", "interface": 0}`, "]}")
	add("many routes", prev+`"routes": [`, `{"dst": "10.0.0.0/8"}`, "]}")
	add("wide deviceInfo", `"deviceInfo": {"type": "memif", "memif": {`, `"rolE%d": 1`, "}}")
	add("placeholders", `"deviceInfo": {"type": "memif", "x": [`, `"{network}"`, "]}")
	add("valid attachments", `"cni.dev/valid-attachments": [`, `{"containerID": "a", "ifname": "b"}`, "]")
	return append(list,
		Shape{"long delegate", inOne + `"` + long("a") + `"}]`},
		Shape{"long delegate with <", inOne + `"` + long("<") + `"}]`}, // encoding/json makes six bytes of each
		Shape{"long prevResult", prev + `"x": "` + long("a") + `"}`},
		Shape{"long prevResult, 32 delegates", many + ", " + prev + `"x": "` + long("a") + `"}`},
		Shape{"short prevResult, 32 delegates", many + ", " + prev + `"interfaces": [` + short(`{"name": "a"}`) + `]}`},
		Shape{"long deviceID, 32 delegates", `"deviceID": "` + long("a") + `", ` + many},
		Shape{"long key", `"` + long("a") + `": 1`},
		Shape{"long deviceInfo", `"deviceInfo": {"type": "memif", "x": "` + long("{") + `"}`},
		Shape{"long args, 32 delegates", many + `, "args": {"cni": {"a": "` + long("a") + `"}}`},
		Shape{"short args, 32 delegates", many + `, "args": {"cni": {"a": [` + short(`[[],"<"]`) + `]}}`},
		Shape{"long runtimeConfig, 32 delegates", strings.ReplaceAll(many, `}`, `, "capabilities": {"x": true}}`) + `, "runtimeConfig": {"x": "` + long("a") + `"}`},
	)
}
