package cniexec_test

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/store/storetest"
	"devinfo-cni.io/test/difftest"
)

// network returns a network of scripts. Each script appends its name, verb and configuration to the file "calls".
func network(t *testing.T, cniVersion string, bodies map[string]string, order ...string) (n *cniexec.Network, calls func() string) {
	t.Helper()
	dir := t.TempDir()
	list := &libcni.NetworkConfigList{Name: "net", CNIVersion: cniVersion}
	for _, name := range order {
		text := "#!/bin/sh\necho \"" + name + " $CNI_COMMAND $(cat)\" >>" + dir + "/calls\n" + bodies[name] + "\n"
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
		conf, err := libcni.NetworkPluginConfFromBytes([]byte(`{"type": "` + name + `"}`))
		must(t, err)
		list.Plugins = append(list.Plugins, conf)
	}
	n = &cniexec.Network{
		List: list, Runtime: &libcni.RuntimeConf{ContainerID: "c", IfName: "net1"}, Dirs: []string{dir}, Exec: &cniexec.Exec{}, Cache: dir + "/cache",
	}
	return n, func() string {
		text, _ := os.ReadFile(dir + "/calls")
		_ = os.Remove(dir + "/calls")
		_, err := os.Stat(n.Cache)
		difftest.Is(t, err, os.ErrNotExist)
		return string(text)
	}
}

const says = `[ $CNI_COMMAND = ADD ] && echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.1/8"}]}' || true`

func TestNetworkIsAddedInOrderAndDeletedInReverse(t *testing.T) {
	n, calls := network(t, "1.0.0", map[string]string{"a": says, "b": says}, "a", "b")
	result, err := n.Add(json.RawMessage(`{"cniVersion": "1.0.0", "dns": {"domain": "first"}}`))
	must(t, err)
	difftest.Equal(t, n.Started, 2)
	difftest.Contains(t, string(result), "10.0.0.1/8")
	difftest.Equal(t, regexp.MustCompile(`(?m)^[ab] ADD |"domain":"first"|10.0.0.1/8`).FindAllString(calls(), -1), []string{"a ADD ", `"domain":"first"`, "b ADD ", "10.0.0.1/8"})
	must(t, n.Check(json.RawMessage(`{"cniVersion": "1.0.0", "dns": {"domain": "runtime"}}`)))
	checked := calls()
	difftest.Same(t, checked, []int{strings.Count(checked, `CHECK`), strings.Count(checked, `"domain":"runtime"`)}, []int{2, 2})
	must(t, n.Del(result, nil)...)
	difftest.Equal(t, regexp.MustCompile(`(?m)^[ab] DEL |10.0.0.1/8`).FindAllString(calls(), -1), []string{"b DEL ", "10.0.0.1/8", "a DEL ", "10.0.0.1/8"})
}

// Each started plugin needs a DEL, including the one that failed.
func TestFailedAddNamesPluginAndCountsStartedOnes(t *testing.T) {
	fails := `echo '{"code": 11, "msg": "later"}'; exit 1`
	stop := errors.New("a signal")
	for name, c := range map[string]struct {
		order   []string
		before  error
		started int
		want    string
	}{
		"the second": {[]string{"a", "fails"}, nil, 2, "fails: later"},
		"missing":    {[]string{"a", "none"}, nil, 1, `none: CNI plugin "none": not installed`},
		"stopped":    {[]string{"a"}, stop, 0, "a signal"},
		"garbage":    {[]string{"garbage"}, nil, 1, "garbage: "},
		"odd":        {[]string{"odd"}, nil, 1, "odd: json: "}, // without libcni's words
	} {
		t.Run(name, func(t *testing.T) {
			n, calls := network(t, "1.0.0", map[string]string{"a": says, "fails": fails, "garbage": "echo garbage", "odd": `echo '{"cniVersion": "1.0.0", "ips": 5}'`}, c.order...)
			_ = os.Remove(n.Dirs[0] + "/none")
			n.Before = func() error { return c.before }
			_, err := n.Add(nil)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || n.Started != c.started {
				t.Errorf("%d started: %v", n.Started, err)
			}
			calls()
		})
	}
	n, _ := network(t, "1.0.0", map[string]string{"a": says}, "a")
	n.Cache = n.Dirs[0] + "/a/cache" // in a file
	_, err := n.Add(nil)
	difftest.As[*os.PathError](t, err)
	if errors.As(err, new(*cniexec.PluginError)) {
		t.Errorf("the plugin is blamed: %v", err)
	}
}

func TestDelRunsEveryPluginUnlessCallerStops(t *testing.T) {
	n, calls := network(t, "1.0.0", map[string]string{"b": "exit 1"}, "a", "b", "c")
	errs := n.Del(nil, nil)
	difftest.Same(t, "errors, and plugins that run", []int{len(errs), strings.Count(calls(), "DEL")}, []int{1, 3})
	difftest.Contains(t, errs[0].Error(), "b: ")
	errs = n.Del(json.RawMessage("{"), nil)
	difftest.Same(t, "without a result to pass on", []int{len(errs), strings.Count(calls(), "DEL")}, []int{3, 0})
	errs = n.Del(nil, func(error) bool { return true })
	difftest.Same(t, "of a caller that stops", []int{len(errs), strings.Count(calls(), "DEL")}, []int{1, 2})
}

// A plugin gets the caller's result, in its version, and never one that a killed caller has left in libcni's cache.
func TestPluginsGetResultInTheirVersion(t *testing.T) {
	for cniVersion, passed := range map[string]int{"0.3.1": 0, "0.4.0": 1, "1.0.0": 1} {
		n, calls := network(t, cniVersion, map[string]string{"a": `[ $CNI_COMMAND = DEL ] || echo '{"cniVersion": "0.4.0"}'`}, "a")
		result, err := n.Add(nil)
		must(t, err)
		difftest.Contains(t, string(result), `"cniVersion":"`+cniVersion+`"`)
		for _, given := range []json.RawMessage{result, nil} {
			_, err = libcni.NewCNIConfigWithCacheDir(n.Dirs, n.Cache, n.Exec).AddNetworkList(t.Context(), n.List, n.Runtime)
			must(t, err, os.Remove(n.Dirs[0]+"/calls"))
			must(t, n.Del(given, nil)...)
			difftest.Same(t, "results for DEL of "+cniVersion, strings.Count(calls(), "prevResult"), passed)
			passed = 0
		}
	}
}

func TestFindInPathSearchesBelowRoot(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/a/plugin", 0o755)) // a directory is not a plugin
	difftest.Write(t, root+"/b/plugin", "", 0o755)
	difftest.Write(t, root+"/b/plain", "", 0o644)
	must(t, os.Symlink("/b", root+"/link"), os.Symlink("../../b", root+"/far"), os.Symlink("/etc", root+"/ours")) // resolved below the root
	for _, test := range []struct {
		root, want string
		dirs       []string
	}{
		{root, "/b/plugin", []string{"/none", "/a", "/b"}},
		{root, "/link/plugin", []string{"/link"}},
		{root, "/far/plugin", []string{"/far"}},
		{"", root + "/b/plugin", []string{root + "/a", root + "/b"}},
	} {
		e := &cniexec.Exec{Root: test.root}
		got, err := e.FindInPath("plugin", test.dirs)
		must(t, err)
		difftest.Equal(t, got, test.want)
	}
	e := &cniexec.Exec{Root: root}
	for plugin, want := range map[string]string{
		"macvaln": `CNI plugin "macvaln": not installed in /opt/cni/bin or /b or /ours`,
		"passwd":  `CNI plugin "passwd": not installed`,
		"plain":   `CNI plugin "plain": /b/plain is not executable: chmod 0755 it`,
		"":        `CNI plugin "": type must be the name of an executable`,
		"../b/x":  `CNI plugin "../b/x": type must be the name of an executable`,
	} {
		_, err := e.FindInPath(plugin, []string{"/opt/cni/bin", "/b", "/ours"})
		expect(t, err, cniexec.ReasonMissing, want)
		difftest.Lacks(t, err.Error(), root) // which the operator does not know
	}
}

// lockedFile creates a file and locks it, as the caller of a plugin does.
func lockedFile(t *testing.T) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "entry")
	must(t, os.WriteFile(path, []byte("{}"), 0o400))
	return storetest.Lock(t, path)
}

// free reports whether no process holds the lock of a file.
func free(t *testing.T, path string) bool {
	t.Helper()
	f, err := store.Lock(t.Context(), path, 0)
	store.Unlock(f)
	if err != nil {
		difftest.As[*store.BusyError](t, err)
	}
	return err == nil
}

// mark is in the environment of the plugins, but not of their caller.
const mark = "CNIEXEC_TEST_ATTACHMENT=net/c0ffee/net1"

// pluginEnv names a plugin. If it is set, the test binary runs that plugin instead of the tests.
const pluginEnv = "CNIEXEC_TEST_PLUGIN"

func TestMain(m *testing.M) {
	plugin := os.Getenv(pluginEnv)
	if plugin == "" {
		os.Exit(m.Run())
	}
	unset := os.Unsetenv(pluginEnv)
	_, err := (&cniexec.Exec{Inherit: os.NewFile(3, "lock"), Env: []string{mark}}).ExecPlugin(context.Background(), plugin, nil, os.Environ())
	if err = errors.Join(unset, err); err != nil {
		log.Fatal(err)
	}
}

func TestDaemonInheritsLock(t *testing.T) {
	lock := lockedFile(t)
	plugin := script(t, "(read x <end; ls -l /proc/self/fd >fds; echo >ended) >/dev/null 2>&1 & echo {}")
	end, ended := fifo(t, plugin, "end"), fifo(t, plugin, "ended")
	_, err := call(t, &cniexec.Exec{Inherit: lock}, plugin, "ADD")
	must(t, err)
	must(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_UN)) // a caller does this after its plugin has ended
	difftest.Same(t, "free", free(t, lock.Name()), true)
	must(t, tell(end), hear(ended)) // the daemon is still running
	difftest.Contains(t, difftest.Read(t, filepath.Join(filepath.Dir(plugin), "fds")), lock.Name())
}

// With a limit, a plugin has a process group of its own.
func TestChildrenOfKilledPluginAreKilled(t *testing.T) {
	plugin := script(t, "(exec 4>alive; echo >begun; sleep 3600) >/dev/null 2>&1 & read x <goon; kill -KILL $$")
	alive, begun, goOn := fifo(t, plugin, "alive"), fifo(t, plugin, "begun"), fifo(t, plugin, "goon")
	gone := make(chan error, 1)
	go func() { gone <- hear(alive) }()
	told := make(chan error, 1)
	go func() { told <- errors.Join(hear(begun), tell(goOn)) }()
	_, err := call(t, &cniexec.Exec{Limit: time.Hour}, plugin, "ADD")
	expect(t, err, cniexec.ReasonDied, "signal: killed")
	must(t, errors.Join(<-told, <-gone))
}
