package apiserver_test

import (
	"context"
	"encoding/json"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/state"
)

// example is the claim in the Device Configuration API's document, for resource.k8s.io/v1.
const example = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: macvlan-eth0-attachment
spec:
  devices:
    requests:
    - name: macvlan-eth0
      exactly:
        deviceClassName: cni.networking.x-k8s.io
        allocationMode: ExactCount
        count: 1
    config:
    - requests:
      - macvlan-eth0
      opaque:
        driver: cni.dra.networking.x-k8s.io
        parameters:
          apiVersion: cni.networking.x-k8s.io/v1alpha1
          kind: CNI
          ifName: "net1"
          config:
            cniVersion: 1.0.0
            name: macvlan-eth0
            plugins:
            - type: macvlan
              master: eth0
              mode: bridge
              ipam:
                type: host-local
                ranges:
                - - subnet: 10.10.1.0/24
`

func TestAPIKeepsConfigOfDocumentedClaim(t *testing.T) {
	p := server(t)
	wanted := &resourceapi.ResourceClaim{}
	must(t, yaml.UnmarshalStrict([]byte(example), wanted))
	claims := p.Client.ResourceV1().ResourceClaims("default")
	c, err := claims.Create(t.Context(), wanted, metav1.CreateOptions{})
	must(t, err)
	defer func() { _ = claims.Delete(context.Background(), c.Name, metav1.DeleteOptions{}) }()
	p.allocate(t, c, ours("macvlan-eth0", one))
	seen, err := p.agent(t).ResourceV1().ResourceClaims("default").Get(t.Context(), c.Name, metav1.GetOptions{})
	must(t, err)
	networks, err := cniconfig.Resolve(seen, cniconfig.Policy{Driver: driver, Pool: node, AllowClaimTypes: []string{"macvlan", "host-local"}})
	must(t, err)
	pods, err := cniconfig.Pods(seen)
	must(t, err)
	difftest.Equal(t, pods, []state.Pod{{Namespace: "default", Name: "demo", UID: "680f0a77-8d0b-4e21-8599-62581e335ed6"}})
	id := one
	difftest.Equal(t, networks, []cniconfig.Network{{Attachment: state.Attachment{
		Request: "macvlan-eth0", Pool: node, Device: "cni", ShareID: &id, IfName: "net1", Network: "macvlan-eth0", CNIVersion: "1.0.0", Phase: state.Prepared,
		List: json.RawMessage(`{"cniVersion":"1.0.0","name":"macvlan-eth0","plugins":[{"ipam":{"ranges":[[{"subnet":"10.10.1.0/24"}]],"type":"host-local"},"master":"eth0","mode":"bridge","type":"macvlan"}]}`),
	}}})
}
