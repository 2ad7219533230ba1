package journal

import (
	"errors"

	"devinfo-cni.io/devinfo/store"
)

// NewestFormat returns the highest format among the entries, 0 if there are none. An
// invalid entry has no format.
func (j *Journal) NewestFormat() (newest int, err error) {
	keys, err := j.All()
	if err != nil {
		return 0, err
	}
	for _, k := range keys {
		e, err := j.Get(k)
		newer, corrupt := new(FormatError), new(store.CorruptError)
		switch {
		case errors.As(err, &newer):
			newest = max(newest, newer.Format)
		case errors.As(err, &corrupt), e == nil && err == nil:
		case err != nil:
			return 0, err
		default:
			newest = max(newest, e.Format, 1) // format 1 has no key
		}
	}
	return newest, nil
}
