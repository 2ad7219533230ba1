package install

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// denied says what helps root who may not write to a directory, for it is somebody else's, as
// Kubespray's /opt/cni/bin is: without CAP_DAC_OVERRIDE root is nobody there.
func denied(dir string, err error) error {
	if !errors.Is(err, syscall.EACCES) || os.Geteuid() != 0 {
		return err
	}
	stat, statErr := os.Stat(dir)
	if statErr != nil || owned(stat) {
		return err
	}
	return fmt.Errorf("%w: %s belongs to user %d: give it to root, or this program CAP_DAC_OVERRIDE, as agent.dacOverride=true of the chart does",
		err, dir, stat.Sys().(*syscall.Stat_t).Uid)
}
