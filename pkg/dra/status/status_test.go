package status_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/test/difftest"
)

func TestReportIsRepeatedWhileClaimExists(t *testing.T) {
	claims := schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}
	kind := schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceClaim"}
	invalid := apierrors.NewInvalid(kind, "a", field.ErrorList{field.Invalid(field.NewPath("status", "devices").Index(0), "x", "must be an allocated device in the claim")})
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"success", nil, false},
		{"deleted", apierrors.NewNotFound(claims, "a"), false},
		{"another of its name", fmt.Errorf("%w: %w", status.ErrGone, apierrors.NewConflict(claims, "a", errors.New("UID"))), false},
		{"deallocated, or its share is not known to an older server", invalid, true},
		{"refused by a webhook", apierrors.NewBadRequest("denied the request"), true},
		{"too large", apierrors.NewRequestEntityTooLargeError("3 MiB"), true},
		{"changed by others", apierrors.NewConflict(claims, "a", errors.New("modified")), true},
		{"no permission yet", apierrors.NewForbidden(claims, "a", errors.New("rbac")), true},
		{"no permission for the driver", apierrors.NewInvalid(kind, "a", field.ErrorList{field.Forbidden(field.NewPath("status", "devices"), "associated-node:patch")}), true},
		{"an expired token", apierrors.NewUnauthorized("token"), true},
		{"the API is not served", apierrors.NewGenericServerResponse(http.StatusNotFound, "PATCH", claims, "a", "404 page not found", 0, true), true},
		{"the API is not known", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404}}, true},
		{"overload", apierrors.NewTooManyRequests("slow down", 1), true},
		{"a server that starts", apierrors.NewServiceUnavailable("etcd"), true},
		{"its error", apierrors.NewInternalError(errors.New("etcd")), true},
		{"no server", fmt.Errorf("dial: %w", syscall.ECONNREFUSED), true},
		{"too slow", context.DeadlineExceeded, true},
	} {
		difftest.Same(t, test.name, status.Retry(test.err), test.want)
		if test.err != nil {
			difftest.Same(t, test.name+", wrapped", status.Retry(fmt.Errorf("status of claim a/b: %w", test.err)), test.want)
		}
	}
}

func TestReportAppliesToClaimWithItsUID(t *testing.T) {
	kind := schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceClaim"}
	invalid := func(path string) error {
		return apierrors.NewInvalid(kind, "a", field.ErrorList{field.Invalid(field.NewPath(path), "x", "no")})
	}
	device := invalid("status.devices[0].device")
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "resourceclaims"}, "a", errors.New("modified"))
	for name, test := range map[string]struct {
		answer error
		there  types.UID // UID of the claim of that name
		want   error
	}{
		"taken":                    {nil, "u1", nil},
		"taken, and deleted":       {nil, "", nil},
		"wrong for good":           {device, "u1", device},
		"another UID":              {invalid("metadata.uid"), "u1", status.ErrGone},
		"changed by others":        {conflict, "u1", conflict},
		"another one of its name":  {conflict, "u2", status.ErrGone},
		"deleted since the server": {conflict, "", status.ErrGone},
		"no answer to the read":    {conflict, "away", conflict},
	} {
		client := fake.NewClientset()
		if test.there == "away" {
			client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no answer") })
		}
		if test.there != "" {
			difftest.Must(t, client.Tracker().Add(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: test.there}}))
		}
		client.PrependReactor("patch", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
			difftest.Contains(t, string(action.(clienttesting.PatchAction).GetPatch()), `"uid":"u1"`, `"device":"x"`, `"data":{"a":1}`)
			return true, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}, test.answer
		})
		err := status.Apply(t.Context(), client, status.Report{Driver: "d", Namespace: "ns", Name: "a", UID: "u1", Devices: []resourceapi.AllocatedDeviceStatus{
			{Driver: "d", Pool: "p", Device: "x", Data: &runtime.RawExtension{Raw: []byte(`{"a":1}`)}},
		}})
		if !errors.Is(err, test.want) || errors.Is(err, status.ErrGone) != errors.Is(test.want, status.ErrGone) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
	torn := resourceapi.AllocatedDeviceStatus{Data: &runtime.RawExtension{Raw: []byte("{")}}
	err := status.Apply(t.Context(), fake.NewClientset(), status.Report{Devices: []resourceapi.AllocatedDeviceStatus{torn}})
	difftest.Says(t, err, "unexpected end of JSON")
}

func TestObjectIsGoneOnlyIfAPIServerSaysSo(t *testing.T) {
	claims := schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}
	noAnswer, noAPI := errors.New("no answer"), apierrors.NewGenericServerResponse(404, "get", claims, "a", "404 page not found", 0, true)
	for name, test := range map[string]struct {
		uid    types.UID // of the object that the API server has; "" = its answer is none
		err    error
		exists bool
		want   error // nil = none
	}{
		"exists":        {"u1", nil, true, nil},
		"deleted":       {"", apierrors.NewNotFound(claims, "a"), false, nil},
		"created again": {"u2", nil, false, nil},
		"no answer":     {"", noAnswer, false, noAnswer},
		"no such API":   {"", noAPI, false, noAPI},
	} {
		exists, err := status.Exists(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: test.uid}}, "u1", test.err)
		difftest.Same(t, name, exists, test.exists)
		difftest.Same(t, name, err, test.want, cmpopts.EquateErrors())
	}
	exists, err := status.Exists(&resourceapi.ResourceClaim{}, "u1", nil) // of a proxy
	difftest.Same(t, "no object", exists, false)
	difftest.Says(t, err, "is not an object")
}
