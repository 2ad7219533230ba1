package nri_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/nri"
	"devinfo-cni.io/pkg/nri/nritest"
)

// silent is a plugin that answers for the container "known", and for others not before the test lets it.
type silent struct{ known, asked, answer chan struct{} }

func (s silent) CreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if c.GetId() == "known" {
		close(s.known)
		return nil, nil, nil
	}
	close(s.asked)
	<-s.answer
	return nil, nil, nil
}

// The plugin hangs, or it ends while it is asked.
func TestAnUnansweredRequestFailsOnlyIfThePluginAsksForThat(t *testing.T) {
	for name, test := range map[string]struct {
		deadline time.Duration
		ends     bool
		says     string
	}{
		"hangs": {100 * time.Millisecond, false, "failed to handle CreateContainer request: context deadline exceeded"},
		"ends":  {nritest.Patient, true, "failed to handle CreateContainer request: ttrpc: closed"},
	} {
		for _, fail := range []bool{false, true} {
			err := unanswered(t, test.deadline, test.ends, fail)
			if (err != nil) != fail || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s, FailRequests %v: %v", name, fail, err)
			}
		}
	}
}

// unanswered is what becomes of a request that a plugin does not answer.
func unanswered(t *testing.T, deadline time.Duration, ends, fail bool) (err error) {
	t.Helper()
	dir, plugin := t.TempDir(), silent{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	runtime := nritest.Serve(t, filepath.Join(dir, "nri.sock"), nil)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- nri.Plugin{
			Handler: plugin, Name: "test", Index: "60", Socket: filepath.Join(dir, "nri.sock"), FailRequests: fail,
			Connected: func(bool) {}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		}.Serve(ctx)
	}()
	if ends {
		go func() { <-plugin.asked; end() }()
	}
	create := func(id string) error {
		_, err := runtime.CreateContainer(t.Context(), &adaptation.CreateContainerRequest{Pod: &api.PodSandbox{Id: "p"}, Container: &api.Container{Id: id}})
		return err
	}
	for known := false; !known; time.Sleep(time.Millisecond) { // until then the runtime goes on without it
		if err := create("known"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-plugin.known:
			known = true
		default:
		}
	}
	adaptation.SetPluginRequestTimeout(deadline)
	err = create("c")
	close(plugin.answer)
	end()
	<-ended
	return err
}
