package install

import "testing"

func TestVersionsAreComparedAsGitDescribesThem(t *testing.T) {
	ordered := []string{
		"v0.0.0-20261121164143-22dfebb54a3c", "v0.9.0", "v1.0.0-rc.1", "v1.0.0-rc.1-2-gabcdef0", "v1.0.0-rc.2", "v1.0.0", "v1.0.0-1-gabcdef0",
		"v1.0.0-2-g0123456-dirty", "v1.0.0-11-gabcdef0", "v1.0.1", "v1.10.0", "v2.0.0",
	}
	for a := range ordered {
		for b := range ordered {
			want := 0
			if a != b {
				want = 1
			}
			if a < b {
				want = -1
			}
			if got, ok := compare(ordered[a], ordered[b]); got != want || !ok {
				t.Errorf("%s, %s: %d, %v", ordered[a], ordered[b], got, ok)
			}
		}
	}
	if n, ok := compare("1.2.3", "v1.2.3-dirty"); n != 0 || !ok {
		t.Errorf("%d, %v", n, ok)
	}
	for _, v := range []string{"", "22dfebb", "(devel)", "unknown", "latest", "v1.2.3.4"} {
		if n, ok := compare(v, "v1.0.0"); ok {
			t.Errorf("%s: %d", v, n)
		}
	}
}
