// Package podresources tells which devices of the node device plugins have given to pods, by what the
// kubelet says.
package podresources

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Given is a device that a device plugin has given to a pod.
type Given struct {
	Pod      string `json:"pod"`      // namespace/name
	Resource string `json:"resource"` // "example.com/sriov"
	Device   string `json:"device"`   // the plugin's ID: for SR-IOV a PCI address
}

// Answer is what a kubelet tells of the pods of its node.
type Answer struct {
	Pods  int // that it knows, with devices or without
	Given []Given
}

// patience is what the kubelet has to answer in.
const patience = 10 * time.Second

// askAgain is for a kubelet that limits the rate of those who ask.
const askAgain = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "2s",
	"backoffMultiplier": 2, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`

// Ask asks the kubelet by its socket (podresources/v1, List).
func Ask(ctx context.Context, socket string) (a Answer, err error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(askAgain))
	if err != nil {
		return a, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := podresourcesapi.NewPodResourcesListerClient(conn).List(ctx, &podresourcesapi.ListPodResourcesRequest{})
	for _, p := range list.GetPodResources() {
		a.Pods++
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				for _, id := range d.GetDeviceIds() {
					a.Given = append(a.Given, Given{p.GetNamespace() + "/" + p.GetName(), d.GetResourceName(), id})
				}
			}
		}
	}
	return a, err
}
