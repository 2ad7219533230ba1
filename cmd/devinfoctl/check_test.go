package main

import (
	"os"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link/linktest"
)

func TestCheckLooksIntoTheNetworkNamespace(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		n := newNode(t)
		const netns = "/run/pod" // linktest's own path has another length each time
		n.must(os.Symlink(linktest.NewNetns(t), netns))
		linktest.AddVeth(t, "host0", "net1", netns)
		info := &devinfo.Info{Type: "memif", Version: "1.1.0", Memif: &devinfo.Memif{Role: "slave", Path: "/run/m", Mode: "ip"}}
		for _, ifName := range []string{"net1", "net2"} {
			n.put(journal.Entry{
				Key: journal.Key{ContainerID: "c0ffee", IfName: ifName}, Netns: netns, InNetns: true, Complete: true,
				File: ifName, Device: journal.Identity{Type: "memif", ID: "/run/m"},
			})
			n.must(store.Open(n.DeviceInfoDir).Write(ifName, info.Encode()))
		}
		const want = `net-a/c0ffee/net1: ok
  file: /cni/net1
  FACT              JOURNAL  FILE    NOW   SOURCE    VERDICT
  device-info file  written  there   -     -         same
  interface         net1     -       net1  /run/pod  same
  type              memif    memif   -     -         same
  memif.mode        -        ip      -     -         not stated
  memif.path        /run/m   /run/m  -     -         not stated
  memif.role        -        slave   -     -         not stated

net-a/c0ffee/net2: interface gone
  file: /cni/net2
  FACT              JOURNAL  FILE    NOW  SOURCE    VERDICT
  device-info file  written  there   -    -         same
  interface         net2     -       -    /run/pod  gone
  type              memif    memif   -    -         same
  memif.mode        -        ip      -    -         not stated
  memif.path        /run/m   /run/m  -    -         not stated
  memif.role        -        slave   -    -         not stated
  problem: interface net2 is no longer in /run/pod, where ADD found it
  remedy: recreate the pod, or DEL and ADD the attachment
exit 1
`
		equal(t, "check", n.ctl("check", "c0ff"), want)
	})
}
