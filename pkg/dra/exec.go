package dra

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"

	"devinfo-cni.io/pkg/cniexec"
)

// execution runs the plugins of one attachment, and logs what each says.
type execution struct {
	cniexec.Exec
	log *slog.Logger
}

// ExecPlugin implements invoke.Exec.
func (e *execution) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	said := new(capped)
	run := e.Exec
	run.Stderr = said
	stdout, err := run.ExecPlugin(ctx, path, stdin, env)
	if said.Len() > 0 {
		e.log.Info("CNI plugin", "plugin", filepath.Base(path), "stderr", said.String())
	}
	return stdout, err
}

// resetting tells the plugins of VFs of a network namespace that is gone, without which they
// return before they have reset the VF. Others fail on a path to nothing.
type resetting struct {
	invoke.Exec
	gone string // the path; "" = it is there
}

// ExecPlugin implements invoke.Exec.
func (r resetting) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	if name := filepath.Base(path); r.gone != "" && (name == "sriov" || name == "ib-sriov") {
		env = append(slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, "CNI_NETNS=") }), "CNI_NETNS="+r.gone)
	}
	return r.Exec.ExecPlugin(ctx, path, stdin, env)
}

// capped keeps the beginning of what is written to it.
type capped struct{ bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	const limit = 1 << 20
	c.Buffer.Write(p[:min(len(p), limit-c.Len())])
	return len(p), nil
}
