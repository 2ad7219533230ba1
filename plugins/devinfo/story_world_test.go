package devinfo_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

// The paths of a story. They can be fixed, because linktest.Run mounts an empty tmpfs of this process's own on /run.
const (
	binDir      = "/run/bin"       // CNI_PATH: devinfo and its children
	infoDir     = "/run/infos"     // deviceInfoDir
	stateDir    = "/run/state"     // stateDir
	cdiDir      = "/run/cdi"       // cdiDir
	podNetns    = "/run/netns/pod" // a real network namespace
	nodeFile    = "/run/node.json"
	hostFile    = "/run/host.txtar"
	childrenLog = "/run/children.log"
)

const defaultNode = `{"deviceInfoDir": "/run/infos", "devicePluginDir": "/run/pool", "stateDir": "/run/state", "cdiDir": "/run/cdi", "socketDirs": ["/run/sockets"]}`

// world is the node that a story runs on.
type world struct {
	t      *testing.T
	config map[string]json.RawMessage
	boot   int
	state  map[string]string // sections for files and journal after the last step
	cache  map[string]string // cache of the runtime: results of ADD by attachment
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, state: map[string]string{}, cache: map[string]string{}}
	for _, dir := range []string{binDir, filepath.Dir(podNetns)} {
		check(t, os.MkdirAll(dir, 0o755))
	}
	// Invalid node settings lead to the default state directory, which must not be the machine's.
	if err := unix.Mount("tmpfs", "/var/lib/cni", "tmpfs", 0, ""); !errors.Is(err, fs.ErrNotExist) {
		check(t, err)
	}
	self, err := os.Executable()
	check(t, err)
	for _, name := range []string{"devinfo", "child", "second", "third"} {
		check(t, os.Symlink(self, filepath.Join(binDir, name)))
	}
	check(t, os.Symlink(linktest.NewNetns(t), podNetns))
	check(t, os.WriteFile(nodeFile, []byte(defaultNode), 0o644))
	return w
}

var check = difftest.Must

// do runs one step and returns the resulting sections.
func (w *world) do(s step) sections {
	arg := ""
	if len(s.args) > 0 {
		arg = s.args[0]
	}
	switch s.verb {
	case "HOST":
		w.host(arg, s.body, s.mods)
	case "CONFIG":
		w.config = nil
		check(w.t, json.Unmarshal([]byte(s.body), &w.config))
	case "NODE":
		check(w.t, os.WriteFile(nodeFile, []byte(s.body), 0o644))
	case "REBOOT":
		w.boot++
		w.remove(infoDir) // usually on a tmpfs, like cdiDir
		w.remove(cdiDir)
		records, err := filepath.Glob(stateDir + "/attachments/*")
		check(w.t, err)
		for _, record := range records { // the kernel's uptime stays, so they become older
			if stat, err := os.Lstat(record); err == nil && stat.Mode().IsRegular() {
				check(w.t, os.Chtimes(record, time.Time{}, time.Unix(1, 0)))
			}
		}
	case "WRITE":
		text := strings.TrimSuffix(s.body, "\\\n")
		w.state[arg] = section(text)
		check(w.t, os.MkdirAll(filepath.Dir(arg), 0o755), os.WriteFile(arg, []byte(text), 0o644))
	case "LINK":
		if len(s.args) != 3 {
			w.t.Fatal("want LINK name -> target")
		}
		w.state[arg+" -> "+s.args[2]] = section("")
		check(w.t, os.MkdirAll(filepath.Dir(arg), 0o755), os.Symlink(s.args[2], arg))
	case "NETNS":
		check(w.t, os.MkdirAll(filepath.Dir(arg), 0o755), os.Symlink(linktest.NewNetns(w.t), arg))
	case "TMPFS":
		check(w.t, os.MkdirAll(arg, 0o755), unix.Mount("tmpfs", arg, "tmpfs", 0, "mode=755,nr_inodes="+s.args[1]))
	case "READONLY":
		check(w.t, os.MkdirAll(arg, 0o755), unix.Mount(arg, arg, "", unix.MS_BIND, ""), unix.Mount("", arg, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	case "CHMOD":
		mode, err := strconv.ParseUint(strings.Join(s.args[1:], " "), 8, 32)
		check(w.t, err, os.MkdirAll(arg, 0o755), unix.Chmod(arg, uint32(mode)))
	case "REMOVE":
		w.remove(arg)
	default:
		return w.run(s)
	}
	return nil
}

// host writes the captured host. It leaves out the entries listed in body and everything below them, and adds
// or replaces those in mods. A pod without a capture has no interfaces.
func (w *world) host(name, body string, mods []txtar.File) {
	archive := txtar.Parse([]byte(difftest.Read(w.t, filepath.Join("../../testdata/hosts", name+".txtar"))))
	entry := func(name string) string {
		name, _, _ = strings.Cut(name, " -> ")
		name, _, _ = strings.Cut(name, " !")
		return name
	}
	gone := strings.Fields(body)
	for n := range mods {
		gone = append(gone, entry(mods[n].Name))
	}
	for _, g := range gone {
		before := len(archive.Files)
		archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool {
			return entry(f.Name) == g || strings.HasPrefix(f.Name, g+"/")
		})
		if len(archive.Files) == before && strings.Contains(body, g) {
			w.t.Fatalf("host %s has no %s", name, g)
		}
	}
	archive.Files = append(archive.Files, mods...)
	const pod = "netlink/pod-ip-link.json"
	if !slices.ContainsFunc(archive.Files, func(f txtar.File) bool { return f.Name == pod }) {
		archive.Files = append(archive.Files, txtar.File{Name: pod, Data: []byte("[]\n")})
	}
	check(w.t, os.WriteFile(hostFile, txtar.Format(archive), 0o644))
}

// run calls the plugin.
func (w *world) run(s step) (got sections) {
	check(w.t, os.WriteFile(childrenLog, nil, 0o644))
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(binDir, "devinfo"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(w.stdin(s)), &stdout, &stderr
	cmd.Env = append(os.Environ(),
		storyHost+"="+hostFile, storyLog+"="+childrenLog, fmt.Sprint(storyBoot, "=boot-", w.boot),
		"DEVINFO_NODE_CONFIG="+nodeFile, "CNI_COMMAND="+s.verb, "CNI_PATH="+binDir,
	)
	if s.verb == "ADD" || s.verb == "DEL" || s.verb == "CHECK" {
		cmd.Env = append(cmd.Env, "CNI_CONTAINERID=c0ffee", "CNI_IFNAME=net1", "CNI_NETNS="+podNetns)
	}
	cmd.Env = append(cmd.Env, s.args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		check(w.t, err)
	}
	if s.verb == "ADD" {
		delete(w.cache, attachment(s))
	}
	switch {
	case err == nil:
		got.add("stdout", stdout.String())
		if s.verb == "ADD" {
			w.cache[attachment(s)] = stdout.String()
		}
	case exit.ExitCode() == 1:
		got.add("error", cniError(w.t, stdout.Bytes()))
	default:
		got.add("exit", exit.Error()+"\n"+stdout.String())
	}
	got.add("stderr", warnings(stderr.String()))
	got.add("children", difftest.Read(w.t, childrenLog))
	w.changes(&got)
	return got
}

// attachment returns the part of a call's arguments that identifies the attachment.
func attachment(s step) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(s.args), func(arg string) bool {
		return !strings.HasPrefix(arg, "CNI_CONTAINERID=") && !strings.HasPrefix(arg, "CNI_IFNAME=")
	}), " ")
}

// stdin returns the configuration with the keys of the step added or replaced, in the spelling of the step. A step that
// is not an object is used unchanged. Like a runtime, it passes the result of ADD to CHECK and DEL since version 0.4.0.
func (w *world) stdin(s step) string {
	if strings.TrimSpace(s.body) != "" && !strings.HasPrefix(s.body, "{") {
		return s.body
	}
	keys := map[string]json.RawMessage{}
	maps.Copy(keys, w.config)
	if s.verb == "CHECK" || s.verb == "DEL" {
		delete(keys, "prevResult")
		hasPrev, _ := version.GreaterThanOrEqualTo(strings.Trim(string(keys["cniVersion"]), `"`), "0.4.0")
		if result := w.cache[attachment(s)]; result != "" && hasPrev {
			keys["prevResult"] = json.RawMessage(result)
		}
	}
	if strings.TrimSpace(s.body) != "" {
		check(w.t, json.Unmarshal([]byte(s.body), &keys))
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		lines = append(lines, fmt.Sprintf("%q: %s", key, keys[key]))
	}
	return "{" + strings.Join(lines, ",\n") + "}"
}
