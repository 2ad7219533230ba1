package capture

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// A shape makes of a value of JSON what may be shown of it; nil = nothing.
type shape func(s *scrubber, value json.RawMessage) json.RawMessage

// keys are those of an object, several of one shape together; "*" is that of all others, which
// otherwise are left out.
type keys map[string]shape

// What may be shown of what records hold: only what the commands read. The others hold whatever a
// cluster puts there, such as keys of delegates, or a whole file in base64.
var (
	journalEntry = fields(keys{
		"format network containerID ifName netns bootID time file dir created wrote inNetns interface device cdi asked info cniVersion complete leases": keep,

		"args":              typed((*scrubber).cniArgs),
		"capabilityArgs":    fields(keys{"deviceID CNIDeviceInfoFile": keep}),
		"delegates":         each(fields(keys{"cniVersion name type": keep})),
		"prevResult result": fields(keys{"dns": drop, "*": keep}),
	})
	journalClaim = fields(keys{
		"format uid part bootID time netns leases": keep, "namespace": word("namespace"), "name": word("claim"), "pods": each(word("uid")),
	})
	claimRecord = fields(keys{
		"schema uid": keep, "namespace": word("namespace"), "name": word("claim"),
		"pod": fields(keys{"namespace": word("namespace"), "name": word("pod"), "uid": word("uid")}),
		"attachments": each(fields(keys{
			"request pool device node network cniVersion ifName phase error sandbox netns bootID infoFile info tries delError shareID": keep,

			"list": fields(keys{}), // the configuration as executed: they read only whether it is there
			"args": each(cniArg),
		})),
	})
	offered   = fields(keys{"*": keep, "devices": each(fields(keys{"*": keep, "why": typed((*scrubber).namedPod)}))})
	liveFacts = fields(keys{"*": keep, "devices": each(fields(keys{"*": keep, "pod": typed((*scrubber).podName)}))})
)

func keep(_ *scrubber, value json.RawMessage) json.RawMessage { return value }

func drop(*scrubber, json.RawMessage) json.RawMessage { return nil }

// fields is the shape of an object.
func fields(by keys) shape {
	shapes := map[string]shape{"*": drop}
	for names, its := range by {
		for name := range strings.FieldsSeq(names) {
			shapes[name] = its
		}
	}
	return typed(func(s *scrubber, all map[string]json.RawMessage) map[string]json.RawMessage {
		for _, key := range slices.Sorted(maps.Keys(all)) {
			its, named := shapes[key]
			if !named {
				its = shapes["*"]
			}
			if all[key] = its(s, all[key]); all[key] == nil {
				delete(all, key)
			}
		}
		return all
	})
}

// each is the shape of a list.
func each(element shape) shape {
	return typed(func(s *scrubber, all []json.RawMessage) []json.RawMessage {
		for n := range all {
			all[n] = element(s, all[n])
		}
		return all
	})
}

// word is a name of that sort.
func word(sort string) shape {
	return typed(func(s *scrubber, name string) string { return s.word(name, sort) })
}

// cniArg is a pair of key and value.
var cniArg = typed(func(s *scrubber, pair [2]string) [2]string { return [2]string{pair[0], s.cniArg(pair[0], pair[1])} })

// typed is the shape of values of one type, in Go's words; nothing is shown of any other.
func typed[T any](change func(*scrubber, T) T) shape {
	return func(s *scrubber, raw json.RawMessage) json.RawMessage {
		var value T
		if json.Unmarshal(raw, &value) != nil {
			return nil
		}
		return line(change(s, value))
	}
}

// shown is what the shape lets be seen of a file. One that is corrupt, which may be half a
// configuration, is shown only as corrupt.
func (s *scrubber) shown(data []byte, shape shape) []byte {
	if data = shape(s, data); data == nil {
		return []byte("corrupt\n")
	}
	return append(data, '\n')
}
