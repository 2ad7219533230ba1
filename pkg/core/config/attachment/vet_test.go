package attachment_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// Two pods would share the path that contains such a text. A vendor's key may have any other text.
func TestTextThatIsNearlyPlaceholderIsError(t *testing.T) {
	goldentest.Lines(t, "testdata/placeholders.txt", func(text string) (output []string) {
		for key, form := range map[string]string{
			"deviceInfo.type":            `{"deviceInfo": {"type": "%s"}}`,
			"deviceInfo.vhost-user.path": `{"deviceInfo": {"type": "vhost-user", "vhost-user": {"path": "/s/%s/x"}}}`,
			"cdi.name":                   `{"cdi": {"name": "%s"}}`, "cdi.socketDir": `{"cdi": {"socketDir": "/s/%s/{ifName}"}}`,
		} {
			_, err := attachment.Vet(parse(t, fmt.Sprintf(form, text)))
			problem := difftest.As[*config.Problem](t, err)
			difftest.Same(t, key+" "+text, problem.Key, key)
			output = append(output, strings.TrimPrefix(problem.Error(), problem.Key+": "))
		}
		slices.Sort(output)
		output = slices.Compact(output) // of the three places
		const vendors = `"deviceInfo": {"note": [{"%s": "{ifName}"}], "pci": {"x": "%[1]s"}}}`
		warnings, err := attachment.Vet(parse(t, fmt.Sprintf("{"+vendors, text)))
		difftest.Must(t, err)
		_, strict := attachment.Vet(parse(t, fmt.Sprintf(`{"strict": true, `+vendors, text)))
		difftest.Same(t, text+" is an error if strict", strict != nil, len(warnings) > 0)
		for _, w := range warnings {
			output = append(output, "a warning in a vendor's key: "+w.Value)
		}
		return slices.Compact(output)
	})
}

func TestVetAcceptsPlaceholders(t *testing.T) {
	for _, text := range []string{
		`{}`, `{"deviceInfo": {}}`, `{"cdi": true}`, `{"name": "{x}", "resourceName": "$", "cdi": {"name": "{podUID}-{ifName}", "socketDir": "/{network}/{podUID}/{containerID}{containerID:12}"}}`,
		`{"deviceInfo": {"{podName}": {"note": ["{podNamespace}", {"(": "[a]"}, "100%", "<b>podUID</b>", "[", "50%podUID", "(pod)", "$HOME/{}", "{x}"]}}}`,
		`{"deviceInfo": {"vhost-user": {"path": "/run/{podNamespace}@{podName}@{ifName}/#{podUID}#~pod~uid/podName~"}}}`,
		`{"deviceInfo": {"vhost-user": {"path": "/run/100%/[a](b)<c>@d@#podUID/podUID-{podUID}~ifName"}}}`,
	} {
		warnings, err := attachment.Vet(parse(t, text))
		difftest.Must(t, err)
		difftest.Same(t, text, len(warnings), 0)
	}
}

// The last ones are unlike any key, or errors of Declared.
func TestKeyThatResemblesKeyOfSpecificationIsWarning(t *testing.T) {
	goldentest.Lines(t, "testdata/keys.txt", func(text string) (output []string) {
		warnings, err := attachment.Vet(parse(t, `{"deviceInfo": `+text+`}`))
		difftest.Must(t, err)
		for _, w := range warnings {
			output = append(output, w.String())
		}
		if _, err = attachment.Vet(parse(t, `{"strict": true, "deviceInfo": `+text+`}`)); err != nil {
			output = append(output, "strict: "+err.Error())
		}
		return output
	})
}

// The author of a network could otherwise fill the node's log.
func TestAtMostTenKeysAreReported(t *testing.T) {
	var many strings.Builder
	for n := range 5_000 {
		fmt.Fprintf(&many, `"version%c": 1, `, 'a'+n%26)
		fmt.Fprintf(&many, `"rdma-device%c": 1, `, 'a'+n%26)
	}
	for _, form := range []string{`{"pci": {%s"x": 1}}`, `{%s"x": 1}`, `{"memi1": 1, "memi2": 1, "pci": {%s"x": 1}}`} {
		warnings, err := attachment.Vet(parse(t, fmt.Sprintf(`{"deviceInfo": `+form+`}`, many.String())))
		difftest.Must(t, err)
		difftest.Same(t, form, len(warnings), 10)
	}
}

// Each step of ADD before the delegates takes memory and processor time in proportion to the configuration, whatever its
// shape, and reports few problems. It takes a twentieth of the time that is allowed,
// because beside other work the processor time of one step varies.
func TestConfigurationOfAnyShapeTakesLittleMemory(t *testing.T) {
	const mostAllocated, mostText = 110 << 20, 8 << 10 // all that is ever allocated
	began, all := difftest.ProcessorTime(t), shapes()
	for range 10 {
		difftest.Must(t, json.Unmarshal([]byte("{"+all[0].keys+"}"), new(any)))
	}
	mostTime := 4 * (difftest.ProcessorTime(t) - began) // of a slow machine too
	for _, s := range all {
		text := []byte(`{"cniVersion": "1.1.0", "name": "net-a", "type": "devinfo", ` + s.keys + `}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := difftest.ProcessorTime(t)
		cfg, err := config.Parse(text)
		difftest.Must(t, err)
		a, err := attachment.New(cfg, attachment.Args{ContainerID: container, IfName: "net1"}, "/infos")
		difftest.Must(t, err)
		problems := cfg.Problems
		for n := range cfg.Delegates {
			if p := cfg.DelegateProblem(n); p != nil {
				problems = append(problems, p)
				break // as ADD does
			}
		}
		configs := 0
		if len(problems) == 0 {
			for _, raw := range cfg.DelegateConfigs() {
				configs += len(raw)
			}
		}
		doubts, wrong := attachment.Vet(cfg)
		_, warnings, err := a.Declared(cfg)
		runtime.ReadMemStats(&after)
		if took := difftest.ProcessorTime(t) - began; took > mostTime {
			t.Errorf("%s takes %v of processor time, more than %v", s.name, took, mostTime)
		}
		said := 0
		for _, line := range cfg.Warnings() {
			said += len(line)
		}
		for _, v := range append(doubts, warnings...) {
			said += len(v.String())
		}
		for _, err := range []error{wrong, err} {
			if err != nil {
				said += len(err.Error())
			}
		}
		for _, p := range problems {
			said += len(p.Error())
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; len(text) > most || allocated > mostAllocated || said > mostText || len(problems) > 11 || configs > 10<<20 {
			t.Errorf("%s of %d bytes: allocated %d MiB, reported %d problems and %d bytes of text, made configurations of %d bytes",
				s.name, len(text), allocated>>20, len(problems), said, configs)
		}
	}
}
