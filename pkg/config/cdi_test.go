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

func TestWrongValuesOfCDIAreProblems(t *testing.T) {
	const want = `true, or an object {"kind": "vendor.example/class", "name": "{podUID}-{ifName}", "socketDir": "/run/vhost-user/{podUID}"}`
	for text, problem := range map[string]config.Problem{
		`{"cdi": "true"}`:         {Key: "cdi", Value: `"true"`, Want: want},
		`{"cdi": 1}`:              {Key: "cdi", Value: `1`, Want: want},
		`{"cdi": []}`:             {Key: "cdi", Value: `[]`, Want: want},
		`{"cdi": {"kind": true}}`: {Key: "cdi.kind", Value: `true`, Want: "a string"},
	} {
		got := parse(t, text)
		equal(t, text, got.Problems, []*config.Problem{&problem})
	}
}

func TestUnknownKeysOfCDIAreNamedWithTheNearest(t *testing.T) {
	equal(t, "unknown", parse(t, `{"strct": 1, "cdi": {"knd": "a/b"}}`).Unknown, []config.UnknownKey{
		{Key: "strct", Nearest: "strict"}, {Key: "cdi.knd", Nearest: "cdi.kind"},
	})
}
