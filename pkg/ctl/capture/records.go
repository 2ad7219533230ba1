package capture

import (
	"encoding/json"
	"path/filepath"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/check"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/pod"
)

// recorded returns a reader of records of type T. The reader clears the fields that no command reads, because they
// may contain keys of delegates and a capture is attached to bug reports. It leaves out the whole content of a
// corrupt record for the same reason.
func recorded[T any](f *files, empty func(*T)) reader {
	return func(name string, data []byte) []byte {
		record := new(T)
		if err := json.Unmarshal(data, record); err != nil && !newer(data) {
			f.note("%s: the record is corrupt, its content is left out", name)
			return []byte("corrupt\n")
		}
		empty(record)
		return append(line(record), '\n')
	}
}

// newer reports whether a record has a newer format. Types of its fields may then differ from the types in this
// build.
func newer(data []byte) bool {
	var is struct{ Format, Schema int }
	_ = json.Unmarshal(data, &is) // other fields do not matter
	return json.Valid(data) && (is.Format > journal.Format || is.Schema > state.Schema)
}

// entry clears unread fields of a journal entry. It captures the files and the network namespace that the entry
// names.
func (f *files) entry(e *journal.Entry) {
	f.enter(e.Netns)
	if e.Dir != "" && e.File != "" {
		f.file(e.Path(), nil)
	}
	if e.CDI.Dir != "" && e.CDI.File != "" {
		f.file(filepath.Join(e.CDI.Dir, e.CDI.File), nil)
	}
	for n, kind := range check.Delegates(e) {
		e.Delegates[n] = line(map[string]string{"type": kind})
	}
	e.CNIVersion, e.CapabilityArgs, e.PrevResult, e.Result = "", nil, nil, nil
	args, _ := pod.ParseArgs(e.Args)
	var pairs []string
	for _, pair := range f.args(args, e.Device.ID, e.SocketDir, e.Requested.SocketPath) {
		pairs = append(pairs, pair[0]+"="+pair[1])
	}
	e.Args = strings.Join(pairs, ";")
}

// held renames the names in the journal's record of a claim and clears its files.
func (f *files) held(c *journal.Claim) {
	c.Files = nil
	c.Namespace, c.Name = f.scrub.word(c.Namespace, "namespace"), f.scrub.word(c.Name, "claim")
	for n := range c.Pods {
		c.Pods[n] = f.scrub.word(c.Pods[n], "uid")
	}
}

// claim clears unread fields of cni-dra-driver's record of a claim. It captures the network namespaces that the
// record names.
func (f *files) claim(c *state.Claim) {
	c.Namespace, c.Name = f.scrub.word(c.Namespace, "namespace"), f.scrub.word(c.Name, "claim")
	c.Pod.Namespace, c.Pod.Name = f.scrub.word(c.Pod.Namespace, "namespace"), f.scrub.word(c.Pod.Name, "pod")
	c.Pod.UID = types.UID(f.scrub.word(string(c.Pod.UID), "uid"))
	for n := range c.Attachments {
		f.attachment(&c.Attachments[n])
	}
	for n := range c.Undeleted {
		f.attachment(&c.Undeleted[n])
	}
}

func (f *files) attachment(at *state.Attachment) {
	f.enter(at.Netns)
	if !at.Bare() {
		at.List = json.RawMessage("{}")
	}
	if at.NodeDevice != nil {
		at.NodeDevice.Published = resourceapi.Device{AllowMultipleAllocations: at.NodeDevice.Published.AllowMultipleAllocations}
	}
	at.Args = f.args(at.Args)
	at.Capabilities, at.Note, at.Result, at.Metadata = nil, nil, nil, nil
}

// args keeps the CNI arguments that name the pod and the claim. It renames the names, also in the paths of the
// sockets.
func (f *files) args(all [][2]string, sockets ...string) (kept [][2]string) {
	sorts := map[string]string{"K8S_POD_NAMESPACE": "namespace", "K8S_POD_NAME": "pod", "K8S_POD_UID": "uid", pod.ClaimArg: "claim"}
	for _, arg := range all {
		if sort, ok := sorts[arg[0]]; ok {
			kept = append(kept, [2]string{arg[0], f.scrub.word(arg[1], sort)})
			for _, path := range sockets {
				f.scrub.socket(path, arg[1])
			}
		}
	}
	return kept
}

func (f *files) enter(netns string) {
	if netns != "" {
		f.netns = append(f.netns, netns)
	}
}
