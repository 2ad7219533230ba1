package config_test

import (
	"strings"
	"testing"

	"devinfo-cni.io/pkg/config"
)

func TestNearestTakesTheFewestEdits(t *testing.T) {
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

func TestNearestOfEqualOnesIsTheFirst(t *testing.T) {
	if got := config.Nearest("ac", []string{"ab", "ad"}); got != "ab" {
		t.Errorf("got %q", got)
	}
}

func TestNearestOfNothingIsNothing(t *testing.T) {
	if got := config.Nearest("a", nil); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestNearestOfAHugeKeyIsFast(t *testing.T) {
	if got := config.Nearest("strict"+strings.Repeat("x", 1<<20), []string{"name", "strict"}); got != "strict" {
		t.Errorf("got %q", got)
	}
}
