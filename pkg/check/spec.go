package check

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/journal"
)

// ForeignSpecError is the error for a CDI spec that devinfo did not write.
type ForeignSpecError struct{ Path string }

func (e *ForeignSpecError) Error() string { return e.Path + ": CDI spec not written by devinfo" }

// ReadSpec reads a CDI spec that devinfo wrote. It returns nil if the file is missing, or blank, as after a
// power failure. For another program's spec it returns a [*ForeignSpecError].
func ReadSpec(dir *store.Dir, file string) ([]byte, error) {
	text, err := dir.Read(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case len(bytes.TrimSpace(text)) == 0:
		return nil, nil
	case !cdispec.IsDevinfoSpec(text, file):
		return nil, &ForeignSpecError{dir.Path(file)}
	}
	return text, nil
}

// spec checks the CDI spec, if ADD wrote one.
func (a *Checker) spec(r *Report, cdi journal.CDI) {
	if cdi.File == "" {
		return
	}
	path := filepath.Join(cdi.Dir, cdi.File)
	row := Item{Fact: "CDI spec", Journal: cdi.Device, File: "there", Source: path, Verdict: Same}
	text, err := ReadSpec(a.Dir(cdi.Dir), cdi.File)
	switch {
	case errors.Is(err, fs.ErrPermission):
		row.File, row.Verdict = "not readable", Unseen
		r.couldNotRead(err, "CDI spec "+path+": reading it takes root")
	case as[*ForeignSpecError](err):
		row.File, row.Verdict = "not devinfo's", Differs
		r.fail(&Error{SpecForeign, err})
	case err != nil:
		row.File, row.Verdict = "not readable", Unseen
		r.fail(&Error{Unreadable, err})
	case text == nil:
		row.File, row.Verdict = "gone", Gone
		r.fail(&Error{SpecGone, fmt.Errorf("CDI spec %s is gone", path)})
	}
	r.row(row)
}
