package status

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Verdict says what to do with a report after [Apply].
type Verdict string

// The verdicts.
const (
	Done    Verdict = "done"    // it is in the API, at least in part
	Gone    Verdict = "gone"    // there is no such claim any more: forget the report
	Refused Verdict = "refused" // the same report will be refused always: log it and forget it
	Retry   Verdict = "retry"   // it may succeed later
)

// Classify judges what [Apply] returned.
//
// Retry is for all that time or an administrator can mend: no connection, time-outs, a
// server that is starting, overloaded or does not serve the API, changes at the same
// time, and missing permissions, which come with the ClusterRole: Forbidden,
// Unauthorized, and Invalid where the permission is that on resourceclaims/driver.
//
// Refused is for a report that is itself wrong, for example because the claim was deallocated
// meanwhile (its devices "must be an allocated device in the claim"): a new allocation
// has its own Prepare, and report.
func Classify(err error) Verdict {
	var partial *Partial
	switch {
	case err == nil || errors.As(err, &partial):
		return Done
	case errors.Is(err, ErrGone) || Missing(err):
		return Gone
	case slices.ContainsFunc(causes(err), forbidden):
		return Retry
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err):
		return Refused
	}
	return Retry
}

// forbidden is how the API server says that the permission on resourceclaims/driver is
// missing.
func forbidden(c metav1.StatusCause) bool {
	return c.Type == metav1.CauseTypeForbidden && c.Field == "status.devices"
}

// Missing says that the claim is not there. A server that does not serve the API,
// maybe because it is starting, says NotFound too, but not of what.
func Missing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name != "" && !apierrors.IsUnexpectedServerError(err)
}
