package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/check/checktest"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/test/difftest"
)

func container(id string) journal.Key { return journal.Key{ContainerID: id} }

func delegates(types ...string) (list []json.RawMessage) {
	for _, name := range types {
		list = append(list, json.RawMessage(`{"cniVersion": "1.1.0", "name": "net-a", "type": "`+name+`"}`))
	}
	return list
}

// left returns the containers in the journal and the names of the device-info files.
func (n *liveNode) left() (containers, files []string) {
	n.t.Helper()
	files, err := store.Open(n.DeviceInfoDir).Names()
	n.must(err)
	return checktest.Containers(n.t, n.Node), files
}

const foundByGC = `net-a/gone/net1: network namespace /bin/no-such is gone
net-a/killed/net1: network namespace /bin/no-such is gone
net-a/older/net1: recorded before the last boot
`

func TestGCRemovesOnlyStaleAttachments(t *testing.T) {
	n := newNode(t)
	n.plugin("first", "")
	n.plugin("second", "")
	n.put(journal.Entry{Key: container("alive"), Netns: aliveNetns, File: "alive", Complete: true})
	n.put(journal.Entry{Key: container("adding"), Netns: aliveNetns, File: "adding", Delegates: delegates("first")})
	spec := journal.CDI{Dir: n.CDIDir, File: "devinfo-cni.io-attachment_gone:net1.json", Device: "devinfo-cni.io/attachment=gone:net1"}
	n.must(store.Open(n.CDIDir).Write(spec.File, nil)) // a power failure leaves an empty spec
	n.put(journal.Entry{Key: container("gone"), Netns: n.noNetns(), File: "gone", Complete: true, CNIVersion: "1.1.0", Delegates: delegates("first", "second"), CDI: spec})
	n.put(journal.Entry{Key: container("killed"), Netns: n.noNetns(), File: "killed", CNIVersion: "1.1.0", Delegates: delegates("first")})
	n.put(journal.Entry{Key: container("older"), Netns: aliveNetns, BootID: "older", Complete: true, CNIVersion: "1.1.0", Delegates: delegates("second")})
	n.must(store.Open(n.DeviceInfoDir).Write("foreign", []byte("{}")))
	swept := filepath.Join(n.DeviceInfoDir, ".killed2.devinfo") // the temporary file of a killed writer
	n.must(os.WriteFile(swept, nil, 0o600))

	before := n.ctl("gc", "--dry-run", "--cni-path", n.bin)
	containers, files := n.left()
	if len(containers) != 5 || len(files) != 5 || n.calls() != "" {
		t.Errorf("--dry-run leaves %q and %q, and calls %s", containers, files, n.calls())
	}
	difftest.Same(t, "--dry-run", before, foundByGC+"exit 1\n")
	difftest.Same(t, "--yes", n.ctl("gc", "--yes", "--cni-path", n.bin), foundByGC+"removed 3 attachments and 1 leftover file\n")
	containers, files = n.left()
	slices.Sort(containers)
	difftest.Same(t, "the journal", containers, []string{"adding", "alive"})
	difftest.Same(t, "the files", files, []string{"adding", "alive", "foreign"})
	if specs, err := store.Open(n.CDIDir).Names(); err != nil || len(specs) > 0 {
		t.Errorf("the CDI specs: %q, %v", specs, err)
	}
	if _, err := os.Lstat(swept); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary file: %v", err)
	}
	const calls = "second DEL gone []\nfirst DEL gone []\nfirst DEL killed []\nsecond DEL older []\n"
	difftest.Same(t, "the delegates, which must not be told of another's namespace", n.calls(), calls)
	difftest.Same(t, "again", n.ctl("gc", "--yes"), "removed 0 attachments and 0 leftover files\n")
	difftest.Same(t, "nothing", n.ctl("gc", "--dry-run"), "nothing to remove\n")
}

// A failed attachment stays in the journal, so that gc can be run again.
func TestFailedGCKeepsEntryAndPrintsReason(t *testing.T) {
	n := newNode(t)
	n.plugin("refuses", `echo '{"code": 11, "msg": "the switch is busy"}'; exit 1`)
	n.put(journal.Entry{Key: container("busy"), Netns: n.noNetns(), File: "busy", Complete: true, CNIVersion: "1.1.0", Delegates: delegates("refuses")})
	n.put(journal.Entry{Key: container("lacking"), Netns: n.noNetns(), Complete: true, CNIVersion: "1.1.0", Delegates: delegates("no-such-plugin")})
	n.put(journal.Entry{Key: container("simple"), Netns: n.noNetns(), Complete: true})
	const want = `net-a/busy/net1: network namespace /bin/no-such is gone
net-a/lacking/net1: network namespace /bin/no-such is gone
net-a/simple/net1: network namespace /bin/no-such is gone
removed 1 attachment and 0 leftover files
! devinfoctl: gc: attachment net-a/busy/net1: delegates[0] (refuses): DEL: the switch is busy; then: attachment net-a/lacking/net1: delegates[0] (no-such-plugin): DEL: CNI plugin "no-such-plugin": not installed in /bin
!   fix the errors, and run it again
exit 3
`
	difftest.Same(t, "gc", n.ctl("gc", "--yes", "--cni-path", n.bin), want)
	if containers, _ := n.left(); !slices.Equal(containers, []string{"busy", "lacking"}) {
		t.Errorf("left are %q", containers)
	}
}

// A container may not see the node's network namespaces. A plain file stays at the path of an unmounted namespace, but a
// container sees one too if the namespace was mounted after its start.
func TestGCKeepsAttachmentWhoseNetnsItMayNotSee(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		const plain = "/run/netns"
		difftest.Must(t, os.WriteFile(plain, nil, 0o644))
		node := func(netns string) *liveNode {
			n := newNode(t)
			n.put(journal.Entry{Key: container("c0ffee"), Netns: netns, File: "one", Complete: true})
			return n
		}
		for netns, why := range map[string]string{
			plain:                plain + " is a plain file here, but outside of this container it may be a network namespace: run this on the node itself; if this is the node, the file is unused: remove it",
			"/run/no-such/netns": "/run/no-such, where ADD found the network namespace, does not exist: the network namespaces of the node are not visible in a container",
		} {
			n := node(netns)
			difftest.Same(t, netns, n.ctl("gc", "--dry-run"), "net-a/c0ffee/net1: kept: "+why+`
nothing to remove
! devinfoctl: gc: entries that cannot be read or judged were kept
!   devinfoctl check shows why, each with its remedy
exit 3
`)
			difftest.Contains(t, n.ctl("gc", "--yes", "--cni-path", n.bin), "removed 0 attachments and 0 leftover files\n")
			if containers, files := n.left(); len(containers) != 1 || len(files) != 1 {
				t.Errorf("left are %q and %q", containers, files)
			}
		}
		difftest.Must(t, unix.Mount("", "/run", "", unix.MS_SHARED, ""))
		n := node(plain)
		difftest.Same(t, "shared", n.ctl("gc", "--yes", "--cni-path", n.bin), "net-a/c0ffee/net1: network namespace /run/netns is gone\nremoved 1 attachment and 0 leftover files\n")
	})
}

// gc --claim is the remedy of error 104 and of doctor. It refuses while cni-dra-driver has a record of the
// claim, and where the records are not visible.
func TestGCClaimEndsLeases(t *testing.T) {
	n := newNode(t)
	boot, err := journal.BootID()
	n.must(err)
	j := journal.Open(n.StateDir, boot)
	of := journal.Claim{UID: "u1", Namespace: "shop", Name: "fast", Pods: []string{"p"}, Leases: []journal.DeviceLease{{ID: "pci-0000:03:00.5", Mode: journal.Exclusive}}}
	part, other := of, journal.Claim{UID: "u11", Leases: []journal.DeviceLease{{ID: "pci-0000:03:00.4", Mode: journal.Exclusive}}}
	part.Part = "net1"
	for _, c := range []journal.Claim{of, part, other} {
		n.must(j.Hold(&c))
	}
	claims := n.claim("{}")
	devinfoctl := func(dir string, args ...string) string { // the DaemonSet sets the variable
		t.Setenv(state.DirVariable, dir)
		return n.ctl(args...)
	}
	end := strings.Fields(of.EndCommand())[1:]
	difftest.Same(t, "with a record of the driver's", devinfoctl(claims, end...), `! devinfoctl: claim u1: cni-dra-driver has a record of it, /claims/u1.json, and will end its leases itself
!   delete its pods; if DEL was given up, cni-dra-driver clear u1; only if cni-dra-driver was removed from the node for good, remove that file first
exit 3
`)
	// The path does not exist in a pod that mounts nothing of the kubelet.
	const outOfSight = "/no/such/plugins/driver/state"
	difftest.Contains(t, devinfoctl(outOfSight, end...), "cannot tell whether cni-dra-driver has a record of it", "exit 3\n")
	blind := devinfoctl(outOfSight, "doctor")
	difftest.Lacks(t, blind, "gc --claim")
	difftest.Contains(t, blind, "cni-dra-driver's records of 3 claims with leases are not visible here")
	aside := filepath.Join(claims, "u1.json.corrupt")
	n.must(os.Rename(filepath.Join(claims, "u1.json"), aside))
	difftest.Contains(t, devinfoctl(claims, end...), "cni-dra-driver has set its damaged record aside, /claims/u1.json.corrupt, so its pods may still have the devices", "exit 3\n")
	damaged := devinfoctl(claims, "doctor")
	difftest.Lacks(t, damaged, of.EndCommand())
	difftest.Contains(t, damaged, "claim shop/fast: has leases of 0000:03:00.5, but cni-dra-driver could not read its record")
	n.must(os.Remove(aside))
	difftest.Contains(t, devinfoctl(claims, "doctor"), "claim shop/fast: has leases of 0000:03:00.5", "Remedy: "+of.EndCommand()+"\n")
	difftest.Same(t, "without a record of the driver's", devinfoctl(claims, end...), `claim shop/fast: ended the leases of 0000:03:00.5
claim shop/fast: ended the leases of 0000:03:00.5
`)
	if records, err := j.Claims(); err != nil || !slices.Equal(records, []string{"u11"}) {
		t.Errorf("left: %q, %v", records, err)
	}
	difftest.Same(t, "again", devinfoctl(claims, end...), "claim u1 has no leases\n")
}

// The runtime has removed the path of a pod's network namespace, and cni-dra-driver has still to run DEL of two networks. The
// devinfo plugin is in the chain of one.
func TestAttachmentsOfClaimsAreNotGarbageBeforeTheirDel(t *testing.T) {
	for phase, garbage := range map[state.Phase]bool{state.Adding: false, state.Added: false, state.Deleting: false, state.Restoring: true, state.Undeleted: true} {
		t.Run(string(phase), func(t *testing.T) {
			n := newNode(t)
			boot, err := journal.BootID()
			n.must(err)
			at := func(network, ifName string) state.Attachment {
				return state.Attachment{Request: "r", Network: network, IfName: ifName, List: json.RawMessage("{}"), Phase: phase,
					Execution: state.Execution{Sandbox: "gone", Netns: n.noNetns(), BootID: boot}}
			}
			record, err := json.Marshal(state.Claim{Schema: state.Schema, Namespace: "shop", Name: "net", UID: "u1", Attachments: []state.Attachment{at("net-a", "net1"), at("net-b", "net2")}})
			n.must(err)
			claims := n.claim(string(record))
			n.put(journal.Entry{Key: container("gone"), Netns: n.noNetns(), Args: pod.ClaimArg + "=net", Complete: true})
			var listed struct {
				Attachments []struct{ Network, State string }
			}
			n.must(json.Unmarshal([]byte(n.ctl("--dra-state-dir", claims, "list", "-o", "json")), &listed))
			got := map[string]string{}
			for _, a := range listed.Attachments {
				got[a.Network] += a.State
			}
			want := string(check.Deleting)
			if phase == state.Adding || phase == state.Undeleted {
				want = string(phase)
			}
			difftest.Equal(t, got["net-b"], want)
			if phase != state.Adding { // the journal tells of an ADD that has ended
				difftest.Equal(t, got["net-a"], want)
			}
			isGarbage := strings.Contains(n.ctl("--dra-state-dir", claims, "gc", "--dry-run"), "net-a/gone/net1")
			difftest.Same(t, "garbage", isGarbage, garbage)
		})
	}
}
