package kernel_test

import (
	"strings"
	"testing"
)

// Two megabytes are a lot, but no reason to fail, or to fill the log.
func TestHugeConfiguration(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		huge := strings.Repeat("x", 2<<20)
		for _, key := range []string{`"x-vendor": "` + huge + `"`, `"` + huge + `": 1`, `"args": {"cni": "` + huge + `"}`} {
			conf := strings.Replace(standalone(infoFile), "{", "{"+key+", ", 1)
			for _, verb := range []string{"ADD", "CHECK", "DEL"} {
				a := call(t, verb, pod, conf)
				a.ok(t)
				if len(a.stderr) > 4096 {
					t.Errorf("%s, %.20s…: %d bytes in the log", verb, key, len(a.stderr))
				}
			}
		}
		nothingLeft(t)
	})
}
