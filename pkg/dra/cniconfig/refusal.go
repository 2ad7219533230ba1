package cniconfig

import "fmt"

// Refusal says that a claim is against a rule of the driver.
type Refusal struct {
	Request string // of the claim; "" = the whole claim
	Rule    string // what is there, and the rule that it breaks
	Remedy  string // what its author can do
}

func (r *Refusal) Error() string {
	if r.Request == "" {
		return fmt.Sprintf("%s; %s", r.Rule, r.Remedy)
	}
	return fmt.Sprintf("request %q: %s; %s", r.Request, r.Rule, r.Remedy)
}

func refuse(request, rule, remedy string) *Refusal { return &Refusal{request, rule, remedy} }

// quote keeps a message readable that quotes the configuration.
func quote(s string) string {
	const longest = 80
	if r := []rune(s); len(r) > longest {
		s = string(r[:longest]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
