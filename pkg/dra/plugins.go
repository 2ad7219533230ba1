package dra

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/pod"
)

// plugins runs CNI plugins through libcni. Each attachment has a directory of its own
// below cache: the state is the authority, so what libcni keeps there is thrown away
// before anyone could believe it.
type plugins struct {
	dirs  []string
	root  string
	cache string
	limit time.Duration
	exec  invoke.Exec // nil = processes of this node
	log   *slog.Logger
}

const deviceInfoCapability = "CNIDeviceInfoFile"

// add runs ADD and returns the result in the network's version. It ends when the
// plugins do: nobody knows what one that was killed has left.
func (p *plugins) add(key string, at *state.Attachment) (json.RawMessage, error) {
	cni, list, err := p.open(key, at)
	if err != nil {
		return nil, err
	}
	result, err := cni.AddNetworkList(context.Background(), list, runtimeConf(at, at.Netns))
	if err != nil {
		return nil, reasoned(err, "network %s: ADD", at.Network)
	}
	if same, err := result.GetAsVersion(list.CNIVersion); err == nil {
		result = same
	}
	text, err := json.Marshal(result)
	if err != nil {
		return nil, reasoned(err, "network %s: result of ADD", at.Network)
	}
	return text, nil
}

// check says which plugin of a network is missing: then nothing of it is to be run.
func (p *plugins) check(at *state.Attachment) error {
	list, err := libcni.NetworkConfFromBytes(at.List)
	if err != nil {
		return reasoned(err, "network %s: configuration", at.Network)
	}
	find := p.runner("")
	for _, plugin := range list.Plugins {
		if _, err := find.FindInPath(plugin.Network.Type, p.dirs); err != nil {
			return reasoned(err, "network %s: nothing was run", at.Network)
		}
	}
	return nil
}

// del runs DEL as ADD was run, with its result; netns is "" when it is gone.
func (p *plugins) del(key string, at *state.Attachment, netns string) error {
	cni, list, err := p.open(key, at)
	if err != nil {
		return err
	}
	// libcni finds no result in its cache, and then leaves this one in its place.
	if withResult, err := version.GreaterThanOrEqualTo(list.CNIVersion, "0.4.0"); err == nil && withResult && at.Result != nil {
		for n, conf := range list.Plugins {
			if list.Plugins[n], err = libcni.InjectConf(conf, map[string]any{"prevResult": at.Result}); err != nil {
				return reasoned(err, "network %s: DEL", at.Network)
			}
		}
	}
	// One plugin at a time: where one is missing, the others' DEL is run all the same.
	var missing error
	for n := range slices.Backward(list.Plugins) {
		one := *list
		one.Plugins = list.Plugins[n : n+1]
		err := cni.DelNetworkList(context.Background(), &one, runtimeConf(at, netns))
		switch {
		case reasonOf(err) == ReasonMissing:
			missing = errors.Join(missing, err)
		case err != nil:
			return reasoned(errors.Join(err, missing), "network %s: DEL", at.Network)
		}
	}
	if missing != nil {
		return reasoned(missing, "network %s: DEL", at.Network)
	}
	return nil
}

// open makes the attachment's directory anew.
func (p *plugins) open(key string, at *state.Attachment) (cni *libcni.CNIConfig, list *libcni.NetworkConfigList, err error) {
	list, err = libcni.NetworkConfFromBytes(at.List)
	if err != nil {
		return nil, nil, reasoned(err, "network %s: configuration", at.Network)
	}
	if err := p.forget(key); err != nil {
		return nil, nil, err
	}
	dir := p.dir(key)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	lock := filepath.Join(dir, running)
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		return nil, nil, err
	}
	return libcni.NewCNIConfigWithCacheDir(p.dirs, dir, p.runner(lock)), list, nil
}

// runner runs plugins, which hold the lock.
func (p *plugins) runner(lock string) invoke.Exec {
	if p.exec != nil {
		return p.exec
	}
	return &execution{cniexec.Exec{Root: p.root, Limit: p.limit, Lock: lock}, p.log}
}

// await waits for the plugins that an agent has left running when it was killed: what
// they are about to make could not be deleted yet. A daemon that one of them began may
// never end, so the wait has the limit of a plugin.
func (p *plugins) await(key string) {
	if err := cniexec.Wait(context.Background(), filepath.Join(p.dir(key), running), p.limit); err != nil {
		p.log.Warn("what an earlier agent ran is taken for a daemon that a plugin began", "attachment", key, "error", err)
	}
}

const running = "running" // the file that the plugins of an attachment lock

// forget removes what was kept of an attachment.
func (p *plugins) forget(key string) error { return os.RemoveAll(p.dir(key)) }

func (p *plugins) dir(key string) string { return filepath.Join(p.cache, key) }

// runtimeConf is what the plugins get beside their configuration.
func runtimeConf(at *state.Attachment, netns string) *libcni.RuntimeConf {
	capabilities := map[string]any{deviceInfoCapability: at.InfoFile}
	for name, value := range at.Capabilities {
		capabilities[name] = value
	}
	return &libcni.RuntimeConf{
		ContainerID: at.Sandbox, NetNS: netns, IfName: at.IfName, Args: at.Args, CapabilityArgs: capabilities,
	}
}

// cniArgs are those that Kubernetes runtimes pass, in their order, and the claim.
func cniArgs(sb *sandbox, claim string) [][2]string {
	return [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", sb.pod.Namespace},
		{"K8S_POD_NAME", sb.pod.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", sb.id},
		{"K8S_POD_UID", string(sb.pod.UID)},
		{pod.ClaimArg, claim},
	}
}
