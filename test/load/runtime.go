package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/test/sandbox"
)

// caches is the directory of the two runtimes' caches.
const caches = own + "/runtimes"

// A caller calls plugins as one thread of a runtime does, by libcni. Nobody shares it.
type caller struct {
	*killer
	cni   [2]*libcni.CNIConfig // by runtime
	lists map[string]*libcni.NetworkConfigList
}

func newCaller(s *stats, number uint64) (*caller, error) {
	c := &caller{
		killer: &killer{stats: s, chance: rand.New(rand.NewPCG(*seed, number)), usual: map[string]time.Duration{}},
		lists:  map[string]*libcni.NetworkConfigList{},
	}
	for n := range c.cni {
		c.cni[n] = libcni.NewCNIConfigWithCacheDir([]string{sandbox.Bin}, fmt.Sprint(caches, "/", n), c.killer)
	}
	for _, k := range kinds {
		text := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "plugins": [%s]}`, k.network, k.plugins)
		list, err := libcni.NetworkConfFromBytes([]byte(text))
		if err != nil {
			return nil, err
		}
		c.lists[k.network] = list
	}
	return c, nil
}

// call makes one call about an attachment, ADD, CHECK or DEL, for the runtime that has it.
func (c *caller) call(ctx context.Context, verb string, a *attachment) error {
	rt := &libcni.RuntimeConf{ContainerID: a.container, NetNS: a.netns, IfName: a.ifName}
	if a.kind.capable != nil {
		rt.CapabilityArgs = a.kind.capable(a)
	}
	cni, list := c.cni[a.runtime], c.lists[a.kind.network]
	c.killed, c.about = false, a.kind.network
	switch verb {
	case "ADD":
		_, err := cni.AddNetworkList(ctx, list, rt)
		return err
	case "CHECK":
		return cni.CheckNetworkList(ctx, list, rt)
	}
	return cni.DelNetworkList(ctx, list, rt)
}

// gc has a runtime collect garbage in a network.
func (c *caller) gc(ctx context.Context, runtime int, network string, valid []types.GCAttachment) error {
	c.killed, c.about = false, network
	return c.cni[runtime].GCNetworkList(ctx, c.lists[network], &libcni.GCArgs{ValidAttachments: valid})
}

// A killer runs plugins, and kills devinfo at times. It implements invoke.Exec.
type killer struct {
	version.PluginDecoder
	stats  *stats
	chance *rand.Rand
	about  string                   // the network
	usual  map[string]time.Duration // that a call takes, by network and verb
	spare  bool                     // kill nothing
	killed bool                     // in the call that libcni was last asked for
}

func (k *killer) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

var errKilled = errors.New("killed by us")

func (k *killer) ExecPlugin(_ context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, bytes.NewReader(stdin), &stdout, &stderr
	ours := filepath.Base(path) == "devinfo"
	verb := commandOf(env)
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if ours && !k.spare && *mortally > 0 && k.chance.IntN(*mortally) == 0 {
		within := time.Duration(k.chance.Float64() * float64(k.usual[k.about+verb]))
		defer time.AfterFunc(within, func() { _ = cmd.Process.Kill() }).Stop()
	}
	err := cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
		k.killed = true
		k.stats.count(k.stats.kills, verb)
		return nil, errKilled
	}
	if ours {
		k.usual[k.about+verb] = (k.usual[k.about+verb] + time.Since(begin)) / 2
		k.stats.took(verb, time.Since(begin))
		k.stats.warned(stderr.String())
	}
	if err == nil {
		return stdout.Bytes(), nil
	}
	own := &types.Error{}
	if json.Unmarshal(stdout.Bytes(), own) != nil || own.Msg == "" {
		return nil, fmt.Errorf("%s: %w: %s%s", path, err, &stdout, &stderr)
	}
	return nil, own
}

func commandOf(env []string) string {
	for _, e := range slices.Backward(env) {
		if verb, ok := strings.CutPrefix(e, "CNI_COMMAND="); ok {
			return verb
		}
	}
	return ""
}
