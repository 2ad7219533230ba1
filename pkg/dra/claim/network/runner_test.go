package network_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

func TestFirstMiBOfStderrIsLogged(t *testing.T) {
	r := dratest.NewRig(t)
	var log bytes.Buffer
	r.Options.Log = slog.New(slog.NewTextHandler(&log, nil))
	difftest.Write(t, filepath.Join(r.Dir, "bin/noisy"), "#!/bin/sh\necho begin >&2\nyes | head -c 3000000 >&2\nexit 1\n", 0o700)
	r.Start()
	r.Prepare(dratest.DeviceClaim("u1", "cni", dratest.Network(`{"type":"noisy"}`)))
	if r.RunPod(r.Sandbox("s1", "pod")) == nil {
		t.Error("ADD succeeds")
	}
	r.Stop()
	for line := range strings.SplitSeq(log.String(), "\n") {
		_, said, ok := strings.Cut(line, `plugin=noisy stderr="`)
		if ok && strings.HasPrefix(said, "begin") && strings.Count(said, "y") == (1<<20-len("begin\n"))/2 {
			return
		}
	}
	t.Errorf("%d bytes are logged, without the beginning of what the plugin wrote", log.Len())
}

// A missing plugin does not stop the DEL of the others, and says less than their failures.
func TestDELThatFailsIsCountedBeforeMissingPlugin(t *testing.T) {
	r := dratest.NewRig(t)
	for _, name := range []string{"first", "last"} {
		script := "#!/bin/sh\n[ $CNI_COMMAND = ADD ] && echo '{\"cniVersion\":\"1.0.0\"}'\n"
		difftest.Write(t, filepath.Join(r.Dir, "bin", name), script, 0o700)
	}
	r.Start()
	r.Prepare(dratest.DeviceClaim("u1", "cni", dratest.Network(`{"type":"first"},{"type":"last"}`)))
	sb := r.RunSandbox("s1", "pod")
	difftest.Eventually(t, "ADD succeeds", func() bool { return r.Record("u1").Attachments[0].Phase == state.Added })
	difftest.Must(t, os.Remove(filepath.Join(r.Dir, "bin/last")))
	r.EndPod(sb)
	difftest.Eventually(t, "DEL fails", func() bool { return r.Record("u1").Attachments[0].DelError != "" })
	difftest.Contains(t, r.Record("u1").Attachments[0].DelError, "last")
	samples := r.Samples()
	difftest.Same(t, "failures of first", samples["devinfo_dra_exec_failures_total reason=died verb=DEL"], 1.0)
}
