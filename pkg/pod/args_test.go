package pod_test

import (
	"testing"

	"devinfo-cni.io/pkg/pod"
)

func TestArgsNameThePod(t *testing.T) {
	args, err := pod.ParseArgs("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=" + uid + ";K8S_POD_NAME=late")
	if err != nil {
		t.Fatal(err)
	}
	if namespace, name := args.Name(); namespace != "shop" || name != "web-0" || args.UID() != uid {
		t.Errorf("namespace %q, name %q, UID %q", namespace, name, args.UID())
	}
}

func TestArgsThatCannotBeReadLeaveTheOthers(t *testing.T) {
	args, err := pod.ParseArgs("K8S_POD_NAMESPACE=shop;nonsense;=x;K8S_POD_NAME=web-0")
	if err == nil {
		t.Error("no error")
	}
	if namespace, name := args.Name(); namespace != "shop" || name != "web-0" || len(args) != 2 {
		t.Errorf("%q", args)
	}
}
