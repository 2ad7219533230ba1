package kernel_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestBadConfigurationIsRefused(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const head = `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", `
		for _, c := range []struct {
			conf string
			code uint
			msg  string
		}{
			{"", 6, "network configuration: unexpected end of JSON input"},
			{standalone(infoFile)[:60], 6, "network configuration: unexpected end of JSON input"},
			{"null", 6, "network configuration: it is null, not an object"},
			{"[]", 6, "network configuration: json: cannot unmarshal array into Go value of type map[string]json.RawMessage"},
			{"\x00\xff", 6, "network configuration: invalid character '\\x00' looking for beginning of value"},
			{head + `"deviceID": 7}`, 2, `deviceID: 7 is not supported: want a string`},
			{head + `"delegates": {}}`, 2, `delegates: {} is not supported: want a list of plugin configurations`},
			{head + `"delegates": [7]}`, 2, `delegates[0]: 7 is not supported: want a plugin configuration, an object`},
			{head + `"delegates": [{"type": "../child"}]}`, 2, `delegates[0].type: "../child" is not supported: want the name of a CNI plugin`},
			{head + `"runtimeConfig": {"CNIDeviceInfoFile": ["x"]}}`, 2, `runtimeConfig.CNIDeviceInfoFile: ["x"] is not supported: want a string`},
			{head + `"prevResult": "none"}`, 2, `prevResult: "none" is not supported: want an object`},
			{head + `"strict": "yes"}`, 2, `strict: "yes" is not supported: want true or false`},
		} {
			call(t, "ADD", pod, c.conf).fails(t, c.code, c.msg)
			if c.code == 2 { // what is no JSON object names no attachment
				call(t, "DEL", pod, c.conf).ok(t)
			}
		}
		nothingLeft(t)
	})
}

// Two megabytes are a lot, but no reason to fail, or to fill the log.
func TestHugeConfiguration(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		huge := strings.Repeat("x", 2<<20)
		for _, key := range []string{`"x-vendor": "` + huge + `"`, `"` + huge + `": 1`, `"args": {"cni": "` + huge + `"}`} {
			conf := strings.Replace(standalone(infoFile), "{", "{"+key+", ", 1)
			for _, verb := range []string{"ADD", "CHECK", "DEL"} {
				a := call(t, verb, pod, conf)
				a.ok(t)
				if len(a.stderr) > 4096 {
					t.Errorf("%s, %.20s…: %d bytes in the log", verb, key, len(a.stderr))
				}
			}
		}
		nothingLeft(t)
	})
}

// What the runtime was made to pass as a path leads to nothing outside of the
// directory, and ADD and DEL neither hang nor do harm.
func TestHostilePaths(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const victim = "/run/passwd"
		must(t, os.WriteFile(victim, []byte("root:x:0:0\n"), 0o644))
		must(t, os.MkdirAll(infoDir, 0o755))
		long := infoDir + "/" + strings.Repeat("x", 5000)
		const prefix = "runtimeConfig.CNIDeviceInfoFile: "
		outside := "must be directly in " + infoDir
		for path, why := range map[string]string{
			victim:                                   outside,
			infoDir + "/../../../../passwd":          `must not hold ".."`,
			infoDir + "/..":                          `must not hold ".."`,
			infoDir:                                  outside,
			infoDir + "/":                            "a file name is missing",
			infoDir + "/.hidden":                     "a file name must not begin with a dot",
			infoDir + "/sub/file":                    outside,
			infoDir + "/a\x00b":                      "a file name must not hold a slash or a NUL",
			infoDir + "/a\nlevel=ERROR b":            "a file name must be UTF-8 without control characters",
			long:                                     "a file name must not have more than 246 bytes",
			"/run/" + strings.Repeat("x/", 3000):     "a file name is missing",
			"/run" + strings.Repeat("/x", 3000):      outside,
			"net-c0ffee_net1":                        "must be an absolute path",
			"/var/run/../../run/passwd":              `must not hold ".."`,
			"/proc/self/root" + victim:               outside,
			"/run/k8s.cni.cncf.io/devinfo/dp/x.json": outside,
		} {
			conf := withPath(t, path)
			call(t, "ADD", pod, conf).fails(t, 7, fmt.Sprintf("%s%q: %s", prefix, path, why))
			call(t, "DEL", pod, conf).ok(t)
		}
		same(t, "the victim", read(t, victim), "root:x:0:0\n")
		nothingLeft(t)
	})
}

func withPath(t *testing.T, path string) string {
	t.Helper()
	text, err := json.Marshal(path)
	must(t, err)
	return strings.Replace(standalone("PATH"), `"PATH"`, string(text), 1)
}

// What is not a file cannot be read or written, but is removed by DEL, unless it is a
// directory: nobody can know whose that is.
func TestOddThingsAtThePath(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		const victim = "/run/passwd"
		must(t, os.WriteFile(victim, []byte("root:x:0:0\n"), 0o644))
		must(t, os.MkdirAll(infoDir, 0o755))
		conf := delegates(`{"type": "child"}`)
		for what, put := range map[string]func() error{
			"symbolic link":  func() error { return os.Symlink(victim, infoFile) },
			"dangling link":  func() error { return os.Symlink("/run/nosuch", infoFile) },
			"link to itself": func() error { return os.Symlink(infoFile, infoFile) },
			"named pipe":     func() error { return syscall.Mkfifo(infoFile, 0o644) },
		} {
			must(t, put())
			mode := "Lrwxrwxrwx"
			if what == "named pipe" {
				mode = "prw-r--r--"
			}
			call(t, "ADD", pod, conf).fails(t, 5, infoFile+": not a regular file (mode "+mode+")")
			same(t, "files after ADD", files(t, infoDir, stateDir), infoFile)
			delLeavesNothing(t, pod, conf)
		}
		same(t, "the victim", read(t, victim), "root:x:0:0\n")
		must(t, os.Mkdir(infoFile, 0o755))
		call(t, "ADD", pod, conf).fails(t, 5, infoFile+": not a regular file (mode drwxr-xr-x)")
		call(t, "DEL", pod, conf).ok(t)
		if _, err := os.Stat(infoFile); err != nil {
			t.Error(err)
		}
	})
}
