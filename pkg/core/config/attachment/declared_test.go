package attachment_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// declared returns the declared device information of a pod's interface net1 on net-a.
func declared(t *testing.T, deviceInfo, cniArgs string) (*devinfo.Info, devinfo.Violations, error) {
	t.Helper()
	cfg := parse(t, `{"name": "net-a", "deviceInfo": `+deviceInfo+`}`)
	a, err := attachment.New(cfg, attachment.Args{ContainerID: container, IfName: "net1", CNIArgs: cniArgs}, "/infos")
	difftest.Must(t, err)
	return a.Declared(cfg)
}

func socket(path string) string {
	raw, _ := json.Marshal(path)
	return `{"type": "vhost-user", "vhost-user": {"path": ` + string(raw) + `}}`
}

func TestNothingDeclaredIsNil(t *testing.T) {
	for _, text := range []string{`{}`, `{"deviceInfo": null}`} {
		cfg := parse(t, text)
		a, _ := attachment.New(cfg, attachment.Args{}, "")
		info, warnings, err := a.Declared(cfg)
		difftest.Must(t, err)
		difftest.Same(t, text, []bool{info == nil, warnings == nil}, []bool{true, true})
	}
}

func TestShortContainerIDIsNotCut(t *testing.T) {
	cfg := parse(t, `{"name": "n", "deviceInfo": `+socket("/s/{containerID:12}")+`}`)
	a, err := attachment.New(cfg, attachment.Args{ContainerID: "c1"}, "")
	info, _, declared := a.Declared(cfg)
	difftest.Must(t, err, declared)
	difftest.Equal(t, info.VhostUser.Path, "/s/c1")
}

func TestPlaceholderValueCannotLeaveItsString(t *testing.T) {
	for _, value := range []string{`"`, `\`, `","path":"/etc/x`, `"}}`, "\n", "\t", "<&>", "é€😀", `\u0041`, `{ifName}`, `{podName}`, "$1", "%s"} {
		info, _, err := declared(t, `{"note": "<{podName}>"}`, "K8S_POD_NAME="+value)
		var got string
		difftest.Must(t, err, json.Unmarshal(info.Extra["note"], &got))
		difftest.Equal(t, []any{got, len(info.Extra)}, []any{"<" + value + ">", 1})
	}
}

// The story vhostuser-bad-values tests more values of socket paths. For a path of a device node, the message must not depend
// on whether the path exists. Of two pod names, the first counts.
func TestDeclaredFillsInPlaceholdersOrRejects(t *testing.T) {
	goldentest.Lines(t, "testdata/declared.txt", func(text string) []string {
		info, warnings, err := declared(t, text, podArgs+";K8S_POD_NAME=second")
		if err != nil {
			return []string{difftest.As[*config.Problem](t, err).Error()}
		}
		var line bytes.Buffer
		difftest.Must(t, json.Compact(&line, info.Encode()))
		output := []string{line.String()}
		for _, w := range warnings {
			output = append(output, "warning: "+w.String())
		}
		return output
	})
	for name, arg := range map[string]string{"podNamespace": "K8S_POD_NAMESPACE", "podName": "K8S_POD_NAME", "podUID": "K8S_POD_UID"} {
		for _, cniArgs := range []string{"", "IgnoreUnknown=1", arg + "="} {
			_, _, err := declared(t, socket("/s/{"+name+"}"), cniArgs)
			want := config.Problem{Key: "deviceInfo", Value: "{" + name + "}", Want: "a placeholder with a value: CNI_ARGS has no " + arg}
			difftest.Same(t, name+", "+cniArgs, *difftest.As[*config.Problem](t, err), want)
		}
	}
	_, _, err := declared(t, `{"note": "`+strings.Repeat("x", 1<<20)+`"}`, "")
	if p := difftest.As[*config.Problem](t, err); p.Key != "deviceInfo" || len(p.Error()) > 200 {
		t.Errorf("%.300s", p)
	}
}

// A name of a megabyte for each of many placeholders would otherwise take all memory of the node.
func TestPlaceholdersFillAtMostOneMegabyte(t *testing.T) {
	name, many := strings.Repeat("n", 1<<18), strings.Repeat("{network}", 4)
	for key, text := range map[string]string{
		"deviceInfo": `"deviceInfo": ` + socket("/"+many), "deviceInfo ": `"deviceInfo": {"x": ["` + strings.Repeat(`{network}", "`, 8) + `{network}"]}`,
		"cdi.name": `"cdi": {"socketDir": "` + many + `", "name": "a` + many + `"}`, "cdi.socketDir": `"cdi": {"socketDir": "a` + many + `"}`,
	} {
		cfg := parse(t, `{"name": "`+name+`", `+text+`}`)
		a, _ := attachment.New(cfg, attachment.Args{}, "")
		_, _, err := a.Declared(cfg)
		if err == nil {
			_, err = a.CDI(cfg)
		}
		difftest.Same(t, key, *difftest.As[*config.Problem](t, err), config.Problem{Key: strings.TrimSpace(key), Value: "a value that grows with its placeholders", Want: "at most 1 MiB"})
	}
}

func FuzzDeclared(f *testing.F) {
	f.Add([]byte(`{"type": "vhost-user", "vhost-user": {"path": "/s/{podUID}{x}{containerID:12}"}}`), podArgs)
	f.Add([]byte(`{"a": "{podName}\u007bifName}\\"}`), `K8S_POD_NAME="\`)
	f.Add([]byte(`{"pci": {"rdma_device": "${x"}}`), "")
	f.Add([]byte(`{"type": "pci", "pci": {}, "memif": {}}`), ";;=")
	f.Fuzz(func(t *testing.T, deviceInfo []byte, cniArgs string) {
		if !json.Valid(deviceInfo) || len(deviceInfo) == 0 || deviceInfo[0] != '{' {
			return // config.Parse accepts only objects
		}
		cfg := &config.Config{Name: "n", DeviceInfo: deviceInfo}
		a, _ := attachment.New(cfg, attachment.Args{ContainerID: "c", IfName: "i", CNIArgs: cniArgs}, "/infos")
		if _, err := attachment.Vet(cfg); err != nil {
			difftest.As[*config.Problem](t, err)
		}
		info, warnings, err := a.Declared(cfg)
		if err != nil {
			difftest.As[*config.Problem](t, err)
			return
		}
		if info == nil || warnings.Err() != nil || len(info.ValidateDeclared().Errors()) > 0 {
			t.Errorf("%s: %+v, %v", deviceInfo, info, warnings)
		}
	})
}
