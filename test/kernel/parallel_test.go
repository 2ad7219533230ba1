package kernel_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"devinfo-cni.io/pkg/link/linktest"
)

// atOnce makes n calls at the same time.
func atOnce(t *testing.T, n int, one func(n int) answer) []answer {
	t.Helper()
	answers := make([]answer, n)
	var all sync.WaitGroup
	for n := range answers {
		all.Go(func() { answers[n] = one(n) })
	}
	all.Wait()
	return answers
}

func TestHundredAttachmentsAtOnce(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		linktest.AddVeth(t, "nic", "net1", pod)
		container := func(n int) string { return fmt.Sprintf("container%02d", n) }
		file := func(n int) string { return infoDir + "/net-" + container(n) + "_net1" }
		conf := func(n int) string {
			if n%2 == 0 {
				return standalone(file(n))
			}
			return strings.ReplaceAll(chained(pod, `"deviceID": "`+vf+`",`), infoFile, file(n))
		}
		all := func(verb string) {
			for n, a := range atOnce(t, 100, func(n int) answer {
				return call(t, verb, pod, conf(n), "CNI_CONTAINERID="+container(n))
			}) {
				if a.exit != 0 || a.warnings() != "" {
					t.Errorf("%s %d: exit code %d: %s%s", verb, n, a.exit, a.stdout, a.stderr)
				}
			}
		}
		all("ADD")
		var names []string
		for n := range 100 {
			names = append(names, file(n))
			same(t, file(n), read(t, file(n)), vfFile)
		}
		same(t, "device-info files", files(t, infoDir), strings.Join(names, "\n"))
		all("CHECK")
		all("DEL")
		nothingLeft(t)
	})
}
