package crash_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// answer ends the plugin of a test.
func answer(err error) {
	if err != nil {
		fmt.Printf(`{"cniVersion": "1.1.0", "code": 5, "msg": %q}`, err)
		os.Exit(1)
	}
}

// The plugin marker has a file for each attachment, which its ADD makes last of all. It is
// a delegate: were its caller's DEL not to wait for an ADD that is under way, the file
// would be left.
const (
	marker  = "marker"
	markDir = "/run/marks"
)

// mark is the plugin marker.
func mark() error {
	file := filepath.Join(markDir, os.Getenv("CNI_CONTAINERID")+"_"+os.Getenv("CNI_IFNAME"))
	switch os.Getenv("CNI_COMMAND") {
	case "ADD":
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			return err
		}
		_, err := fmt.Printf(`{"cniVersion": "1.1.0", "interfaces": [{"name": %q, "sandbox": %q}]}`, os.Getenv("CNI_IFNAME"), os.Getenv("CNI_NETNS"))
		return err
	case "CHECK":
		_, err := os.Stat(file)
		return err
	case "DEL":
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	case "VERSION":
		_, err := fmt.Print(`{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}`)
		return err
	}
	return nil
}
