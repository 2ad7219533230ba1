package capture

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/config"
)

// Machine gives this machine's name and its kernel's release.
func Machine() (name, release string) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return "host", ""
	}
	return unix.ByteSliceToString(uts.Nodename[:]), unix.ByteSliceToString(uts.Release[:])
}

// notInNames matches what the name of a captured host must not contain: it is also a file's.
var notInNames = regexp.MustCompile(`[^a-z0-9-]+`)

// Name makes a Host.Name of what a machine is called.
func Name(machine string) string { return notInNames.ReplaceAllString(strings.ToLower(machine), "-") }

// Secrets are this machine's own names and numbers, its mainboard's and its chassis's, as far
// as we may read them, for [Source.Secrets]. The sysfs is where /sys is.
func Secrets(sysfs string) []string {
	name, _ := Machine()
	short, _, _ := strings.Cut(name, ".")
	secrets := []string{name, short}
	files := []string{"/etc/machine-id"}
	for _, file := range []string{"product_serial", "product_uuid", "board_serial", "chassis_serial"} {
		files = append(files, filepath.Join(sysfs, "class/dmi/id", file))
	}
	for _, file := range files {
		data, _ := os.ReadFile(file)
		secrets = append(secrets, strings.TrimSpace(string(data)))
	}
	return secrets
}

// State is what the capture says of itself; one that does not has the default settings.
func (c Captured) State() (State, error) {
	s := State{Settings: config.DefaultNode()}
	if data := c.Host.File(itself); data != nil {
		if err := json.Unmarshal(data, &s); err != nil {
			return s, fmt.Errorf("%s: %w", itself, err)
		}
	}
	return s, nil
}

// Described takes the first line of a captured host apart: "node1: a NIC, Linux 6.12".
func (c Captured) Described() (name, note, release string) {
	first, _, _ := strings.Cut(c.Host.Comment, "\n")
	name, note, _ = strings.Cut(first, ": ")
	note, release, _ = strings.Cut(note, ", Linux ")
	return name, note, release
}
