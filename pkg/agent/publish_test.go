package agent_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"devinfo-cni.io/pkg/agent"
	"devinfo-cni.io/pkg/ctl/remedy"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/publish"
)

// api is the API server: it says which pods were annotated with what, and may refuse to.
type api struct {
	sync.Mutex
	err    error
	writes []string
}

func (a *api) annotate(_ context.Context, pod publish.Pod, networks []publish.Network) error {
	a.Lock()
	defer a.Unlock()
	text := pod.Namespace + "/" + pod.Name + " " + pod.UID
	for _, n := range networks {
		text += fmt.Sprintf(" %s=%s:%t", n.Interface, n.Name, n.DeviceInfo != nil)
	}
	a.writes = append(a.writes, text)
	return a.err
}

func (a *api) took() string {
	a.Lock()
	defer a.Unlock()
	return strings.Join(a.writes, "\n")
}

func (a *api) answers(err error) {
	a.Lock()
	defer a.Unlock()
	a.err = err
}

// of is an attachment of the pod web.
func of(container, ifName, args string) journal.Entry {
	e := vf(container, "0000:03:00.2", "", "")
	e.IfName, e.File, e.Args = ifName, "", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u1"+args
	return e
}

func TestPodsSayWhatTheirNetworksHave(t *testing.T) {
	r, api := newRig(t), new(api)
	r.Publish = api.annotate
	r.SweepInterval = 0
	second, first := of("s1", "net2", ""), of("s1", "net1", "")
	second.Network, second.Info = "lan", nil
	r.put(second)
	key := r.put(first)
	byClaim, killed, byHand := of("s1", "net3", ";K8S_RESOURCE_CLAIM=blue"), of("s1", "net4", ""), of("s9", "net1", "")
	killed.Complete, byHand.Args = false, ""
	for _, e := range []journal.Entry{byClaim, killed, byHand} {
		r.put(e)
	}
	a, _ := r.started()
	const both = "shop/web u1 net1=net-a:true net2=lan:false"
	eventually(t, "published", func() bool { return api.took() == both && says(a, agent.Publish) == "" })

	// Another sandbox of the pod, while the old one is still there: its networks count.
	later := of("s2", "net1", "")
	later.Network, later.Time = "net-b", time.Now().Add(time.Minute)
	r.put(later)
	const moved = both + "\nshop/web u1 net1=net-b:true net2=lan:false"
	eventually(t, "published anew", func() bool { return api.took() == moved })

	// What changes nothing of it is not written, and an agent that starts anew writes the same.
	j := journal.Open(r.StateDir, boot)
	gone, err := j.Get(key)
	r.must(err, j.Forget(gone))
	other := of("s3", "net1", "")
	other.Args = strings.ReplaceAll(other.Args, "web", "db")
	r.put(other)
	eventually(t, "published of another", func() bool { return api.took() == moved+"\nshop/db u1 net1=net-a:true" })
}

func TestWhatWasNotTakenIsPublishedAgain(t *testing.T) {
	r, api := newRig(t), &api{err: fmt.Errorf("token: %w", fs.ErrPermission)}
	r.Publish = api.annotate
	r.put(of("s1", "net1", ""))
	a, _ := r.started()
	const one = "shop/web u1 net1=net-a:true"
	eventually(t, "tried again", func() bool {
		return strings.HasPrefix(api.took(), one+"\n"+one) && says(a, agent.Publish) == "token: permission denied: "+remedy.Rights(fs.ErrPermission, os.Geteuid())
	})
	api.answers(fmt.Errorf("%w: it said", publish.ErrGone))
	eventually(t, "well", func() bool { return says(a, agent.Publish) == "" })
	tries := api.took()
	other := of("s3", "net1", "")
	other.Args = strings.ReplaceAll(other.Args, "web", "db")
	r.put(other)
	eventually(t, "the next one", func() bool { return strings.HasSuffix(api.took(), "shop/db u1 net1=net-a:true") })
	if api.took() != tries+"\nshop/db u1 net1=net-a:true" {
		t.Errorf("a pod that is gone was tried again: %s", api.took())
	}
}

// One pod whose annotation is refused, for it is too long say, does not keep others from theirs.
func TestARefusedPodIsAlone(t *testing.T) {
	r := newRig(t)
	api := new(api)
	r.Publish = func(ctx context.Context, pod publish.Pod, networks []publish.Network) error {
		if pod.Name == "web" {
			return fmt.Errorf("pod shop/web: %w", publish.ErrRefused)
		}
		return api.annotate(ctx, pod, networks)
	}
	r.put(of("s1", "net1", ""))
	for n := range 5 {
		other := of(fmt.Sprint("o", n), "net1", "")
		other.Args = strings.ReplaceAll(other.Args, "web", fmt.Sprint("db-", n))
		r.put(other)
	}
	a, _ := r.started()
	eventually(t, "all others", func() bool {
		return strings.Count(api.took(), "shop/db-") == 5 && strings.Contains(says(a, agent.Publish), "refuses the annotation")
	})
}
