package dra_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/dra"
)

// multusEntry returns the journal entry of an ADD by Multus.
func multusEntry(pod, sandbox, netns string, leases ...journal.DeviceLease) *journal.Entry {
	return &journal.Entry{
		Key: journal.Key{Network: "sriov-net", ContainerID: sandbox, IfName: "net7"}, Netns: netns, Complete: true, Time: time.Now(),
		Args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=" + pod, Pod: "uid-" + pod, Leases: leases,
	}
}

func exclusiveLease(id string) journal.DeviceLease {
	return journal.DeviceLease{ID: id, Mode: journal.Exclusive}
}

// isNetnsMissing reports whether a sandbox's network namespace does not exist.
func isNetnsMissing(netns string) (bool, error) {
	_, err := os.Stat(netns)
	return errors.Is(err, fs.ErrNotExist), nil
}

// recordMultus writes an entry to the journal.
func (r *rig) recordMultus(e *journal.Entry) {
	r.t.Helper()
	must(r.t, r.options.Devices.Journal.Record(e, nil))
	e.Unlock()
}

// netns returns the path of a sandbox's network namespace.
func (r *rig) netns(sandbox string) string { return filepath.Join(r.dir, "netns", sandbox) }

// prepareVF0 starts an agent with a journal and prepares a claim of vf0.
func (r *rig) prepareVF0() *dra.Agent {
	r.t.Helper()
	r.options.Devices.Journal = journalIn(r.dir, "boot1")
	r.offer("mlx5-switchdev", "")
	agent := r.start()
	r.prepare(ownClaim("u1", vf0, network(`{"type":"sriov"}`)))
	return agent
}
