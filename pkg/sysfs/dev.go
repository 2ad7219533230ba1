package sysfs

import (
	"fmt"
	"os"
)

// CharDevice says whether path, below /dev, is a character device; the error
// tells what it is instead.
func CharDevice(path string) error {
	stat, err := os.Stat(path)
	if err != nil {
		return err
	}
	if stat.Mode()&os.ModeCharDevice == 0 {
		return fmt.Errorf("it has mode %s", stat.Mode())
	}
	return nil
}
