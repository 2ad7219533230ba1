package pod_test

import (
	"testing"

	"devinfo-cni.io/pkg/pod"
)

func TestArgsNameThePod(t *testing.T) {
	const good = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=" + uid + ";K8S_POD_NAME=late"
	for text, broken := range map[string]bool{good: false, good + ";nonsense;=x": true} { // which leaves the others
		args, err := pod.ParseArgs(text)
		if namespace, name := args.Name(); namespace != "shop" || name != "web-0" || args.UID() != uid || len(args) != 5 || (err != nil) != broken {
			t.Errorf("%q, %v", args, err)
		}
	}
}
