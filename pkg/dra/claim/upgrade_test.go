package claim_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// An update replaces the driver while pods run. Each file has what a former driver had written.
func TestDriverContinuesWithRecordsOfFormerBuilds(t *testing.T) {
	builds, err := filepath.Glob("testdata/records/*.txtar")
	difftest.Must(t, err)
	if len(builds) < 2 {
		t.Errorf("only %d builds", len(builds))
	}
	for _, build := range builds {
		former, err := txtar.ParseFile(build)
		difftest.Must(t, err)
		dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
			r.UseJournal("mlx5-switchdev", "")
			for _, f := range former.Files {
				path := filepath.Join(r.Dir, f.Name)
				difftest.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
				if strings.HasPrefix(f.Name, "journal/leases/") {
					difftest.Must(t, os.Symlink(strings.TrimSpace(string(f.Data)), path))
					continue
				}
				difftest.Write(t, path, strings.ReplaceAll(string(f.Data), "/DIR", r.Dir), 0o600)
			}
			time.Sleep(time.Hour) // the records are from the first hour of a bubble
			agent := r.Start()
			_, problems := agent.Records()
			difftest.Same(t, "unreadable records", len(problems), 0)
			bare := dratest.DeviceClaim("u1", dratest.VF3, "")
			r.Prepare(bare, r.ClaimOf("z", "u2", "pod", dratest.Net("x", "net1", "")))
			r.ExpectHolders("pci-0000:03:00.5", "claim ns/claim-u1")
			r.ExpectFiles("cdi", 2)
			r.ExpectCalls("ADD", 0)
			dratest.WaitIdle()
			difftest.Contains(t, difftest.Read(t, filepath.Join(r.Options.CDIDir, r.Files("cdi")[0])), `"DEVINFO_CLAIM_2DU1_REQUEST_R_PCI_ADDRESS=0000:03:00.5"`, `"pod/uid-pod"`)
			sb := r.Sandbox("s1", "pod")
			difftest.Must(t, r.CreateContainer(sb, "u1_r_"+dratest.VF3, "u2_x"))
			time.Sleep(2 * time.Hour) // the given-up DEL is tried again each hour
			r.ExpectCalls("DEL s0", 1)
			r.EndPod(sb)
			r.Unprepare("u1")
			r.Unprepare("u2")
			r.ExpectCalls("DEL s1", 1)
			r.ExpectNothing()
		})
	}
}
