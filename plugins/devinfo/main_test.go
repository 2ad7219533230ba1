package devinfo_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/sysfs"
	plugin "devinfo-cni.io/plugins/devinfo"
)

// Environment variables with which a story controls the test binary. If storyHost is set, the binary is the
// plugin if its name is devinfo, else a child plugin.
const (
	storyHost = "DEVINFO_STORY_HOST" // text file of the captured host
	storyBoot = "DEVINFO_STORY_BOOT" // name of the boot
	storyLog  = "DEVINFO_STORY_LOG"  // log of the children's calls
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(storyHost) == "":
		// With -race, each process would otherwise sleep for a second at its end.
		must(os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0"))
		os.Exit(m.Run())
	case filepath.Base(os.Args[0]) == "devinfo":
		os.Exit(plugin.Run(storyMachine(), os.Getenv, os.Stdin, os.Stderr))
	case filepath.Base(os.Args[0]) == "skel":
		bySkel()
	default:
		playChild(filepath.Base(os.Args[0]))
	}
}

// storyMachine is like machine of cmd/devinfo, but reads a captured host. As there, the plugin has no sysfs if
// the setting names a missing directory.
func storyMachine() *plugin.Host {
	node, nodeErr := config.LoadNode(os.Getenv("DEVINFO_NODE_CONFIG"))
	level, _ := node.Level()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	host, err := capturefile.Load(os.Getenv(storyHost))
	must(err)
	links, err := linkhost.New(host)
	must(err)
	finder := discovery.Finder{Sys: sysfs.New(host.Sys()), Interfaces: links, Eswitches: links}
	var sysfsErr error
	if node.Sysfs != config.DefaultNode().Sysfs {
		finder.Sys, sysfsErr = sysfs.Open(node.Sysfs)
	}
	h := plugin.NewHost(node, finder, os.Getenv(storyBoot), os.Stdout, log)
	h.NodeError, h.SysfsError, h.Nodes = nodeErr, sysfsErr, storyNodes(host.Sys())
	h.Within = os.Getenv(cleanup.WithinEnv)
	return h
}

// storyNodes returns the captured host's device nodes. Like devtmpfs, it has one for every device with the
// attribute dev.
func storyNodes(sys fs.FS) grant.Nodes {
	return func(name string) (cdispec.DeviceNode, error) {
		node := cdispec.DeviceNode{Path: name, Type: "c"}
		found := false
		err := fs.WalkDir(sys, "devices", func(at string, _ fs.DirEntry, err error) error {
			if err != nil || path.Base(at) != "dev" || path.Base(path.Dir(at)) != path.Base(name) {
				return err
			}
			text, err := fs.ReadFile(sys, at)
			if err == nil {
				found = true
				_, err = fmt.Sscanf(string(text), "%d:%d", &node.Major, &node.Minor)
			}
			return err
		})
		if err == nil && !found {
			err = fs.ErrNotExist
		}
		return node, err
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// A part is the behaviour of a child plugin for one verb, from its configuration: {"story": {"ADD": {"result":
// {…}}, "DEL": {"error": {"code": 5, "msg": "…"}}}}.
type part struct {
	Unless  string            `json:"unless"`  // if this file exists, behave as if there were no part
	Write   map[string]string `json:"write"`   // path to content; empty content removes the file; a path that ends in / is a directory
	Signal  string            `json:"signal"`  // signal to the plugin: TERM or KILL
	Linger  string            `json:"linger"`  // run for another second, then write this file
	Garbage string            `json:"garbage"` // print this instead of a result
	Die     bool              `json:"die"`     // print to stderr and exit with code 3
	Error   json.RawMessage   `json:"error"`   // print this error and exit with code 1
	Result  json.RawMessage   `json:"result"`  // result of ADD instead of the default one
}

type childConf struct {
	CNIVersion    string `json:"cniVersion"`
	PrevResult    json.RawMessage
	RuntimeConfig struct{ CNIDeviceInfoFile string }
	Story         map[string]part
}

// playChild logs the call of a child plugin and plays its part.
func playChild(name string) {
	stdin, err := io.ReadAll(os.Stdin)
	must(err)
	var conf childConf
	must(json.Unmarshal(stdin, &conf))
	verb := os.Getenv("CNI_COMMAND")
	logCall(name, verb, stdin, conf)
	p := conf.Story[verb]
	if _, err := os.Stat(p.Unless); p.Unless != "" && err == nil {
		p = part{}
	}
	for _, path := range slices.Sorted(maps.Keys(p.Write)) {
		content := p.Write[path]
		switch {
		case content == "":
			must(os.Remove(path))
		case strings.HasSuffix(path, "/"):
			must(os.MkdirAll(path, 0o755))
		default:
			must(os.WriteFile(path, []byte(content), 0o644))
		}
	}
	if sig := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}[p.Signal]; sig != 0 {
		parent := os.Getppid()
		must(syscall.Kill(parent, sig))
		for !arrived(sig, parent) {
			time.Sleep(time.Millisecond)
		}
	}
	if p.Linger != "" {
		time.Sleep(time.Second)
		must(os.WriteFile(p.Linger, []byte("late"), 0o644))
		logLine(name + " " + verb + " ends")
	}
	switch {
	case p.Die:
		fmt.Fprintln(os.Stderr, name+": out of cheese")
		os.Exit(3)
	case p.Garbage != "":
		fmt.Print(p.Garbage)
	case p.Error != nil:
		fmt.Println(string(p.Error))
		os.Exit(1)
	case verb != "ADD":
	case p.Result != nil:
		fmt.Println(string(p.Result))
	case conf.PrevResult != nil:
		fmt.Println(string(conf.PrevResult))
	default:
		fmt.Printf(`{"cniVersion": %q, "interfaces": [{"name": %q, "sandbox": %q}]}`+"\n",
			conf.CNIVersion, os.Getenv("CNI_IFNAME"), os.Getenv("CNI_NETNS"))
	}
}

// arrived reports whether a signal has killed the plugin, or all its threads sleep again, after they have handled the signal.
func arrived(sig syscall.Signal, parent int) bool {
	if sig == syscall.SIGKILL {
		return os.Getppid() != parent
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", parent))
	must(err)
	return !slices.ContainsFunc(threads, func(path string) bool {
		stat, err := os.ReadFile(path)
		_, state, _ := strings.Cut(string(stat), ") ")
		return err == nil && !strings.HasPrefix(state, "S ")
	})
}

// logCall writes one line: the name, the verb, the CNI parameters that are set, whether the device-info file
// exists and its content, and the configuration without the story.
func logCall(name, verb string, stdin []byte, conf childConf) {
	words := []string{name, verb}
	for _, key := range []string{"CONTAINERID", "IFNAME", "NETNS", "ARGS"} {
		if value := os.Getenv("CNI_" + key); value != "" {
			words = append(words, value)
		}
	}
	if path := conf.RuntimeConfig.CNIDeviceInfoFile; path != "" {
		what := "(no file)"
		if data, err := os.ReadFile(path); err == nil {
			what = fmt.Sprintf("(file: %s)", strings.Join(strings.Fields(string(data)), ""))
		}
		words = append(words, what)
	}
	var all map[string]json.RawMessage
	must(json.Unmarshal(stdin, &all))
	delete(all, "story")
	delete(all, "type")
	text, err := json.Marshal(all)
	must(err)
	logLine(fmt.Sprintf("%s %s", strings.Join(words, " "), text))
}

func logLine(line string) {
	log, err := os.OpenFile(os.Getenv(storyLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(err)
	defer log.Close()
	_, err = fmt.Fprintln(log, line)
	must(err)
}
