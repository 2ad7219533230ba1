package dratest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
		plugin()
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

// plugin runs the plugin "fake". Its interfaces are files in dir/there.
func plugin() {
	input, err := io.ReadAll(os.Stdin)
	Check(err)
	var conf pluginConf
	Check(json.Unmarshal(input, &conf))
	c := Call{os.Getenv("CNI_COMMAND"), os.Getenv("CNI_CONTAINERID"), os.Getenv("CNI_IFNAME"), namespaceAt(os.Getenv("CNI_NETNS")), os.Getenv("CNI_ARGS"), conf.PrevResult != nil}
	line, _ := json.Marshal(c)
	books, err := os.OpenFile(filepath.Join(conf.Dir, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	Check(err)
	_, err = books.Write(append(line, '\n'))
	Check(err)
	made := filepath.Join(conf.Dir, "there", c.Sandbox+"_"+c.IfName)
	if c.Command == "DEL" {
		if _, err := os.Stat(filepath.Join(conf.Dir, "no-del")); err == nil {
			fail("DEL is refused")
		}
		if err := os.Remove(made); err != nil && !os.IsNotExist(err) {
			fail(err.Error())
		}
		Check(conf.returnDevice(restoretest.Open(conf.Dir), c.Netns, c.IfName))
		return
	}
	if conf.Behave == "slow" { // until the test creates a file, or for 5 minutes
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(conf.Dir, "go-on")); err == nil {
				break
			}
		}
	}
	Check(os.MkdirAll(filepath.Dir(made), 0o700))
	Check(os.WriteFile(made, nil, 0o600))
	Check(conf.useDevice(restoretest.Open(conf.Dir), c.Netns, c.IfName))
	misbehave(conf)
	fmt.Printf(`{"cniVersion": %q, "interfaces": [{"name": "host0"}, {"name": %q, "mac": "02:00:00:00:00:01", "mtu": 1450, "sandbox": %q}],
		"ips": [{"address": "10.0.0.2/24", "interface": 1}], "dns": {}}`, conf.CNIVersion, c.IfName, c.Netns)
}

// misbehave makes ADD fail after the interface exists.
func misbehave(conf pluginConf) {
	if conf.Behave == "refuse" {
		fail("no address left")
	}
	if info, writes := map[string]string{
		"info":   `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:00.2"}}`,
		"socket": `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"server","path":"/run/s"}}`,
	}[conf.Behave]; writes {
		path := conf.RuntimeConfig.CNIDeviceInfoFile
		Check(os.MkdirAll(filepath.Dir(path), 0o700))
		Check(os.WriteFile(path, []byte(info), 0o600))
	}
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

func fail(why string) {
	fmt.Printf(`{"cniVersion":"1.1.0","code":100,"msg":%q}`, why)
	os.Exit(1)
}

// Check ends the process if there is an error. It is for code without a test.
func Check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Plugins are CNI plugins without processes, for tests with fake time. They behave according to their
// configuration and to hook.
type Plugins struct {
	version.PluginDecoder
	rig        *Rig
	mu         sync.Mutex
	interfaces map[string]bool   // "sandbox ifName" that exist
	started    []string          // "COMMAND sandbox ifName" of all calls
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
	r.Plugins = &Plugins{rig: r, interfaces: map[string]bool{}, busy: map[string]bool{}, Missing: map[string]bool{}, Netns: map[string]string{}}
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

func (p *Plugins) ExecPlugin(_ context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	get := func(key string) (value string) {
		for _, e := range env {
			if v, ok := strings.CutPrefix(e, key+"="); ok {
				value = v
			}
		}
		return value
	}
	var conf pluginConf
	if err := json.Unmarshal(stdin, &conf); err != nil {
		return nil, err
	}
	command, sandbox, ifName, netns := get("CNI_COMMAND"), get("CNI_CONTAINERID"), get("CNI_IFNAME"), namespaceAt(get("CNI_NETNS"))
	p.mu.Lock()
	what := sandbox + " " + ifName
	p.started = append(p.started, command+" "+what)
	if command == "DEL" {
		p.Netns[filepath.Base(path)] = netns
	}
	does := p.hook
	if p.busy[sandbox] || command == "ADD" && conf.PrevResult == nil && p.interfaces[what] {
		p.Violations = append(p.Violations, fmt.Sprintf("%s %s: busy %v, there %v", command, what, p.busy[sandbox], p.interfaces[what]))
	}
	p.busy[sandbox] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.busy, sandbox)
	}()
	if limit, err := time.ParseDuration(conf.Behave); err == nil && command == "ADD" {
		time.Sleep(limit)
	}
	if command == "ADD" { // a failed ADD may leave an interface too
		p.setInterface(what, true)
		p.useDevice(conf, netns, ifName)
	}
	if does != nil {
		if err := does(command, sandbox, ifName); err != nil {
			return nil, &types.Error{Code: 100, Msg: err.Error()}
		}
	}
	if command == "DEL" {
		p.setInterface(what, false)
		return nil, conf.returnDevice(p.rig.Kernel, netns, ifName)
	}
	return fmt.Appendf(nil, `{"cniVersion": %q, "interfaces": [{"name": %q, "mac": "02:00:00:00:00:01", "sandbox": %q}], "dns": {}}`,
		conf.CNIVersion, ifName, netns), nil
}

// useDevice runs [pluginConf.useDevice]. It records a violation if the device is not restored, or has the wrong driver.
func (p *Plugins) useDevice(conf pluginConf, netns, ifName string) {
	if conf.DeviceID == "" || p.rig.Kernel == nil {
		return
	}
	err := conf.checkDevice(p.rig.Kernel)
	if err != nil && p.GivenUp != nil && p.GivenUp(conf.DeviceID) { // the next ADD uses the old note
		err = nil
	}
	if err == nil {
		err = conf.useDevice(p.rig.Kernel, netns, ifName)
	}
	if vf := CapturedDevices()[conf.DeviceID].VF; err == nil && p.VLAN > 0 && vf != nil {
		of := *vf
		of.VLAN = p.VLAN
		err = p.rig.Kernel.ConfigureVF(conf.DeviceID, of)
	}
	if err != nil && !errors.Is(err, link.ErrNoNetns) && !errors.Is(err, restore.ErrNotOnNode) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.Violations = append(p.Violations, fmt.Sprintf("%s for %s: %v", conf.DeviceID, netns, err))
	}
}

func (p *Plugins) setInterface(what string, there bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.interfaces, what)
	if there {
		p.interfaces[what] = true
	}
}

// InterfaceNames returns the existing interfaces, sorted.
func (p *Plugins) InterfaceNames() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.interfaces))
}

// Started returns all calls as "COMMAND sandbox ifName".
func (p *Plugins) Started() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.started)
}

// Calls counts the calls with a prefix.
func (p *Plugins) Calls(prefix string) (n int) {
	for _, call := range p.Started() {
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
