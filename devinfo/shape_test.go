package devinfo

import "testing"

func TestMembersAndLevelsAreCountedOutsideStrings(t *testing.T) {
	for text, want := range map[string][2]int{
		`5`: {0, 0}, `{}`: {0, 1}, `{"a": [1, 2], "b": 1}`: {2, 2}, `{"[\"[{,": "[[[\\,"}`: {0, 1}, `[[[]], []]`: {2, 3},
	} {
		if members, levels := shape([]byte(text)); [2]int{members, levels} != want {
			t.Errorf("%s: got %d and %d, want %v", text, members, levels, want)
		}
	}
}
