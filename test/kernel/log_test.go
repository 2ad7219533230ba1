package kernel_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// A log that nobody reads holds nobody up.
func TestLogFileThatIsAPipe(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		nodeSettings(t, map[string]any{"logFile": "/run/log"})
		for what, why := range map[string]string{
			"named pipe": `open /run/log: no such device or address`,
			"directory":  `open /run/log: is a directory`,
		} {
			put(t, what, "/run/log")
			for _, verb := range []string{"ADD", "CHECK", "DEL"} {
				a := call(t, verb, pod, standalone(infoFile))
				a.ok(t)
				if !strings.Contains(a.warnings(), `"no log file" error="`+why+`"`) {
					t.Errorf("%s: warnings: %s", verb, a.warnings())
				}
			}
			nothingLeft(t)
		}
	})
}

func TestALogThatCannotBeWrittenDoesNotSilenceTheOther(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		must(t, err)
		defer full.Close()
		conf := strings.Replace(standalone(infoFile), "{", `{"devicID": "of which there is a warning", `, 1)
		for verb, logFile := range map[string]string{"ADD": "/dev/full", "DEL": "/run/log"} {
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
