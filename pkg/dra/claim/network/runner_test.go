package network_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// Each message is of one plugin, and one that says nothing has none.
func TestFirstMiBOfStderrIsLogged(t *testing.T) {
	r := dratest.NewRig(t)
	var log bytes.Buffer
	r.Options.Log = slog.New(slog.NewTextHandler(&log, nil))
	difftest.Write(t, filepath.Join(r.Dir, "bin/noisy"), "#!/bin/sh\ntest $CNI_COMMAND = ADD || exit 0\necho begin >&2\nyes | head -c 3000000 >&2\nexit 1\n", 0o700)
	difftest.Write(t, filepath.Join(r.Dir, "bin/polite"), "#!/bin/sh\ntest $CNI_COMMAND = DEL || echo hello >&2\necho '{\"cniVersion\":\"1.0.0\"}'\n", 0o700)
	r.Start()
	r.Prepare(dratest.DeviceClaim("u1", "cni", dratest.Network(`{"type":"polite"},{"type":"noisy"}`)))
	if r.RunPod(r.Sandbox("s1", "pod")) == nil {
		t.Error("ADD succeeds")
	}
	r.Stop()
	difftest.Contains(t, log.String(), "plugin=polite stderr=\"hello")
	difftest.Lacks(t, log.String(), `stderr=""`)
	for line := range strings.SplitSeq(log.String(), "\n") {
		_, said, ok := strings.Cut(line, `plugin=noisy stderr="`)
		if ok && strings.HasPrefix(said, "begin") && strings.Count(said, "y") == (1<<20-len("begin\n"))/2 {
			return
		}
	}
	t.Errorf("%d bytes are logged, without the beginning of what the plugin wrote", log.Len())
}
