package journal_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"devinfo-cni.io/pkg/journal"
)

// One attachment as a chained ADD and its DEL see it, on tmpfs where there is one.
func BenchmarkJournal(b *testing.B) {
	dir, err := os.MkdirTemp("/dev/shm", "journal")
	if err != nil {
		dir = b.TempDir()
	}
	defer os.RemoveAll(dir)
	j := journal.Open(dir, boot)
	entry := &journal.Entry{Key: key1, File: "net-a-c0ffee_net1", Dir: "/run/k8s.cni.cncf.io/devinfo/cni",
		Time: time.Now(), Result: json.RawMessage(`{"cniVersion":"1.1.0","interfaces":[{"name":"net1","sandbox":"/run/netns/x"}]}`)}
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("Record", func(b *testing.B) {
		for b.Loop() {
			check(j.Record(entry, nil))
			b.StopTimer()
			entry.Unlock()
			check(j.Forget(entry))
			b.StartTimer()
		}
	})
	check(j.Record(entry, nil))
	b.Run("Get", func(b *testing.B) {
		for b.Loop() {
			_, err := j.Get(key1)
			check(err)
		}
	})
	b.Run("Owner", func(b *testing.B) {
		for b.Loop() {
			_, err := j.Owner(journal.OfFile, entry.File)
			check(err)
		}
	})
	entry.Unlock()
	check(j.Forget(entry))
	b.Run("RecordForget", func(b *testing.B) {
		for b.Loop() {
			check(j.Record(entry, nil))
			entry.Unlock()
			check(j.Forget(entry))
		}
	})
}
