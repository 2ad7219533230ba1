package kernel_test

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// longest limits the functions of this repository that a chained call runs, and the files that contain them, because
// whoever follows a call reads them.
var longest = map[string]struct{ functions, files int }{"ADD": {272, 51}, "DEL": {117, 29}}

// ran matches a function of which a statement ran, in the output of go tool covdata func.
var ran = regexp.MustCompile(`(?m)^(devinfo-cni\.io/\S+\.go):\d+:\s+\S+\s+(?:[1-9][\d.]*|0\.[1-9])%$`)

func TestChainedCallsRunFewFunctions(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		tool := func(args ...string) string {
			out, err := exec.Command("go", args...).CombinedOutput()
			if err != nil {
				t.Fatalf("go %q: %v\n%s", args, err, out)
			}
			return string(out)
		}
		must(t, os.Remove(cniDir+"/devinfo"))
		tool("build", "-cover", "-coverpkg=devinfo-cni.io/...", "-o", cniDir+"/devinfo", "devinfo-cni.io/cmd/devinfo")
		conf := chained(pod, `"deviceID": "`+vf+`",`)
		for _, verb := range []string{"ADD", "DEL", "ADD", "DEL"} { // the first ADD creates directories
			dir := t.TempDir()
			call(t, verb, pod, conf, "GOCOVERDIR="+dir).ok(t)
			files, functions := map[string]bool{}, ran.FindAllStringSubmatch(tool("tool", "covdata", "func", "-i", dir), -1)
			for _, f := range functions {
				files[f[1]] = true
			}
			if most := longest[verb]; len(functions) < 50 || len(functions) > most.functions || len(files) > most.files {
				t.Errorf("%s runs %d functions in %d files, of at most %d in %d", verb, len(functions), len(files), most.functions, most.files)
			}
		}
	})
}
