package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Changed is when an entry was last written or removed: a time that is not the same any
// more says that there is something new. It is zero while there is no journal.
func (j *Journal) Changed() (time.Time, error) {
	stat, err := os.Stat(filepath.Join(j.dir, "attachments"))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return stat.ModTime(), nil
}
