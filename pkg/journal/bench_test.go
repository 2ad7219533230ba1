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
	entry := &journal.Entry{Key: key1, File: "net-a-c0ffee_net1", Dir: "/run/k8s.cni.cncf.io/devinfo/cni", Created: true,
		Time: time.Now(), Result: json.RawMessage(`{"cniVersion":"1.1.0","interfaces":[{"name":"net1","sandbox":"/run/netns/x"}]}`)}
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("Put", func(b *testing.B) {
		for b.Loop() {
			_, err := j.Put(entry, nil)
			check(err)
			b.StopTimer()
			check(j.Forget(entry))
			b.StartTimer()
		}
	})
	_, err = j.Put(entry, nil)
	check(err)
	b.Run("PutAgain", func(b *testing.B) {
		for b.Loop() {
			_, err := j.Put(entry, entry)
			check(err)
		}
	})
	b.Run("Get", func(b *testing.B) {
		for b.Loop() {
			_, err := j.Get(key1)
			check(err)
		}
	})
	b.Run("Owner", func(b *testing.B) {
		for b.Loop() {
			_, _, err := j.Owner(entry.File)
			check(err)
		}
	})
	b.Run("PutForget", func(b *testing.B) {
		for b.Loop() {
			_, err := j.Put(entry, nil)
			check(err)
			check(j.Forget(entry))
		}
	})
}
