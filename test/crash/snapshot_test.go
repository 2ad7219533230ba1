package crash_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/test/node"
)

// view leaves out the lock and the last address of host-local.
var view = node.View{
	Places:  map[string]string{"host": "", "pod": podNetns, "other pod": otherNetns},
	Without: []string{ipamDir + "/*/lock", ipamDir + "/*/last_reserved_ip*"},
}

// trampled returns the changes of things that must not change.
func trampled(before, now node.Snapshot) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		was := before[name]
		switch is, there := now[name]; {
		case !there && !was.Mode.IsDir():
			problems = append(problems, "of another attachment, gone: "+name)
		case there && is != was:
			problems = append(problems, "of another attachment, changed: "+name)
		}
	}
	return problems
}

// visible returns the files that other programs read: device-info files and CDI specs.
func visible(s node.Snapshot) node.Snapshot {
	files := maps.Clone(s)
	maps.DeleteFunc(files, func(path string, f node.Thing) bool {
		hidden := strings.HasPrefix(filepath.Base(path), ".")
		info := filepath.Dir(path) == infoDir
		spec := filepath.Dir(path) == cdiDir && (filepath.Ext(path) == ".json" || filepath.Ext(path) == ".yaml")
		return hidden || !f.Mode.IsRegular() || !info && !spec
	})
	return files
}

// torn returns the visible files that are incomplete.
func torn(s node.Snapshot) (problems []string) {
	files := visible(s)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		var err error
		if filepath.Dir(path) == cdiDir {
			_, err = cdi.ReadSpec(path, 0)
		} else if info, e := devinfo.Parse([]byte(files[path].Text)); e != nil {
			err = e
		} else {
			err = info.Validate().Err()
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("torn: %s: %v", path, err))
		}
	}
	return problems
}
