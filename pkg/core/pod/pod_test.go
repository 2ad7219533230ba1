package pod_test

import (
	"fmt"
	"testing"

	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/test/difftest"
)

const (
	uid       = "6e0c2d4f-58a1-4a0e-9d2e-2f7f6f1f0c11"
	container = "0123456789abcdef9876543210fedcba"
)

func TestOwnsNeedsUIDOrTwelveCharactersOfContainerID(t *testing.T) {
	full := pod.Identity{UID: uid, ContainerID: container}
	for _, test := range []struct {
		of   pod.Identity
		name string
		want bool
	}{
		{full, uid, true},
		{full, "x-" + uid + "-net1", true},
		{full, container, true},
		{full, container[:12], true},
		{full, "a" + container[:13] + "-net1", true},
		{full, "", false},
		{full, "static", false},
		{full, uid[:35], false},
		{full, container[:11], false},
		{full, container[1:], false}, // may be the beginning of another container's ID
		{pod.Identity{ContainerID: container}, container[:12], true},
		{pod.Identity{ContainerID: "c0ffee"}, "c0ffee:net1", true},
		{pod.Identity{ContainerID: "c0ffee"}, "c0ffe", false},
		{pod.Identity{UID: uid}, uid, true},
		{pod.Identity{}, "static", false},
	} {
		difftest.Same(t, fmt.Sprintf("%+v, %q", test.of, test.name), test.of.Owns(test.name), test.want)
	}
}

func TestStringPrefersUIDToContainerID(t *testing.T) {
	for want, id := range map[string]pod.Identity{
		uid: {UID: uid, ContainerID: container}, container: {ContainerID: container}, "": {},
	} {
		difftest.Equal(t, id.String(), want)
	}
}

func TestArgsReturnNameAndUID(t *testing.T) {
	const good = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=" + uid + ";K8S_POD_NAME=late"
	for text, broken := range map[string]bool{good: false, good + ";nonsense;=x": true} { // the other pairs still count
		args, err := pod.ParseArgs(text)
		namespace, name := args.Name()
		difftest.Same(t, text, []any{namespace, name, args.UID(), len(args), err != nil}, []any{"shop", "web-0", uid, 5, broken})
	}
	args, err := pod.ParseArgs("")
	difftest.Must(t, err)
	difftest.Same(t, "arguments of no CNI_ARGS", args == nil, true)
}
