package main

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/test/difftest"
)

// slicesServer is an API server with one ResourceSlice of the node. gone reports whether it was deleted.
func slicesServer(t *testing.T, o *options) (gone func() bool) {
	var mu sync.Mutex
	items := `{"metadata": {"name": "one"}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/resourceslices/one"):
			items = ""
			_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Success"}`)
		case r.Method == http.MethodGet && r.URL.Query().Get("fieldSelector") == "spec.driver="+driver+",spec.nodeName=n1":
			_, _ = io.WriteString(w, `{"kind": "ResourceSliceList", "apiVersion": "resource.k8s.io/v1", "items": [`+items+`]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	text := strings.ReplaceAll(difftest.Read(t, o.kubeconfig), "https://127.0.0.1:1", server.URL)
	must(t, os.WriteFile(o.kubeconfig, []byte(text), 0o600))
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		return items == ""
	}
}

// healthy returns when /healthz lists all parts.
func healthy(t *testing.T, o *options, parts ...string) {
	t.Helper()
	difftest.Eventually(t, "/healthz has "+strings.Join(parts, ", "), func() bool {
		answer, err := http.Get("http://" + o.metricsAddress + "/healthz")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		data, err := io.ReadAll(answer.Body)
		text := answer.Status + "\n" + string(data)
		lacks := func(part string) bool { return !strings.Contains(text, part) }
		return err == nil && !slices.ContainsFunc(parts, lacks)
	})
}

// The kubelet cannot unprepare the claims of deleted pods without the driver.
func TestUninstallServesClaimsUntilNoneIsOnRecord(t *testing.T) {
	o := alone(t)
	o.uninstall, o.linger = true, 20*time.Millisecond
	o.pluginsDir, o.registrarDir = filepath.Join(o.pluginsDir, "plugins"), filepath.Join(o.registrarDir, "registry")
	must(t, os.Mkdir(o.pluginsDir, 0o755), os.Mkdir(o.registrarDir, 0o755))
	must(t, os.WriteFile(o.nodeConfig, []byte(`{"stateDir": "`+filepath.Join(t.TempDir(), "journal")+`"}`), 0o600))
	gone := slicesServer(t, o)
	records, err := state.Open(o.stateDir())
	must(t, err)
	must(t, records.Put(&state.Claim{Namespace: "ns", Name: "net", UID: "u1", Pod: state.Pod{Namespace: "ns", Name: "web", UID: "p1"}, Attachments: []state.Attachment{
		{Request: "r", Pool: "n1", Device: "cni", Network: "net", CNIVersion: "1.0.0", IfName: "net1", List: []byte(`{}`), Phase: state.Prepared},
	}}), records.Close())
	const uses = "claims are on record, 1 in all: delete their pods while the driver runs: pod ns/web (claim ns/net)"
	difftest.Says(t, run(t.Context(), o, slog.New(slog.DiscardHandler)), "--uninstall: "+uses+"; or give --force")
	if gone() {
		t.Error("a refused removal withdraws the offer")
	}

	o.keepRunning = true
	end := started(t, o)
	healthy(t, o, "503 ", "[+] state", "[-] uninstalled: "+uses)
	difftest.Eventually(t, "the ResourceSlice is deleted", gone)
	conn, err := grpc.NewClient("unix:"+filepath.Join(o.pluginDir(), "dra.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	claims := []*drapb.Claim{{Namespace: "ns", Name: "net", Uid: "u1"}}
	_, err = drapb.NewDRAPluginClient(conn).NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: claims})
	must(t, err)
	healthy(t, o, "200 ", "[+] uninstalled")
	must(t, end())
	left := difftest.Files(t, o.pluginsDir, o.registrarDir, filepath.Join(o.cniBinDir, gateName), o.cdiDir)
	if _, err := os.Stat(o.pluginDir()); !os.IsNotExist(err) || left != nil {
		t.Errorf("left: %q, %v", left, err)
	}
}
