package depth_test

import (
	"testing"

	"devinfo-cni.io/pkg/depth"
)

func TestDepthCountsLevelsOutsideOfStrings(t *testing.T) {
	for text, want := range map[string]int{`5`: 0, `{}`: 1, `[[], {"a": [1]}]`: 3, `{"[\"[{": "[[[\\"}`: 1, `[[[]], []]`: 3} {
		if got := depth.Of([]byte(text)); got != want {
			t.Errorf("%s: got %d, want %d", text, got, want)
		}
	}
}
