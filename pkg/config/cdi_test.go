package config_test

import (
	"testing"

	"devinfo-cni.io/pkg/config"
)

func TestCDIIsAskedForByTrueOrAnObject(t *testing.T) {
	for text, want := range map[string]*config.CDI{
		`{}`:                                 nil,
		`{"cdi": false}`:                     nil,
		`{"cdi": null}`:                      nil,
		`{"cdi": true}`:                      {},
		`{"cdi": {}}`:                        {},
		`{"cdi": {"kind": null}}`:            {},
		`{"cdi": {"kind": "a.example/b"}}`:   {Kind: "a.example/b"},
		`{"cdi": {"name": "{podUID}"}}`:      {Name: "{podUID}"},
		`{"cdi": {"socketDir": "/run/{x}"}}`: {SocketDir: "/run/{x}"},
	} {
		got := parse(t, text)
		equal(t, text, got.CDI, want)
		if len(got.Problems) > 0 || len(got.Unknown) > 0 {
			t.Errorf("%s: %v, %v", text, got.Problems, got.Unknown)
		}
	}
}
