package attachment_test

import (
	"runtime"
	"testing"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/test/shapes"
)

// Each step of ADD before the delegates takes memory in proportion to the configuration, whatever its shape, and reports
// few problems. The benchmark shapes measures the whole ADD.
func TestConfigurationOfAnyShapeTakesLittleMemory(t *testing.T) {
	const mostAllocated, mostText = 110 << 20, 8 << 10 // all that is ever allocated
	for _, s := range shapes.All() {
		text := []byte(`{"cniVersion": "1.1.0", "name": "net-a", "type": "devinfo", ` + s.Keys + `}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		cfg, err := config.Parse(text)
		must(t, err)
		a, err := attachment.New(cfg, attachment.Args{ContainerID: container, IfName: "net1"}, "/infos")
		must(t, err)
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
		if allocated := after.TotalAlloc - before.TotalAlloc; len(text) > shapes.Size || allocated > mostAllocated || said > mostText || len(problems) > 11 || configs > 10<<20 {
			t.Errorf("%s of %d bytes: allocated %d MiB, reported %d problems and %d bytes of text, made configurations of %d bytes",
				s.Name, len(text), allocated>>20, len(problems), said, configs)
		}
	}
}
