package capture

import (
	"fmt"
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

// podName renames a pod, namespace/name.
func (s *scrubber) podName(pod string) string {
	namespace, name, _ := strings.Cut(pod, "/")
	return s.word(namespace, "namespace") + "/" + s.word(name, "pod")
}

// namedPod renames the pod in a reason such as "pod shop/web-0 has it".
func (s *scrubber) namedPod(why string) string {
	rest, ok := strings.CutPrefix(why, "pod ")
	name, rest, there := strings.Cut(rest, " ")
	if !ok || !there || !strings.Contains(name, "/") {
		return why
	}
	return "pod " + s.podName(name) + " " + rest
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
