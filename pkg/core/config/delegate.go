package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// DelegateProblem returns the reason why the n-th delegate cannot run on any node, or nil. It is not in
// Problems, because DEL still runs the other delegates.
func (c *Config) DelegateProblem(n int) *Problem {
	d := c.Delegates[n]
	if d.Type == c.Type {
		return &Problem{d.Key + ".type", fmt.Sprintf("%q", d.Type), "a plugin other than devinfo itself"}
	}
	var conf types.PluginConf
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(d.Raw, &conf))
	if !ok {
		return nil
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(d.Raw, &fields) // Parse has accepted it
	key, _, _ := strings.Cut(wrong.Field, ".")
	return &Problem{d.Key + "." + wrong.Field, clip(fields[key]), TypeInWords(wrong.Type)}
}

// DelegateProblems returns the problems of all delegates.
func (c *Config) DelegateProblems() (list []*Problem) {
	for n := range c.Delegates {
		if p := c.DelegateProblem(n); p != nil {
			list = append(list, p)
		}
	}
	return list
}

// TypeInWords describes the JSON that decodes into a Go type.
func TypeInWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Int64:
		return "a number"
	case reflect.Map:
		if t.Elem().Kind() == reflect.Bool {
			return `an object of booleans, {"mac": true}`
		}
	}
	return "an object"
}
