package podresources_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/podresources"
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
