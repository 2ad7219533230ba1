package dratest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/devices/restore/restoretest"
	"devinfo-cni.io/pkg/host/link"
)

// pluginConf is the configuration of the plugin "fake".
type pluginConf struct {
	CNIVersion    string          `json:"cniVersion"`
	Name          string          `json:"name"`
	Type          string          `json:"type"`
	Dir           string          `json:"dir"` // directory of its log and its interfaces
	Behave        string          `json:"behave"`
	DeviceID      string          `json:"deviceID"`
	Driver        string          `json:"wants"` // driver that the device must have; "" = any
	PrevResult    json.RawMessage `json:"prevResult"`
	RuntimeConfig struct{ CNIDeviceInfoFile string }
}

// Main runs the tests of a package with rigs, as its TestMain: the test binary is also the plugin "fake".
func Main(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		input, err := io.ReadAll(os.Stdin)
		Check(err)
		result, err := run(process{}, input, "", os.Getenv)
		if err != nil {
			fmt.Printf(`{"cniVersion":"1.1.0","code":100,"msg":%q}`, err)
			os.Exit(1)
		}
		fmt.Printf("%s", result)
		return
	}
	Check(os.Setenv("GORACE", "atexit_sleep_ms=0")) // with the race detector a plugin would exit one second later
	Check(flag.Set("test.parallel", "8"))           // parallel tests mostly wait for informers and processes
	os.Exit(m.Run())
}

// Call is a line of the plugin's log.
type Call struct {
	Command, Sandbox, IfName, Netns, Args string
	HasResult                             bool // whether it had a prevResult
}

// A player runs the plugin "fake": a process of its own, or [Plugins].
type player interface {
	start(c Call, conf pluginConf, there bool) (end func()) // there: the interface exists already
	use(Call, pluginConf) error                             // at ADD, once the interface exists
	behave(Call, pluginConf) error                          // before ADD has succeeded, and before DEL
	kernel(pluginConf) *restoretest.Kernel
}

// run runs the plugin "fake" and returns its result. Its interfaces are files in dir/there. An ADD that fails leaves its
// interface. dir is for configurations without one.
func run(by player, stdin []byte, dir string, variable func(key string) string) ([]byte, error) {
	var conf pluginConf
	if err := json.Unmarshal(stdin, &conf); err != nil {
		return nil, err
	}
	conf.Dir = cmp.Or(conf.Dir, dir)
	c := Call{variable("CNI_COMMAND"), variable("CNI_CONTAINERID"), variable("CNI_IFNAME"), namespaceAt(variable("CNI_NETNS")), variable("CNI_ARGS"), conf.PrevResult != nil}
	line, _ := json.Marshal(c)
	books, err := os.OpenFile(filepath.Join(conf.Dir, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	Check(err)
	_, err = books.Write(append(line, '\n'))
	Check(errors.Join(err, books.Close()))
	made := filepath.Join(conf.Dir, "there", c.Sandbox+"_"+c.IfName)
	_, err = os.Stat(made)
	defer by.start(c, conf, err == nil)()
	if c.Command == "ADD" {
		Check(os.MkdirAll(filepath.Dir(made), 0o700))
		Check(os.WriteFile(made, nil, 0o600))
		if err := by.use(c, conf); err != nil {
			return nil, err
		}
	}
	if err := by.behave(c, conf); err != nil {
		return nil, &types.Error{Code: 100, Msg: err.Error()}
	}
	if c.Command == "DEL" {
		Check(os.RemoveAll(made))
		return nil, conf.returnDevice(by.kernel(conf), c.Netns, c.IfName)
	}
	return fmt.Appendf(nil, `{"cniVersion": %q, "interfaces": [{"name": "host0"}, {"name": %q, "mac": "02:00:00:00:00:01", "mtu": 1450, "sandbox": %q}],
		"ips": [{"address": "10.0.0.2/24", "interface": 1}], "dns": {}}`, conf.CNIVersion, c.IfName, c.Netns), nil
}

// process is the plugin as a process. Tests tell it how to behave by its configuration and by files.
type process struct{}

func (process) kernel(conf pluginConf) *restoretest.Kernel { return restoretest.Open(conf.Dir) }

func (p process) use(c Call, conf pluginConf) error {
	return conf.useDevice(p.kernel(conf), c.Netns, c.IfName)
}

func (process) start(c Call, conf pluginConf, _ bool) (end func()) {
	if c.Command == "ADD" && conf.Behave == "slow" { // until the test creates a file, or for 5 minutes
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end) && !isFile(conf.Dir, "go-on"); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	return func() {}
}

func isFile(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

func (process) behave(c Call, conf pluginConf) error {
	info := map[string]string{
		"info":   `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:00.2"}}`,
		"socket": `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"server","path":"/run/s"}}`,
	}[conf.Behave]
	switch {
	case c.Command == "DEL" && isFile(conf.Dir, "no-del"):
		return errors.New("DEL is refused")
	case c.Command == "DEL":
		return nil
	case conf.Behave == "refuse":
		return errors.New("no address left")
	case info == "":
		return nil
	}
	path := conf.RuntimeConfig.CNIDeviceInfoFile
	Check(os.MkdirAll(filepath.Dir(path), 0o700))
	return os.WriteFile(path, []byte(info), 0o600)
}

// namespaceAt returns the name of the network namespace at a path. A path to a descriptor leads to it even after its own
// path was removed.
func namespaceAt(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return path
	}
	return strings.TrimSuffix(target, " (deleted)")
}

// Check ends the process if there is an error. It is for code without a test.
func Check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Plugins are the plugin "fake" without processes, under any name, for tests with fake time. They behave according to their
// configuration and to hook.
type Plugins struct {
	version.PluginDecoder
	rig        *Rig
	mu         sync.Mutex
	busy       map[string]bool   // sandboxes of running plugins
	Violations []string          // calls and devices that break a rule
	Missing    map[string]bool   // types that are not installed
	Netns      map[string]string // CNI_NETNS of the last DEL, by type
	hook       func(command, sandbox, ifName string) error
	GivenUp    func(device string) bool // reports whether restoring a device was given up; nil = never
	VLAN       int                      // VLAN that ADD sets on a VF and DEL does not reset; 0 = none
}

// UsePlugins makes the plugins of the rig ones without processes.
func (r *Rig) UsePlugins() *Plugins {
	r.Plugins = &Plugins{rig: r, busy: map[string]bool{}, Missing: map[string]bool{}, Netns: map[string]string{}}
	r.Options.Exec = r.Plugins
	return r.Plugins
}

func (p *Plugins) FindInPath(plugin string, _ []string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Missing[plugin] {
		return "", fmt.Errorf("CNI plugin %q: not installed", plugin)
	}
	return "/" + plugin, nil
}

func (p *Plugins) ExecPlugin(_ context.Context, _ string, stdin []byte, env []string) ([]byte, error) {
	return run(p, stdin, p.rig.Dir, func(key string) (value string) {
		for _, e := range env {
			if v, ok := strings.CutPrefix(e, key+"="); ok {
				value = v
			}
		}
		return value
	})
}

func (p *Plugins) kernel(pluginConf) *restoretest.Kernel { return p.rig.Kernel }

func (p *Plugins) start(c Call, conf pluginConf, there bool) (end func()) {
	p.mu.Lock()
	if c.Command == "DEL" {
		p.Netns[conf.Type] = c.Netns
	}
	if p.busy[c.Sandbox] || c.Command == "ADD" && !c.HasResult && there {
		p.Violations = append(p.Violations, fmt.Sprintf("%s %s %s: busy %v, there %v", c.Command, c.Sandbox, c.IfName, p.busy[c.Sandbox], there))
	}
	p.busy[c.Sandbox] = true
	p.mu.Unlock()
	if limit, err := time.ParseDuration(conf.Behave); err == nil && c.Command == "ADD" {
		time.Sleep(limit)
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.busy, c.Sandbox)
	}
}

func (p *Plugins) behave(c Call, _ pluginConf) error {
	p.mu.Lock()
	does := p.hook
	p.mu.Unlock()
	if does == nil {
		return nil
	}
	return does(c.Command, c.Sandbox, c.IfName)
}

// use records a violation if the device is not restored, or has the wrong driver.
func (p *Plugins) use(c Call, conf pluginConf) error {
	if conf.DeviceID == "" || p.rig.Kernel == nil {
		return nil
	}
	err := conf.checkDevice(p.rig.Kernel)
	if err != nil && p.GivenUp != nil && p.GivenUp(conf.DeviceID) { // the next ADD uses the old note
		err = nil
	}
	if err == nil {
		err = conf.useDevice(p.rig.Kernel, c.Netns, c.IfName)
	}
	if vf := CapturedDevices()[conf.DeviceID].VF; err == nil && p.VLAN > 0 && vf != nil {
		of := *vf
		of.VLAN = p.VLAN
		err = p.rig.Kernel.ConfigureVF(conf.DeviceID, of)
	}
	if err != nil && !errors.Is(err, link.ErrNoNetns) && !errors.Is(err, restore.ErrNotOnNode) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.Violations = append(p.Violations, fmt.Sprintf("%s for %s: %v", conf.DeviceID, c.Netns, err))
	}
	return nil
}

// InterfaceNames returns the existing interfaces as "sandbox ifName", sorted.
func (p *Plugins) InterfaceNames() (names []string) {
	for _, name := range p.rig.Files("there") {
		names = append(names, strings.Replace(name, "_", " ", 1))
	}
	return names
}

// Calls counts the calls with a prefix.
func (p *Plugins) Calls(prefix string) (n int) {
	for _, call := range p.rig.CallNames() {
		if strings.HasPrefix(call, prefix) {
			n++
		}
	}
	return n
}

// SetHook replaces the hook. nil removes it.
func (p *Plugins) SetHook(does func(command, sandbox, ifName string) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = does
}

// ErrNoMaster is the error of Fail.
var ErrNoMaster = errors.New("link not found")

// Fail is a hook that fails a command for a sandbox; "" = all.
func Fail(command, sandbox string) func(command, sandbox, ifName string) error {
	return func(its, of, _ string) error {
		if (command == "" || its == command) && (sandbox == "" || of == sandbox) {
			return ErrNoMaster
		}
		return nil
	}
}
