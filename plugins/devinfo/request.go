package devinfo

import (
	"encoding/json"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/result"
)

// A request is what ADD has read: from the call, the journal and the device-info file, and then from the delegates.
type request struct {
	c        *Call
	declared *devinfo.Info // deviceInfo of the configuration, with placeholders expanded
	file     infoFile
	cdi      *config.CDI // cdi of the configuration; nil = no spec
	spec     journal.CDI
	result   *result.Result // the CNI result so far: the prevResult, or the last delegate's result; nil = none

	output json.RawMessage // the text of the last delegate's result; nil = none

	// last is the attachment's entry in the journal, locked: of a former, live ADD, or what this ADD has recorded for its
	// delegates; nil = none.
	last *journal.Entry
}
