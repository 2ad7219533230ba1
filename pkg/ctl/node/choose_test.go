package node_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/ctl/remedy"
	"devinfo-cni.io/pkg/journal"
)

func attachment(pod, network, container, ifName string) node.Attachment {
	return node.Attachment{Pod: pod, Key: journal.Key{Network: network, ContainerID: container, IfName: ifName}}
}

func TestANameMeansAPodThenANetworkThenAContainer(t *testing.T) {
	list := []node.Attachment{
		attachment("shop/web", "blue", "c0ffee", "net1"), attachment("shop/web", "red", "c0ffee", "net2"),
		attachment("test/web", "blue", "c0de", "net1"), attachment("shop/blue", "red", "beef", "net1"),
		attachment("", "red", "web", "net1"), {Claim: "shop/vf"},
	}
	for name, test := range map[string]struct {
		want    []string
		problem string
		request bool
	}{
		"shop/web":         {want: []string{"blue/c0ffee/net1", "red/c0ffee/net2"}},
		"shop/web/net2":    {want: []string{"red/c0ffee/net2"}},
		"blue":             {want: []string{"red/beef/net1"}}, // the pod, not the network
		"red":              {want: []string{"red/c0ffee/net2", "red/beef/net1", "red/web/net1"}},
		"c0f":              {want: []string{"blue/c0ffee/net1", "red/c0ffee/net2"}},
		"red/c0f":          {want: []string{"red/c0ffee/net2"}},
		"red/c0f/net2":     {want: []string{"red/c0ffee/net2"}},
		"web":              {problem: "web: is ambiguous: 2 pods match", request: true},
		"c0":               {problem: "c0: is ambiguous: 2 containers match", request: true},
		"red/c0f/net1":     {problem: "red/c0f/net1: no such pod, network, container or attachment"},
		"":                 {problem: ": no such pod, network, container or attachment"},
		"shop/web/net2/x":  {problem: "shop/web/net2/x: no such pod, network, container or attachment"},
		"shop":             {problem: "shop: no such pod, network, container or attachment"},
		"blue/c0ffee/net1": {want: []string{"blue/c0ffee/net1"}},
	} {
		found, err := node.Choose(list, name)
		var got []string
		for _, a := range found {
			got = append(got, a.String())
		}
		problem, request := "", false
		if e := new(remedy.Error); errors.As(err, &e) {
			problem, request = e.Error(), e.Code == remedy.Usage
		}
		if diff := cmp.Diff(test.want, got); diff != "" || problem != test.problem || request != test.request {
			t.Errorf("%q: %s\nproblem %q, request %v", name, diff, problem, request)
		}
	}
}
