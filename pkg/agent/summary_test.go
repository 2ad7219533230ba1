package agent_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"

	"devinfo-cni.io/pkg/capturefile/capturetest"
	"devinfo-cni.io/pkg/check/checktest"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/nri/nritest"
)

func TestOrphanedAttachmentsAreCountedAndLogged(t *testing.T) {
	r := newRig(t)
	logged := filepath.Join(r.dir, "log")
	log, err := os.Create(logged)
	r.must(err)
	defer log.Close()
	r.Log = slog.New(slog.NewTextHandler(log, nil))
	adding := vf("adding", "0000:03:00.4", "", "")
	adding.Complete = false
	byHand := journal.Entry{Key: journal.Key{ContainerID: "by-hand", Network: "net-b"}, Netns: aliveNetns, Complete: true}
	for _, e := range []journal.Entry{vf("lost", "0000:03:00.2", "", ""), vf("known", "0000:03:00.3", "", ""), adding, byHand} {
		e.Time = time.Now().Add(-time.Hour)
		r.put(e)
	}
	nritest.Serve(t, r.Injection.Socket, []*adaptation.PodSandbox{{Id: "known"}})
	a, end := r.started()
	eventually(t, "counted", func() bool { return metrics(t, a)[`devinfo_attachments{state="orphaned"}`] == 2 })
	at := metrics(t, a)["devinfo_last_check_timestamp_seconds"]
	eventually(t, "counted again", func() bool { return metrics(t, a)["devinfo_last_check_timestamp_seconds"] > at })
	end()
	got := metrics(t, a)
	if got[`devinfo_attachments{state="ok"}`]+got[`devinfo_attachments{state="changed"}`] != 2 || got[`devinfo_attachments{state="adding"}`] != 0 {
		t.Errorf("%v", got)
	}
	if got[`devinfo_attachment_info{interface="net1",namespace="shop",network="net-a",pciAddr="0000:03:00.2",pf="p0",pod="web-lost",type="pci",vf="0"}`] != 1 {
		t.Error("the metrics omit the device of an orphaned attachment, which is still in use")
	}
	text := difftest.Read(t, logged)
	if n := strings.Count(text, `attachments="[net-a/adding/net1 net-a/lost/net1]"`); n != 1 {
		t.Errorf("the log names the orphaned attachments %d times:\n%s", n, text)
	}
}

// BenchmarkCrowd measures the first sweep and the first check on a node with 10,000 attachments.
func BenchmarkCrowd(b *testing.B) {
	const gate = 3 * time.Second
	r := newRig(b)
	r.CheckInterval, r.SweepInterval, r.LookInterval = 5*time.Second, time.Hour, time.Hour // CheckInterval has the value of devinfo-agent
	r.must(os.RemoveAll(r.Sysfs), capturetest.ManyVFs(1000).Unpack(r.Sysfs))
	checktest.Crowd(b, r.Node, boot, aliveNetns, 1000, 10000)
	var used time.Duration
	for b.Loop() {
		before := processorTime(b)
		a, end := r.started()
		eventually(b, "swept and checked", func() bool { return healthy(a) })
		end()
		used += processorTime(b) - before
	}
	used /= time.Duration(b.N)
	b.ReportMetric(used.Seconds(), "cpu-s/op")
	if used > gate {
		b.Errorf("%v of processor time, more than %v", used, gate)
	}
}

func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	difftest.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// The table in docs/agent.md lists the metrics. A metric with a label has a row that begins with `label`:
// value, value;
func TestDocumentedMetricsMatchExposedMetrics(t *testing.T) {
	r := newRig(t)
	r.put(vf("ok", "0000:03:00.2", "eth4", "mlx5_2"))
	a := r.ranUntilHealthy()
	text := difftest.Read(t, "../../docs/agent.md")
	exposed, documented, listed := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(devinfo_[a-z_]+)` \\| (.*) \\|$").FindAllStringSubmatch(text, -1) {
		documented[row[1]] = true
		words, _, _ := strings.Cut(row[2], ";")
		label, values, has := strings.Cut(words, ": ")
		if label[0] != '`' { // the metric has no label
			continue
		}
		for _, found := range regexp.MustCompile("`([A-Za-z_]+)`").FindAllStringSubmatch(label, -1) {
			documented[row[1]+" "+found[1]] = true
			for value := range strings.SplitSeq(values, ", ") {
				documented[row[1]+" "+found[1]+" "+value], listed[row[1]+" "+found[1]] = true, has
			}
		}
	}
	for _, family := range gather(t, a) {
		exposed[family.GetName()] = true
		for _, m := range family.Metric {
			for _, p := range m.Label {
				label, value := family.GetName()+" "+p.GetName(), ""
				if listed[label] {
					value = p.GetValue()
				}
				exposed[label], exposed[label+" "+value] = true, true
			}
		}
	}
	difftest.Same(t, "documented for exposed", documented, exposed)
}
