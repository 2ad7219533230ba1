package kernel_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

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

// Two attachments ask for one path: one gets it, and the other spoils nothing.
func TestOnePathHasOneOwner(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		containers := []string{"a", "b", "c", "d", "e"}
		for round := range 10 {
			add := func(n int) answer {
				return call(t, "ADD", pod, standalone(infoFile), "CNI_CONTAINERID="+containers[n])
			}
			winner := ""
			for n, a := range atOnce(t, len(containers), add) {
				var e types.Error
				switch {
				case a.exit == 0 && winner == "":
					winner = containers[n]
				case a.exit == 0:
					t.Errorf("round %d: both %s and %s own the file", round, winner, containers[n])
				case json.Unmarshal([]byte(a.stdout), &e) != nil || e.Code != 7 || !strings.Contains(e.Msg, "belongs to attachment net/"):
					t.Errorf("round %d: exit code %d: %s%s", round, a.exit, a.stdout, a.stderr)
				}
			}
			same(t, "device-info file", read(t, infoFile), vfFile)
			same(t, "journal", files(t, stateDir), stateDir+"/attachments/net@"+winner+"@net1\n"+stateDir+"/leases/file/net-c0ffee_net1/net@"+winner+"@net1")
			for _, c := range containers { // a refused ADD is followed by a DEL
				if c != winner {
					call(t, "DEL", pod, standalone(infoFile), "CNI_CONTAINERID="+c).ok(t)
				}
			}
			same(t, "device-info file", read(t, infoFile), vfFile)
			delLeavesNothing(t, pod, standalone(infoFile), "CNI_CONTAINERID="+winner)
		}
	})
}

// Delegating attachments share host-local, and nothing of ours.
func TestDelegatingAttachmentsAtOnce(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		const pods = 8
		netns := make([]string, pods)
		for n := range netns {
			netns[n] = linktest.NewNetns(t)
		}
		path := func(n int) string { return fmt.Sprintf("%s/net-pod%d_net1", infoDir, n) }
		all := func(verb string) {
			for n, a := range atOnce(t, pods, func(n int) answer {
				conf := strings.ReplaceAll(delegates(bridgeConf), infoFile, path(n))
				return call(t, verb, netns[n], conf, fmt.Sprint("CNI_CONTAINERID=pod", n), "CNI_ARGS=IgnoreUnknown=1;K8S_POD_UID=6e0c") // which has the VF by all of them
			}) {
				if a.exit != 0 {
					t.Errorf("%s %d: exit code %d: %s%s", verb, n, a.exit, a.stdout, a.stderr)
				}
			}
		}
		call(t, "ADD", netns[0], delegates(bridgeConf)).ok(t) // bridge plugins that make one bridge at once fail
		call(t, "DEL", netns[0], delegates(bridgeConf)).ok(t)
		all("ADD")
		for n := range netns {
			same(t, path(n), read(t, path(n)), vfFile)
		}
		all("DEL")
		nothingLeft(t)
	})
}
