package attachment

import (
	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/config"
)

// Idle says that a configuration leads to no device: no plugin before, no delegate, neither
// a device ID nor a declaration with a type. What is declared is of [Attachment.Declared].
// ADD refuses it, unless the device-info file is there already.
func Idle(cfg *config.Config, declared *devinfo.Info) bool {
	return cfg.PrevResult == nil && len(cfg.Delegates) == 0 && cfg.DeviceID == "" && (declared == nil || declared.Type == "")
}
