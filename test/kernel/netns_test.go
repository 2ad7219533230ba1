package kernel_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/link/linktest"
)

// shortLived gives a pod whose namespace vanishes, path and all, with the call of
// the function.
func shortLived(t *testing.T) (pod string, vanish func()) {
	t.Helper()
	pod = t.TempDir() + "/netns"
	must(t, os.WriteFile(pod, nil, 0o444))
	must(t, unix.Mount(linktest.NewNetns(t), pod, "", unix.MS_BIND, ""))
	return pod, func() {
		must(t, unix.Unmount(pod, 0))
		must(t, os.Remove(pod))
	}
}

// GC is by a runtime that knows only that the attachment is not valid any more.
func TestDELAndGCWithoutNetns(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		for name, conf := range map[string]string{"standalone": standalone(infoFile), "delegating": delegates(bridgeConf, `{"type": "child"}`)} {
			for _, passed := range []string{"the path", "nothing", "GC"} {
				pod, vanish := shortLived(t)
				call(t, "ADD", pod, conf).ok(t)
				vanish()
				check := call(t, "CHECK", pod, conf)
				if name == "standalone" {
					check.fails(t, 8, "interface \"net1\" in NETNS: no such network namespace: no such file or directory")
				} else if check.exit != 1 {
					t.Errorf("CHECK of the delegates: exit code %d", check.exit)
				}
				switch passed {
				case "nothing":
					pod = ""
				case "GC":
					call(t, "GC", "", strings.Replace(conf, "{", `{"cni.dev/valid-attachments": [], `, 1)).ok(t)
					nothingLeft(t)
				}
				for range 2 {
					call(t, "DEL", pod, conf).ok(t)
				}
				nothingLeft(t)
			}
		}
	})
}

// ADD refuses our own namespace. The DEL after that leaves it alone: an
// interface of that name in it is not the pod's.
func TestDelInOwnNetnsTouchesNoInterface(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		linktest.AddVeth(t, "net1", "peer", linktest.NewNetns(t))
		preparedInfo(t, prepared)
		call(t, "DEL", "/proc/self/ns/net", delegates(bridgeConf)).ok(t)
		same(t, "our interfaces", hostLinks(t), "net1")
		nothingLeft(t)
	})
}
