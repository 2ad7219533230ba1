package dra

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"

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

// capped keeps the beginning of what is written to it.
type capped struct{ bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	const limit = 1 << 20
	c.Buffer.Write(p[:min(len(p), limit-c.Len())])
	return len(p), nil
}
