// Package status reports to the API server what became of the devices of a claim, in
// status.devices of the ResourceClaim (resource.k8s.io/v1, AllocatedDeviceStatus).
//
// The driver's service account needs the verbs "get" on resourceclaims, "patch" on
// resourceclaims/status and, from Kubernetes 1.36 on, "associated-node:patch" on
// resourceclaims/driver with the driver's name as resourceNames and a token that is bound
// to the node or to a pod on it.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"
)

// Report is the status of all devices that a claim has of a driver.
type Report struct {
	Driver          string // also the field manager
	Namespace, Name string // of the claim
	UID             types.UID
	// Devices are all of them: server-side apply removes each device of the driver that is left
	// out. ShareID is required where the allocation has one.
	Devices []resourceapi.AllocatedDeviceStatus
}

// ErrGone says that the claim was deleted, or that another claim has its name.
var ErrGone = errors.New("the claim is gone")

// Apply sends a report. An error is the client's, or wraps [ErrGone].
func Apply(ctx context.Context, client kubernetes.Interface, r Report) error {
	claims := client.ResourceV1().ResourceClaims(r.Namespace)
	configuration, err := r.configuration()
	if err != nil {
		return err
	}
	_, err = claims.ApplyStatus(ctx, configuration, metav1.ApplyOptions{FieldManager: r.Driver, Force: true})
	for _, c := range causes(err) {
		if c.Field == "metadata.uid" {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
	}
	if !apierrors.IsConflict(err) {
		return err
	}
	// The claim was changed at the same time, or replaced after the server had looked for it. Only
	// the text of the error differs.
	claim, getErr := claims.Get(ctx, r.Name, metav1.GetOptions{})
	if Missing(getErr) || getErr == nil && claim.UID != r.UID {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// causes are what the API server found to be invalid; none for other errors.
func causes(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return status.Status().Details.Causes
}

// configuration is what is sent. By the UID the server refuses another claim of that name.
// Devices and their configuration have the same JSON.
func (r Report) configuration() (*resourceac.ResourceClaimApplyConfiguration, error) {
	status := resourceac.ResourceClaimStatus()
	data, err := json.Marshal(r.Devices)
	if err == nil {
		err = json.Unmarshal(data, &status.Devices)
	}
	return resourceac.ResourceClaim(r.Name, r.Namespace).WithUID(r.UID).WithStatus(status), err
}

// Retry reports whether the same report may succeed later, after an error of [Apply]. It may after all that
// time or an administrator can mend: no connection, a time-out, a server that starts, is overloaded or does
// not serve the API, a change at the same time, or a missing permission, which comes with the ClusterRole
// (Forbidden, Unauthorized, or Invalid if it is that on resourceclaims/driver). It cannot if the claim is
// gone, or if the report itself is wrong, for example because the claim was deallocated meanwhile (its devices
// "must be an allocated device in the claim"): a new allocation has its own Prepare, and report.
func Retry(err error) bool {
	switch {
	case err == nil, errors.Is(err, ErrGone), Missing(err):
		return false
	case slices.ContainsFunc(causes(err), isPermission):
		return true
	}
	return !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsRequestEntityTooLargeError(err)
}

// isPermission reports whether the permission on resourceclaims/driver is missing.
func isPermission(c metav1.StatusCause) bool {
	return c.Type == metav1.CauseTypeForbidden && c.Field == "status.devices"
}

// Missing reports whether an error says that the claim does not exist. A server that does not
// serve the API, for example while it starts, says NotFound too, but without a name.
func Missing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name != "" && !apierrors.IsUnexpectedServerError(err)
}
