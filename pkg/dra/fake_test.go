package dra_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/dra/custody/custodytest"
	"devinfo-cni.io/pkg/link"
)

// plugins are CNI plugins without processes, so that time is free: they behave as their
// configuration says, or as the test has them do.
type plugins struct {
	version.PluginDecoder
	mu      sync.Mutex
	there   map[string]bool   // "sandbox ifName" that ADD has made and DEL has not removed
	told    []string          // "ADD sandbox ifName", as they begin
	busy    map[string]bool   // "sandbox ifName" on which a plugin works
	wrong   []string          // what no plugin can do right
	missing map[string]bool   // types that are not installed
	netns   map[string]string // CNI_NETNS of the last DEL, by type
	does    func(command, sandbox, ifName string) error
	kernel  *custodytest.Kernel // of devices; nil = there are none
}

func newPlugins() *plugins {
	return &plugins{there: map[string]bool{}, busy: map[string]bool{}, missing: map[string]bool{}, netns: map[string]string{}}
}

func (p *plugins) FindInPath(plugin string, _ []string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.missing[plugin] {
		return "", fmt.Errorf("CNI plugin %q: not installed", plugin)
	}
	return "/" + plugin, nil
}

func (p *plugins) ExecPlugin(_ context.Context, path string, stdin []byte, env []string) ([]byte, error) {
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
	command, sandbox, ifName := get("CNI_COMMAND"), get("CNI_CONTAINERID"), get("CNI_IFNAME")
	p.mu.Lock()
	what := sandbox + " " + ifName
	p.told = append(p.told, command+" "+what)
	if command == "DEL" {
		p.netns[filepath.Base(path)] = get("CNI_NETNS")
	}
	does := p.does
	if p.busy[what] || command == "ADD" && p.there[what] {
		p.wrong = append(p.wrong, fmt.Sprintf("%s %s: busy %v, there %v", command, what, p.busy[what], p.there[what]))
	}
	p.busy[what] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.busy, what)
	}()
	if limit, err := time.ParseDuration(conf.Behave); err == nil && command == "ADD" {
		time.Sleep(limit)
	}
	if command == "ADD" { // even one that fails may have made something
		p.mark(what, true)
		p.takeDevice(conf, get("CNI_NETNS"), ifName)
	}
	if does != nil {
		if err := does(command, sandbox, ifName); err != nil {
			return nil, &types.Error{Code: 100, Msg: err.Error()}
		}
	}
	if command == "DEL" {
		p.mark(what, false)
		return nil, conf.leave(p.kernel, get("CNI_NETNS"), ifName)
	}
	return fmt.Appendf(nil, `{"cniVersion": %q, "interfaces": [{"name": %q, "mac": "02:00:00:00:00:01", "sandbox": %q}], "dns": {}}`,
		conf.CNIVersion, ifName, get("CNI_NETNS")), nil
}

// takeDevice is wrong if a device is not what it was, or has not the driver that it should.
func (p *plugins) takeDevice(conf pluginConf, netns, ifName string) {
	if conf.DeviceID == "" || p.kernel == nil {
		return
	}
	err := conf.expect(p.kernel)
	if err == nil {
		err = conf.take(p.kernel, netns, ifName)
	}
	if err != nil && !errors.Is(err, link.ErrNoNetns) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wrong = append(p.wrong, fmt.Sprintf("%s for %s: %v", conf.DeviceID, netns, err))
	}
}

func (p *plugins) mark(what string, there bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.there, what)
	if there {
		p.there[what] = true
	}
}

// left is what is there, sorted.
func (p *plugins) left() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for what := range p.there {
		list = append(list, what)
	}
	slices.Sort(list)
	return list
}

// calls counts those that begin so.
func (p *plugins) calls(prefix string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, call := range p.told {
		if strings.HasPrefix(call, prefix) {
			n++
		}
	}
	return n
}

// set has the plugins do something else from now on.
func (p *plugins) set(does func(command, sandbox, ifName string) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.does = does
}

var errNoMaster = errors.New("link not found")

// fails is for DEL and for ADD.
func always(string, string, string) error { return errNoMaster }
