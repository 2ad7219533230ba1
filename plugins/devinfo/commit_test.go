package devinfo_test

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/link/linktest"
	plugin "devinfo-cni.io/plugins/devinfo"
	"devinfo-cni.io/test/difftest"
)

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// An ADD that fails gives back what it can of the former one. Here the directory of CDI specs is lost meanwhile.
func TestFailedADDRestoresFileWithoutSpec(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		w := newWorld(t)
		w.host("mlx5-legacy", "", nil)
		for name, value := range map[string]string{storyHost: hostFile, storyLog: childrenLog, storyBoot: "boot-0", "DEVINFO_NODE_CONFIG": nodeFile} {
			t.Setenv(name, value)
		}
		env := map[string]string{"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c0ffee", "CNI_IFNAME": "net1", "CNI_NETNS": podNetns, "CNI_PATH": binDir}
		add := func(more string, out io.Writer) int {
			h := storyMachine()
			h.Stdout, h.Log = out, slog.New(slog.DiscardHandler)
			return plugin.Run(h, func(name string) string { return env[name] }, strings.NewReader(`{"cniVersion": "1.1.0", "name": "net-a", "type": "devinfo", "deviceID": "0000:3b:00.3", `+more+`}`), io.Discard)
		}
		difftest.Equal(t, add(`"runtimeConfig": {"CNIDeviceInfoFile": "`+infoDir+`/f"}, "cdi": true`, io.Discard), 0)
		former := difftest.Read(t, infoDir+"/f")
		failed := add(`"runtimeConfig": {"CNIDeviceInfoFile": "`+infoDir+`/g"}`, writerFunc(func([]byte) (int, error) {
			check(t, os.RemoveAll(cdiDir))
			difftest.Write(t, cdiDir, "", 0o600)
			return 0, errors.New("closed")
		}))
		if failed == 0 {
			t.Error("ADD succeeds without a result")
		}
		difftest.Equal(t, difftest.Names(t, infoDir), []string{"f"})
		difftest.Same(t, "f", difftest.Read(t, infoDir+"/f"), former)
	})
}
