package plugin_test

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

	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/link/linktest"
)

// The paths of a story. They can be fixed, because linktest.Run mounts an empty tmpfs of this process's own on
// /run.
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
	config map[string]json.RawMessage
	boot   int
	state  map[string]string // sections for files and journal after the last step
	cache  map[string]string // cache of the runtime: results of ADD by attachment
}

func newWorld(t *testing.T) *world {
	w := &world{state: map[string]string{}, cache: map[string]string{}}
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
func (w *world) do(s step) ([]txtar.File, error) {
	arg := ""
	if len(s.args) > 0 {
		arg = s.args[0]
	}
	switch s.verb {
	case "HOST":
		return nil, w.host(arg, s.body, s.mods)
	case "CONFIG":
		w.config = nil
		return nil, json.Unmarshal([]byte(s.body), &w.config)
	case "NODE":
		return nil, os.WriteFile(nodeFile, []byte(s.body), 0o644)
	case "REBOOT":
		w.boot++
		w.forget(infoDir)
		w.forget(cdiDir)
		return nil, errors.Join(os.RemoveAll(infoDir), os.RemoveAll(cdiDir)) // these directories are usually on a tmpfs
	case "WRITE":
		text := strings.TrimSuffix(s.body, "\\\n")
		w.state[arg] = section(text)
		if err := os.MkdirAll(filepath.Dir(arg), 0o755); err != nil {
			return nil, err
		}
		return nil, os.WriteFile(arg, []byte(text), 0o644)
	case "LINK":
		if len(s.args) != 3 {
			return nil, errors.New("want LINK name -> target")
		}
		if err := os.MkdirAll(filepath.Dir(arg), 0o755); err != nil {
			return nil, err
		}
		w.state[arg+" -> "+s.args[2]] = section("")
		return nil, os.Symlink(s.args[2], arg)
	case "CHMOD":
		mode, err := strconv.ParseUint(strings.Join(s.args[1:], " "), 8, 32)
		return nil, errors.Join(err, os.MkdirAll(arg, 0o755), unix.Chmod(arg, uint32(mode)))
	case "REMOVE":
		w.forget(arg)
		return nil, os.RemoveAll(arg)
	}
	return w.run(s)
}

// host writes the captured host. It leaves out the entries listed in body and everything below them, and adds
// or replaces those in mods. A pod without a capture has no interfaces.
func (w *world) host(name, body string, mods []txtar.File) error {
	data, err := os.ReadFile(filepath.Join("../../testdata/hosts", name+".txtar"))
	if err != nil {
		return err
	}
	archive := txtar.Parse(data)
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
			return fmt.Errorf("host %s has no %s", name, g)
		}
	}
	archive.Files = append(archive.Files, mods...)
	const pod = "netlink/pod-ip-link.json"
	if !slices.ContainsFunc(archive.Files, func(f txtar.File) bool { return f.Name == pod }) {
		archive.Files = append(archive.Files, txtar.File{Name: pod, Data: []byte("[]\n")})
	}
	return os.WriteFile(hostFile, txtar.Format(archive), 0o644)
}

// run calls the plugin.
func (w *world) run(s step) ([]txtar.File, error) {
	if err := os.Remove(childrenLog); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	stdin, err := w.stdin(s)
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(binDir, "devinfo"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	cmd.Env = append(os.Environ(),
		storyHost+"="+hostFile, storyLog+"="+childrenLog, fmt.Sprint(storyBoot, "=boot-", w.boot),
		"DEVINFO_NODE_CONFIG="+nodeFile, "CNI_COMMAND="+s.verb, "CNI_PATH="+binDir,
	)
	if s.verb == "ADD" || s.verb == "DEL" || s.verb == "CHECK" {
		cmd.Env = append(cmd.Env, "CNI_CONTAINERID=c0ffee", "CNI_IFNAME=net1", "CNI_NETNS="+podNetns)
	}
	cmd.Env = append(cmd.Env, s.args...)
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	if s.verb == "ADD" {
		delete(w.cache, attachment(s))
	}
	var got sections
	switch {
	case err == nil:
		got.add("stdout", stdout.String())
		if s.verb == "ADD" {
			w.cache[attachment(s)] = stdout.String()
		}
	case exit.ExitCode() == 1:
		text, err := cniError(stdout.Bytes())
		if err != nil {
			return nil, err
		}
		got.add("error", text)
	default:
		got.add("exit", exit.Error()+"\n"+stdout.String())
	}
	got.add("stderr", warnings(stderr.String()))
	children, err := os.ReadFile(childrenLog)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	got.add("children", string(children))
	return got, w.changes(&got)
}

// attachment returns the part of a call's arguments that identifies the attachment.
func attachment(s step) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(s.args), func(arg string) bool {
		return !strings.HasPrefix(arg, "CNI_CONTAINERID=") && !strings.HasPrefix(arg, "CNI_IFNAME=")
	}), " ")
}

// stdin returns the configuration with the keys of the step added or replaced, in the spelling of the step. A
// step that is not an object is used unchanged. Like a runtime, it passes the result of ADD to CHECK and DEL
// since version 0.4.0.
func (w *world) stdin(s step) (string, error) {
	if strings.TrimSpace(s.body) != "" && !strings.HasPrefix(s.body, "{") {
		return s.body, nil
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
		if err := json.Unmarshal([]byte(s.body), &keys); err != nil {
			return "", err
		}
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		lines = append(lines, fmt.Sprintf("%q: %s", key, keys[key]))
	}
	return "{" + strings.Join(lines, ",\n") + "}", nil
}
