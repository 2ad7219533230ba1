// Package status writes the status of a claim's devices to the API server, in status.devices of the ResourceClaim
// (resource.k8s.io/v1, AllocatedDeviceStatus).
//
// The driver's service account needs the verbs "get" on resourceclaims and "patch" on resourceclaims/status. From
// Kubernetes 1.36 on it also needs "associated-node:patch" on resourceclaims/driver, with the driver's name in
// resourceNames and a token that is bound to the node or to a pod on the node.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"

	"devinfo-cni.io/pkg/core/config"
)

// Report is the status of all devices that a driver has allocated to a claim.
type Report struct {
	Driver          string // name of the DRA driver, also the field manager
	Namespace, Name string // namespace and name of the claim
	UID             types.UID
	// Devices must be complete, because server-side apply removes the status of missing devices of the driver.
	// ShareID is required for a device whose allocation has one.
	Devices []resourceapi.AllocatedDeviceStatus
}

// ErrGone is the error for a claim that was deleted, or replaced by another claim of the same name.
var ErrGone = errors.New("the claim no longer exists")

// Apply sends a report. The error wraps [ErrGone] or is an error of the client. The request contains the UID, so that the
// server refuses another claim of the same name.
func Apply(ctx context.Context, client kubernetes.Interface, r Report) error {
	claims, status := client.ResourceV1().ResourceClaims(r.Namespace), resourceac.ResourceClaimStatus()
	if err := json.Unmarshal(config.Encode(r.Devices), &status.Devices); err != nil { // JSON is the same for both types
		return err
	}
	configuration := resourceac.ResourceClaim(r.Name, r.Namespace).WithUID(r.UID).WithStatus(status)
	answer, err := claims.ApplyStatus(ctx, configuration, metav1.ApplyOptions{FieldManager: r.Driver, Force: true})
	err = Answered(answer, err)
	for _, c := range Causes(err) {
		if c.Field == "metadata.uid" {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
	}
	if !apierrors.IsConflict(err) {
		return err
	}
	// Read the claim, because the errors for a changed and a replaced claim differ only in their text.
	claim, getErr := claims.Get(ctx, r.Name, metav1.GetOptions{})
	if exists, getErr := Exists(claim, r.UID, getErr); !exists && getErr == nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// Exists reports whether the API server's answer to a read, an object or an error, means that the object with this UID
// exists.
func Exists(object metav1.Object, uid types.UID, err error) (bool, error) {
	if Missing(err) {
		return false, nil
	}
	err = Answered(object, err)
	return err == nil && object.GetUID() == uid, err
}

// Answered returns the error of a request, or one for an answer without a UID, which is no object: that of a proxy.
func Answered(object metav1.Object, err error) error {
	if err == nil && object.GetUID() == "" {
		return errors.New("the API server's answer is not an object")
	}
	return err
}

// Causes returns the reasons that the API server gives for an error.
func Causes(err error) []metav1.StatusCause { return details(err).Causes }

func details(err error) (of metav1.StatusDetails) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		of = *status.Status().Details
	}
	return of
}

// Retry reports whether the same report may succeed later, after an error of [Apply]: unless the claim no longer exists. The
// API server may also refuse a report as malformed or invalid for a while: during its upgrade, or because of a webhook.
func Retry(err error) bool { return err != nil && !errors.Is(err, ErrGone) && !Missing(err) }

// Missing reports whether the error means that the claim does not exist. A server that does not serve the API, for
// example while it starts, also returns NotFound, but without the name of an object.
func Missing(err error) bool {
	return apierrors.IsNotFound(err) && details(err).Name != "" && !apierrors.IsUnexpectedServerError(err)
}
