package cluster_test

import (
	"testing"

	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/ctl/cluster"
	"devinfo-cni.io/test/difftest"
)

// The archives of cmd/kubectl-devinfo show what this package makes of a cluster's objects. A former pod of the same name
// may have a record on another node.
func TestRecordsOfAnotherNodeAreIgnored(t *testing.T) {
	waiting := cluster.Network{Namespace: "shop", Pod: "memif", Node: "n1", Interface: "net1"}
	records := []cluster.Record{{Network: cluster.Network{Namespace: "shop", Pod: "memif", Interface: "net1", Device: view.Device{Type: "pci", Device: "0000:3b:00.2"}}}}
	for node, want := range map[string]string{"n2": "", "n1": "0000:3b:00.2"} {
		list := []cluster.Network{waiting}
		cluster.Fill(list, node, records)
		difftest.Same(t, "with records of "+node, list[0].Device.Device, want)
	}
}
