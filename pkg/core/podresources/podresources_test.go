package podresources_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/core/podresources/podresourcestest"
	"devinfo-cni.io/test/difftest"
)

// A kubelet that has just started reports few pods or none.
func TestDeviceIsFreeAfterTwoAnswersWithoutIt(t *testing.T) {
	const a, b = "0000:01:10.0", "0000:01:10.2"
	answer := func(devices ...string) (told podresources.Answer) {
		told.Pods = 1
		for _, d := range devices {
			told.Given = append(told.Given, podresources.Given{Pod: "ns/p", Resource: "intel.com/vf", Device: d})
		}
		return told
	}
	claimed := func(driver, device string) podresources.Answer {
		return podresources.Answer{Pods: 1, Claimed: []podresources.Claimed{{Pod: "ns/p", Driver: driver, PCI: []string{device}}}}
	}
	var empty podresources.Answer
	type step struct {
		after  time.Duration // since the previous answer
		answer podresources.Answer
		want   []string // nil = not known yet
	}
	none := []string{}
	for name, steps := range map[string][]step{
		"pods from the start":      {{0, answer(a, b), []string{a, b}}, {0, answer(a, b), []string{a, b}}},
		"pods without devices":     {{0, answer(), none}},
		"no pod at first":          {{0, empty, nil}, {9 * time.Second, empty, nil}, {time.Second, empty, none}},
		"pods come":                {{0, empty, nil}, {time.Second, answer(a), []string{a}}},
		"the kubelet restarts":     {{0, answer(a, b), []string{a, b}}, {time.Hour, empty, []string{a, b}}, {time.Second, answer(a, b), []string{a, b}}},
		"it knows some pods":       {{0, answer(a, b), []string{a, b}}, {time.Hour, answer(b), []string{a, b}}, {time.Minute, answer(a, b), []string{a, b}}},
		"one has gone":             {{0, answer(a, b), []string{a, b}}, {time.Hour, answer(b), []string{a, b}}, {9 * time.Second, answer(b), []string{a, b}}, {time.Second, answer(b), []string{b}}},
		"gone twice, not in a row": {{0, answer(a), []string{a}}, {time.Hour, answer(), []string{a}}, {time.Hour, answer(a), []string{a}}, {time.Hour, answer(), []string{a}}},
		"claims":                   {{0, claimed("ours", a), none}, {0, claimed("other", a), []string{a}}, {0, answer(), []string{a}}},
	} {
		memory := podresources.Memory{Driver: "ours"}
		now := time.Now()
		for n, s := range steps {
			now = now.Add(s.after)
			given, known := memory.Take(s.answer, now)
			if got := slices.Sorted(maps.Keys(given)); known != (s.want != nil) || !slices.Equal(got, s.want) {
				t.Errorf("%s: answer %d: %v, known %v, want %v", name, n, got, known, s.want)
			}
			waits := !known || len(given) > len(s.answer.Given)+len(s.answer.Claimed)
			difftest.Same(t, fmt.Sprint(name, n, " waits"), memory.Waits(), map[bool]time.Duration{true: 10 * time.Second}[waits])
		}
	}
}

// The kubelet refuses each other call of List because of its rate.
func TestKubeletSaysWhoHasWhichDevice(t *testing.T) {
	const vf, other = "0000:01:10.0", "0000:01:10.2"
	var pods []*podresourcesapi.PodResources
	devices, calls := podresourcestest.Of("intel.com/vf", other, vf), 0
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	stop := podresourcestest.Kubelet{Pods: func() ([]*podresourcesapi.PodResources, error) {
		if calls++; calls%2 == 1 {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return pods, nil
	}, Plugins: func() ([]*podresourcesapi.ContainerDevices, error) { return devices, nil }}.Serve(t, socket)

	memory := podresources.Memory{Socket: socket, Driver: "ours"}
	_, err := memory.Ask(t.Context())
	difftest.Says(t, err, "the kubelet lists no pods; this counts only after a second such answer, at least 10 s later")
	claim := podresourcestest.Claim
	pods = []*podresourcesapi.PodResources{{Namespace: "shop", Name: "idle"}, podresourcestest.Pod("shop", "web", devices,
		claim("a", "pci-10000-e1-00-7", "x/nic=0000:05:1f.1-x", "x/nic=0000:05:1f.1"), claim("b", "0000-3b-00-1f", "0000:06:00.1"), claim("ours", "0000-07-00-0"))}
	got, err := podresources.Ask(t.Context(), socket)
	difftest.Must(t, err)
	difftest.Equal(t, got, podresources.Answer{
		Pods: 2, Given: []podresources.Given{{Pod: "shop/web", Resource: "intel.com/vf", Device: other}, {Pod: "shop/web", Resource: "intel.com/vf", Device: vf}},
		Claimed: []podresources.Claimed{{Pod: "shop/web", Driver: "a", PCI: []string{"10000:e1:00.7", "0000:05:1f.1"}}, {Pod: "shop/web", Driver: "b"}, {Pod: "shop/web", Driver: "ours", PCI: []string{"0000:07:00.0"}}},
	})
	const byPlugin, byDriver = "pod shop/web has it from device plugin intel.com/vf", "pod shop/web has it from DRA driver a"
	want := map[string]string{vf: byPlugin, other: byPlugin, "10000:e1:00.7": byDriver, "0000:05:1f.1": byDriver}
	given, err := memory.Ask(t.Context())
	difftest.Must(t, err)
	difftest.Equal(t, given, want)
	for _, test := range [][3]string{{"intel.com/vf", vf, "true"}, {"intel.com/vf", "0000:01:10.4", "false"}, {"intel.com/pf", vf, "false"}} {
		is, err := podresources.Advertised(t.Context(), socket, test[0], test[1])
		difftest.Must(t, err)
		difftest.Same(t, fmt.Sprint(test), fmt.Sprint(is), test[2])
	}

	stop()
	for _, socket := range []string{socket, "%zz\x00"} { // the second is no target of gRPC
		memory.Socket = socket
		given, err = memory.Ask(t.Context())
		difftest.Says(t, err, "check that the kubelet runs, and that the flag has the path of its socket: ")
		difftest.Equal(t, given, want)
		if is, err := podresources.Advertised(t.Context(), socket, "intel.com/vf", vf); is || err == nil {
			t.Errorf("%q: offered %v, %v", socket, is, err)
		}
	}
}

// A plugin that counts a GPU's memory gives one device for each MiB.
func TestAnswersMayBeLargerThanThoseOfMostServices(t *testing.T) {
	var ids []string
	for n := range 100_000 {
		ids = append(ids, fmt.Sprintf("GPU-00000000-0000-0000-0000-000000000000-_-%06d", n))
	}
	devices, socket := podresourcestest.Of("example.com/gpu-mem", ids...), filepath.Join(t.TempDir(), "kubelet.sock")
	podresourcestest.Kubelet{
		Pods: func() ([]*podresourcesapi.PodResources, error) {
			return []*podresourcesapi.PodResources{podresourcestest.Pod("shop", "web", devices)}, nil
		}, Plugins: func() ([]*podresourcesapi.ContainerDevices, error) { return devices, nil },
	}.Serve(t, socket)
	answer, err := podresources.Ask(t.Context(), socket)
	difftest.Must(t, err)
	difftest.Equal(t, len(answer.Given), len(ids))
	is, err := podresources.Advertised(t.Context(), socket, "example.com/gpu-mem", ids[0])
	difftest.Must(t, err)
	difftest.Equal(t, is, true)
}
