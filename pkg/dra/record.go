package dra

import (
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/state"
)

func recordOf(claim *resourceapi.ResourceClaim, pods []state.Pod, networks []cniconfig.Network, own ownDevices) *state.Claim {
	record := &state.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, Pods: pods}
	record.Shared = metav1.GetControllerOf(claim) == nil
	if len(pods) == 1 {
		record.Pod = pods[0]
	}
	for _, n := range networks {
		record.Attachments = append(record.Attachments, state.Attachment{
			Request: n.Request, Index: n.Index, Pool: n.Pool, Device: n.Device, ShareID: n.ShareID, Node: own[n.Device], Driver: n.Driver,
			Network: n.Name, CNIVersion: n.CNIVersion, IfName: n.IfName, List: n.List,
			Late: n.Late, Capabilities: n.Capabilities, Phase: state.Prepared,
		})
	}
	return record
}

// sameNetworks says whether a claim asks for what is on record.
func sameNetworks(record, fresh *state.Claim) bool {
	same := func(a, b state.Attachment) bool {
		return a.Request == b.Request && a.Pool == b.Pool && a.Device == b.Device && a.Driver == b.Driver && a.IfName == b.IfName &&
			slices.Equal(a.List, b.List) && a.Late == b.Late && maps.EqualFunc(a.Capabilities, b.Capabilities, slices.Equal) && cniconfig.SameShare(a.ShareID, b.ShareID)
	}
	return slices.EqualFunc(record.Attachments, fresh.Attachments, same)
}
