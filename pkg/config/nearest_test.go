package config_test

import (
	"strings"
	"testing"

	"devinfo-cni.io/pkg/config"
)

func TestNearestHasFewestEdits(t *testing.T) {
	words := []string{"deviceID", "deviceInfo", "deviceInfoFile", "strict", "delegates", "name"}
	for key, want := range map[string]string{
		"deviceID": "deviceID", "deviceid": "deviceID", "DEVICEID": "deviceID", "devicID": "deviceID", "evidceID": "deviceID",
		"deviceInf": "deviceInfo", "device_info": "deviceInfo", "deviceinfofil": "deviceInfoFile", "delegate": "delegates",
		"strikt": "strict", "nam": "name", "mane": "name", "": "name",
	} {
		if got := config.Nearest(key, words); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

func TestNearestIsFirstOfEquallyNearWords(t *testing.T) {
	if first, none := config.Nearest("ac", []string{"ab", "ad"}), config.Nearest("a", nil); first != "ab" || none != "" {
		t.Errorf("got %q and %q", first, none)
	}
}

// Nearest does not compare bytes after the 64th, so a key of a megabyte costs no more than one of 64 bytes.
// Words that differ only after the 64th byte are equal, and the first wins.
func TestNearestComparesOnlyFirst64Bytes(t *testing.T) {
	const most = 64
	same := strings.Repeat("x", most-1)
	for _, test := range []struct{ first, second, want string }{
		{same + "xa", same + "xb", same + "xa"},
		{same + "a", same + "b", same + "b"},
	} {
		if got := config.Nearest(test.second, []string{test.first, test.second}); got != test.want {
			t.Errorf("%q: got %q", test.second, got)
		}
	}
	if got := config.Nearest("strict"+strings.Repeat("x", 1<<20), []string{"name", "strict"}); got != "strict" {
		t.Errorf("got %q", got)
	}
}
