package kernel_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// A named pipe without a reader must not block calls, and a link must not lead to another file.
func TestLogFileMustBeRegularFileWithOneName(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		nodeSettings(t, map[string]any{"logFile": "/run/log"})
		must(t, os.WriteFile("/run/victim", nil, 0o600))
		oddities := map[string]func(string) error{
			"named pipe": oddities["named pipe"], "directory": oddities["directory"],
			"link":      func(path string) error { return os.Symlink("/run/victim", path) },
			"hard link": func(path string) error { return os.Link("/run/victim", path) },
		}
		for what, why := range map[string]string{
			"named pipe": `open /run/log: no such device or address`,
			"directory":  `open /run/log: is a directory`,
			"link":       `open /run/log: too many levels of symbolic links`,
			"hard link":  `/run/log: must be a regular file without other hard links`,
		} {
			must(t, os.RemoveAll("/run/log"))
			must(t, oddities[what]("/run/log"))
			for _, verb := range []string{"ADD", "CHECK", "DEL"} {
				a := call(t, verb, pod, standalone)
				a.ok(t)
				if !strings.Contains(a.warnings(), `"cannot open the log file" error="`+why+`"`) {
					t.Errorf("%s: warnings: %s", verb, a.warnings())
				}
			}
			nothingLeft(t)
		}
	})
}

func TestFailedLogDoesNotSilenceOtherLog(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		must(t, err)
		defer full.Close()
		defer mount(t, "/run/full", "size=4096", 0)()
		must(t, os.WriteFile("/run/full/filler", make([]byte, 4096), 0o600))
		conf := strings.Replace(standalone, "{", `{"devicID": "of which there is a warning", `, 1)
		for verb, logFile := range map[string]string{"ADD": "/run/full/log", "DEL": "/run/log"} {
			nodeSettings(t, map[string]any{"logFile": logFile})
			cmd := devinfo(verb, pod, conf)
			var stderr bytes.Buffer
			if cmd.Stderr = &stderr; logFile == "/run/log" {
				cmd.Stderr = full
			}
			must(t, cmd.Run())
			log := stderr.String()
			if logFile == "/run/log" {
				log = read(t, logFile)
			}
			if !strings.Contains(log, "level=WARN") {
				t.Errorf("logFile %s: the other log says %q", logFile, log)
			}
		}
	})
}
