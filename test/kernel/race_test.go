package kernel_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/difftest"
)

// rounds returns the number of repetitions of a race: DEVINFO_ROUNDS, or a small number.
func rounds(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("DEVINFO_ROUNDS"))
	if os.Getenv("DEVINFO_ROUNDS") == "" {
		return 300
	}
	if err != nil || n < 100 { // with fewer rounds one side may win all
		t.Fatalf("DEVINFO_ROUNDS=%s is no number of rounds of at least 100", os.Getenv("DEVINFO_ROUNDS"))
	}
	return n
}

// valuables creates the files outside the attacked directory. It returns a function that returns their state.
func valuables(t *testing.T) (state func() string) {
	t.Helper()
	const text = `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "` + marked + `"}}`
	must(t, os.Mkdir(outside, 0o755), os.WriteFile(outsideInfo, []byte(text), 0o644), os.WriteFile(outsideLinked, []byte("{}"), 0o644))
	return func() string {
		var lines []string
		for _, path := range []string{outside, outsideInfo, outsideLinked} {
			var s unix.Stat_t
			if err := unix.Lstat(path, &s); err != nil {
				return err.Error()
			}
			lines = append(lines, fmt.Sprintf("%s %o %d:%d inode %d", path, s.Mode, s.Uid, s.Gid, s.Ino))
		}
		return strings.Join(append(lines, files(t, outside), read(t, outsideInfo), read(t, outsideLinked)), "\n")
	}
}

// believed fails the test if an answer or the journal contains the address in the file outside.
func believed(t *testing.T, a answer) {
	t.Helper()
	for _, text := range []string{a.stdout, a.stderr, read(t, stateDir+"/attachments/net@c0ffee@net1")} {
		if strings.Contains(text, marked) {
			t.Fatalf("the file outside was read:\n%s", text)
		}
	}
}

// A user who can create names in the device-info directory can make calls fail. The plugin must not create, change,
// read or remove a file outside.
func TestSwappedNamesInDeviceInfoDirectoryAreNotFollowed(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		state := valuables(t)
		must(t, os.MkdirAll(infoDir, 0o755))
		before, conf := state(), standalone
		codes := map[string]int{}
		stop := attack(t, attackNames, infoDir)
		for range rounds(t) {
			for _, verb := range []string{"ADD", "CHECK", "DEL"} {
				a := call(t, verb, pod, conf)
				believed(t, a)
				codes[fmt.Sprint(verb, " ", a.exit)]++
			}
			if now := state(); now != before {
				t.Fatalf("outside there is\n%s\nand was\n%s", now, before)
			}
		}
		stop()
		t.Logf("%v", codes)
		same(t, "the race was one", fmt.Sprint(codes["ADD 0"] > 0, codes["ADD 1"] > 0), "true true")
		must(t, os.RemoveAll(infoDir))
		delLeavesNothing(t, pod, conf)
	})
}

// A user who can create names in a directory of sockets can replace a pod's directory by a link. The CDI spec must
// not contain the target of the link.
func TestSwappedSocketDirectoryIsNotMountedFromElsewhere(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const sockets = "/run/sockets"
		nodeSettings(t, map[string]any{"cdiDir": cdiDir, "socketDirs": []string{sockets}})
		state := valuables(t)
		must(t, os.Mkdir(sockets, 0o755))
		before := state()
		conf := `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "cdi": {"name": "{podUID}-{ifName}", "socketDir": "` + sockets + `/{podUID}"},
			"deviceInfo": {"type": "memif", "memif": {"role": "slave", "mode": "ip", "path": "/run/memif/m.sock"}}}`
		mounts := map[string]int{}
		stop := attack(t, attackDir, sockets)
		for range rounds(t) {
			call(t, "ADD", pod, conf, podUID).ok(t)
			for _, path := range difftest.Files(t, cdiDir) {
				for _, host := range mountsOf(t, path) {
					mounts[host]++
				}
			}
			call(t, "DEL", pod, conf, podUID).ok(t)
			if now := state(); now != before {
				t.Fatalf("outside there is\n%s\nand was\n%s", now, before)
			}
		}
		stop()
		t.Logf("%v", mounts)
		if mounts[sockets+"/6e0c"] == 0 {
			t.Error("no CDI spec had a directory: the race was none")
		}
		delete(mounts, sockets+"/6e0c")
		if len(mounts) > 0 {
			t.Errorf("mounted from elsewhere: %v", mounts)
		}
		nothingLeft(t)
	})
}

// mountsOf returns the host's paths in the mounts of a CDI spec.
func mountsOf(t *testing.T, path string) (hosts []string) {
	t.Helper()
	var spec struct {
		Devices []struct {
			ContainerEdits struct {
				Mounts []struct{ HostPath string }
			}
		}
	}
	must(t, json.Unmarshal([]byte(read(t, path)), &spec))
	for _, device := range spec.Devices {
		for _, mount := range device.ContainerEdits.Mounts {
			hosts = append(hosts, mount.HostPath)
		}
	}
	return hosts
}
