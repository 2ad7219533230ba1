package plugin_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	plugin "devinfo-cni.io/plugins/devinfo"
)

// answer is what the plugin prints to a call in this environment.
func answer(t *testing.T, env string, stdin io.Reader) (exit int, stdout, stderr string) {
	t.Helper()
	var out, messages bytes.Buffer
	getenv := func(key string) string {
		for _, pair := range strings.Fields(env) {
			if value, ok := strings.CutPrefix(pair, key+"="); ok {
				return value
			}
		}
		return ""
	}
	exit = (&plugin.Plugin{Stdout: &out}).Run(getenv, stdin, &messages)
	return exit, out.String(), messages.String()
}

const add = "CNI_COMMAND=ADD CNI_CONTAINERID=c0ffee CNI_NETNS=/run/netns/pod CNI_IFNAME=net1 CNI_PATH=/opt/cni/bin "

// Which codes they have is in TestTheProtocolIsThatOfSkel.
func TestWhatTheProtocolRefuses(t *testing.T) {
	for env, want := range map[string]string{
		"CNI_COMMAND=add":                       `unknown CNI_COMMAND`,
		"CNI_COMMAND=ADD":                       `[CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing`,
		"CNI_COMMAND=DEL CNI_PATH=/":            `[CNI_CONTAINERID,CNI_IFNAME] missing`,
		"CNI_COMMAND=GC CNI_IFNAME=../x":        `[CNI_PATH] missing`,
		"CNI_CONTAINERID=../x " + add:           `CNI_CONTAINERID "../x"`,
		"CNI_IFNAME=sixteen-letters- " + add:    `CNI_IFNAME "sixteen-letters-"`,
		add:                                     `"code": 6`,
		"CNI_COMMAND=STATUS CNI_CONTAINERID=/ ": `[CNI_PATH] missing`,
	} {
		if exit, stdout, _ := answer(t, env, strings.NewReader("")); exit != 1 || !strings.Contains(strings.ReplaceAll(stdout, `\"`, `"`), want) {
			t.Errorf("%s: exit code %d, %s, want %s", env, exit, stdout, want)
		}
	}
}

func TestWithoutAVerbItSaysWhatItIs(t *testing.T) {
	exit, stdout, stderr := answer(t, "", strings.NewReader(""))
	if exit != 0 || stdout != "" || !strings.Contains(stderr, "CNI protocol versions supported: 0.1.0, ") {
		t.Errorf("%d, %q, %q", exit, stdout, stderr)
	}
}

func TestVersionReadsNothing(t *testing.T) {
	exit, stdout, _ := answer(t, "CNI_COMMAND=VERSION", broken{})
	if exit != 0 || !strings.Contains(stdout, `"supportedVersions":["0.1.0"`) {
		t.Errorf("%d, %q", exit, stdout)
	}
	if exit, stdout, _ := answer(t, add, broken{}); exit != 1 || !strings.Contains(stdout, `"code": 5`) {
		t.Errorf("%d, %q", exit, stdout)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestAConfigurationIsReadToALimit(t *testing.T) {
	for env, limit := range map[string]string{add: "8 MiB", "CNI_COMMAND=DEL " + add: "20 MiB"} {
		endless := io.MultiReader(strings.NewReader(`{"name": "`), letters{})
		exit, stdout, _ := answer(t, env, endless)
		if exit != 1 || !strings.Contains(stdout, `"code": 7`) || !strings.Contains(stdout, "more than "+limit) {
			t.Errorf("%s: %d, %q", env, exit, stdout)
		}
	}
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for n := range p {
		p[n] = 'a'
	}
	return len(p), nil
}
