package publish

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Errors of one pod alone: others may be annotated.
var (
	ErrGone    = errors.New("the pod is gone") // or its name is another's by now
	ErrRefused = errors.New("the API server refuses the annotation")
)

// API is the API server, of which nothing is asked but this: so the agent, which runs on every
// node, has no client library.
type API struct {
	server string // https://10.96.0.1:443
	token  string // path; the kubelet puts new ones there
	client *http.Client
}

// serviceAccount is where the kubelet mounts what a pod needs for the API server.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster is the API server as the pod that we are in was told of it.
func InCluster() (*API, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: it takes a pod with a service account")
	}
	return Open("https://"+net.JoinHostPort(host, port), serviceAccount)
}

// Open gives the API server at a URL; the directory has its CA, ca.crt, and our token.
func Open(server, dir string) (*API, error) {
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("the service account's CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s: no certificate in it", filepath.Join(dir, "ca.crt"))
	}
	return &API{server, filepath.Join(dir, "token"), &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, IdleConnTimeout: time.Minute},
		Timeout:   10 * time.Second,
	}}, nil
}

// names are those of namespaces and pods (RFC 1123 subdomains), and of no other path of the API.
var names = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// Annotate writes the annotation of a pod, in one request: a PATCH that names the UID, so that
// no other pod of that name gets it. Where it has the annotation already nothing is written.
func (a *API) Annotate(ctx context.Context, pod Pod, networks []Network) error {
	if !names.MatchString(pod.Namespace) || !names.MatchString(pod.Name) || pod.UID == "" {
		return fmt.Errorf("%w: %+v is none that the API server knows", ErrGone, pod)
	}
	value, err := json.Marshal(networks)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]string{Annotation: string(value)},
	}})
	if err != nil {
		return err
	}
	token, err := os.ReadFile(a.token)
	if err != nil {
		return fmt.Errorf("the service account's token: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch,
		a.server+"/api/v1/namespaces/"+pod.Namespace+"/pods/"+pod.Name+"?fieldManager=devinfo-agent", bytes.NewReader(patch))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	request.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1") // not the whole pod
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	said, fields := message(response.Status, body)
	switch response.StatusCode {
	case http.StatusOK:
		return err
	case http.StatusNotFound, http.StatusConflict:
		return fmt.Errorf("%w: %s", ErrGone, said)
	case http.StatusUnprocessableEntity:
		if slices.Contains(fields, "metadata.uid") { // it is another pod's
			return fmt.Errorf("%w: %s", ErrGone, said)
		}
	case http.StatusForbidden: // or a webhook refuses what a namespace's pods get
		said += ": the chart's agent.publish=true, or the component publish, gives the agent the right"
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
	default: // it may be so for all: 401, 429, 500 and above
		return fmt.Errorf("annotate pod %s/%s: %s", pod.Namespace, pod.Name, said)
	}
	return fmt.Errorf("pod %s/%s: %w: %s", pod.Namespace, pod.Name, ErrRefused, said)
}

// message is that of the API server's answer, a Status, else the HTTP status; fields are those of
// the pod that it does not take.
func message(status string, body []byte) (text string, fields []string) {
	var said struct {
		Message string
		Details struct{ Causes []struct{ Field string } }
	}
	if json.Unmarshal(body, &said) != nil || said.Message == "" {
		return "the API server says " + status, nil
	}
	for _, cause := range said.Details.Causes {
		fields = append(fields, cause.Field)
	}
	return said.Message, fields
}
