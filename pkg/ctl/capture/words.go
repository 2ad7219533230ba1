package capture

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// minWord is the length of the shortest name that is renamed wherever it occurs; a
// common word would take keys of JSON with it.
const minWord = 6

// word returns a name of the sort to put in place of word, and renames word everywhere
// unless it may be a common one: it must be long, and contain a digit or a dash.
func (s *scrubber) word(word, sort string) string {
	key := strings.ToLower(word)
	if key == "" {
		return ""
	}
	if by, ok := s.words[key]; ok {
		return by
	}
	s.count[sort]++
	by := fmt.Sprintf("%s-%d", sort, s.count[sort])
	s.words[key] = by
	if len(key) >= minWord && strings.ContainsAny(key, "0123456789-") {
		s.spell(key, spelling{by: by, alone: true})
	}
	return by
}

// entryKeys are the keys of a journal entry that the commands read. "before" is not
// among them: it holds a whole file, in base64.
var entryKeys = []string{
	"format", "network", "containerID", "ifName", "netns", "bootID", "time", "file", "dir", "created", "wrote", "inNetns", "device", "cdi",
	"asked", "info", "delegates", "cniVersion", "args", "capabilityArgs", "prevResult", "result", "complete", "leases",
}

// changed is an object of JSON without what may not be shown, which change takes out. One that is
// corrupt, which may be half a configuration, is shown only as corrupt.
func changed(data []byte, change func(map[string]json.RawMessage)) []byte {
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil {
		return []byte("corrupt\n")
	}
	change(object)
	return append(line(object), '\n')
}

// journalEntry keeps what may be shown of an entry. Configurations of delegates keep only
// their type and name, results everything but dns, and capability arguments the device's
// name and file: the others hold whatever a cluster puts there.
func (s *scrubber) journalEntry(e map[string]json.RawMessage) {
	only(e, entryKeys...)
	edit(e, "delegates", func(list []map[string]json.RawMessage) any {
		for _, d := range list {
			only(d, "cniVersion", "name", "type")
		}
		return list
	})
	edit(e, "capabilityArgs", func(args map[string]json.RawMessage) any {
		only(args, "deviceID", "CNIDeviceInfoFile")
		return args
	})
	for _, key := range []string{"prevResult", "result"} {
		edit(e, key, func(result map[string]json.RawMessage) any {
			delete(result, "dns")
			return result
		})
	}
	edit(e, "args", func(args string) any { return s.cniArgs(args) })
}

// claimKeys are the keys of a claim's attachment that the commands read. Of "list", the configuration
// as executed, they read only whether it is there.
var claimKeys = []string{
	"request", "pool", "device", "node", "network", "cniVersion", "ifName", "phase", "error", "sandbox", "netns", "bootID", "infoFile", "info",
	"tries", "delError", "list", "shareID", "args",
}

// claimRecord keeps what may be shown of one of cni-dra-driver's records.
func (s *scrubber) claimRecord(c map[string]json.RawMessage) {
	only(c, "schema", "namespace", "name", "uid", "pod", "attachments")
	s.claimName(c)
	edit(c, "pod", func(pod map[string]string) any {
		return map[string]string{
			"namespace": s.word(pod["namespace"], "namespace"), "name": s.word(pod["name"], "pod"), "uid": s.word(pod["uid"], "uid"),
		}
	})
	edit(c, "attachments", func(list []map[string]json.RawMessage) any {
		for _, a := range list {
			only(a, claimKeys...)
			edit(a, "list", func(l map[string]json.RawMessage) any {
				if l == nil {
					return nil
				}
				return struct{}{}
			})
			edit(a, "args", func(args [][2]string) any {
				for n, pair := range args {
					args[n][1] = s.cniArg(pair[0], pair[1])
				}
				return args
			})
		}
		return list
	})
}

func (s *scrubber) claimName(c map[string]json.RawMessage) {
	edit(c, "namespace", func(name string) any { return s.word(name, "namespace") })
	edit(c, "name", func(name string) any { return s.word(name, "claim") })
}

// journalClaim keeps what may be shown of what the journal has of a claim.
func (s *scrubber) journalClaim(c map[string]json.RawMessage) {
	only(c, "format", "uid", "part", "namespace", "name", "bootID", "time", "pods", "netns", "leases")
	s.claimName(c)
	edit(c, "pods", func(pods []string) any {
		for n, uid := range pods {
			pods[n] = s.word(uid, "uid")
		}
		return pods
	})
}

// offered renames the pods in the reasons of what cni-dra-driver offers.
func (s *scrubber) offered(o map[string]json.RawMessage) {
	edit(o, "devices", func(list []map[string]string) any {
		for _, d := range list {
			d["why"] = s.namedPod(d["why"])
		}
		return list
	})
}

// namedPod renames the pod in a reason such as "pod shop/web-0 has it".
func (s *scrubber) namedPod(why string) string {
	rest, ok := strings.CutPrefix(why, "pod ")
	name, rest, there := strings.Cut(rest, " ")
	namespace, name, named := strings.Cut(name, "/")
	if !ok || !there || !named {
		return why
	}
	return "pod " + s.word(namespace, "namespace") + "/" + s.word(name, "pod") + " " + rest
}

// liveFacts renames the pods that have devices.
func (s *scrubber) liveFacts(l map[string]json.RawMessage) {
	edit(l, "devices", func(list []map[string]string) any {
		for _, d := range list {
			namespace, name, _ := strings.Cut(d["pod"], "/")
			d["pod"] = s.word(namespace, "namespace") + "/" + s.word(name, "pod")
		}
		return list
	})
}

// only removes all other keys.
func only(m map[string]json.RawMessage, keys ...string) {
	for key := range m {
		if !slices.Contains(keys, key) {
			delete(m, key)
		}
	}
}

// edit changes the value of a key; a value of another type is removed.
func edit[T any](m map[string]json.RawMessage, key string, f func(T) any) {
	raw, ok := m[key]
	if !ok {
		return
	}
	var value T
	if json.Unmarshal(raw, &value) != nil {
		delete(m, key)
		return
	}
	m[key] = line(f(value))
}

// cniArgs renames the pod in CNI_ARGS, "K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=shop".
// Arguments that common runtimes do not pass keep only their key.
func (s *scrubber) cniArgs(args string) string {
	pairs := strings.Split(args, ";")
	for n, pair := range pairs {
		if key, value, _ := strings.Cut(pair, "="); pair != "" {
			pairs[n] = key + "=" + s.cniArg(key, value)
		}
	}
	return strings.Join(pairs, ";")
}

func (s *scrubber) cniArg(key, value string) string {
	switch key {
	case "K8S_POD_NAME":
		return s.word(value, "pod")
	case "K8S_POD_NAMESPACE":
		return s.word(value, "namespace")
	case "K8S_POD_UID":
		return s.word(value, "uid")
	case "IgnoreUnknown", "K8S_POD_INFRA_CONTAINER_ID":
		return value
	}
	return ""
}
