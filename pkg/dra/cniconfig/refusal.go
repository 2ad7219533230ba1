package cniconfig

import (
	"fmt"
	"strings"
)

// Refusal says that a claim is against a rule of the driver.
type Refusal struct {
	Request string // of the claim; "" = the whole claim
	At      string // the key that it is about, below what was checked: "config.plugins[0].type"; "" = all of it
	Rule    string // what is there, and the rule that it breaks
	Remedy  string // what its author can do
}

func (r *Refusal) Error() string {
	if r.Request == "" {
		return fmt.Sprintf("%s; %s", r.Rule, r.Remedy)
	}
	return fmt.Sprintf("request %q: %s; %s", r.Request, r.Rule, r.Remedy)
}

func refuse(at, rule, remedy string) *Refusal { return &Refusal{At: at, Rule: rule, Remedy: remedy} }

// below puts refusals under the path of what was checked.
func below(path string, list []*Refusal) []*Refusal {
	for _, r := range list {
		r.At = strings.TrimSuffix(path+"."+r.At, ".")
	}
	return list
}

// first is what a claim is refused for: the first of all that is wrong.
func first(list []*Refusal) *Refusal {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// quote keeps a message readable that quotes the configuration.
func quote(s string) string { return fmt.Sprintf("%q", clip(s)) }

func clip(s string) string {
	const longest = 80
	if r := []rune(s); len(r) > longest {
		return string(r[:longest]) + "…"
	}
	return s
}
