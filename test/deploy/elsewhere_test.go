package deploy

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// elsewhere returns the manifests of deploy/ in another namespace and with other names, as a GitOps repository may
// use them.
func elsewhere(t *testing.T, kustomization string) objects {
	t.Helper()
	return kustomizeHere(t, map[string]string{"kustomization.yaml": kustomization + "\nnamespace: x\nnamePrefix: y-\nnameSuffix: -z\n"})
}

const (
	openshift = "resources: [../deploy/devinfo/overlays/openshift]"
	driver    = "resources: [../deploy/cni-dra-driver]\ncomponents: [../deploy/cni-dra-driver/components/openshift]"
)

// kustomize fails for two namespaces with the same name, so the documentation removes one.
func TestBothAgentsCanShareOneNamespace(t *testing.T) {
	made := elsewhere(t, "resources: [../deploy/devinfo, ../deploy/cni-dra-driver]\n"+difftest.Block(t, docs, "yaml", "$patch: delete"))
	if made["Namespace x"] == nil || made["DaemonSet y-devinfo-agent-z"] == nil || made["DaemonSet y-cni-dra-driver-z"] == nil {
		t.Error(slices.Sorted(maps.Keys(made)))
	}
}

// kustomize renames objects and the fields that refer to them. It does not change texts, such as CEL expressions and
// user names.
func TestNoTextContainsNamespace(t *testing.T) {
	ours := regexp.MustCompile(`serviceaccounts?:(devinfo|cni-dra-driver):|"namespace":"[^x]`)
	for _, of := range []string{openshift, driver} {
		for name, object := range elsewhere(t, of) {
			text, err := json.Marshal(object)
			difftest.Must(t, err)
			if found := ours.Find(text); found != nil {
				t.Errorf("%s has %s", name, found)
			}
		}
	}
}

// A policy has no effect if its condition does not match or its binding is missing, and Kubernetes reports no error.
func TestPolicyAppliesToDriverWithAnyNameAndNamespace(t *testing.T) {
	for where, made := range map[string]objects{
		"kustomize": elsewhere(t, driver), "kustomize, as is": kustomize(t, "cni-dra-driver"),
		"helm":        template(t, "x", `{dra: {enabled: true}}`),
		"helm, named": template(t, "x", `{fullnameOverride: full, dra: {enabled: true}}`),
		"helm, given": template(t, "x", `{dra: {enabled: true, serviceAccount: {create: false, name: my.account}}}`),
	} {
		var conditions, account string
		for name, object := range made {
			spec, _ := object["spec"].(map[string]any)
			switch kind, _, _ := strings.Cut(name, " "); kind {
			case "ValidatingAdmissionPolicyBinding":
				if made["ValidatingAdmissionPolicy "+spec["policyName"].(string)] == nil {
					t.Errorf("%s: there is no policy %s", where, spec["policyName"])
				}
			case "ValidatingAdmissionPolicy":
				text, err := json.Marshal(spec["matchConditions"])
				difftest.Must(t, err)
				conditions = string(text)
			case "ClusterRoleBinding":
				subject := object["subjects"].([]any)[0].(map[string]any)
				account = subject["namespace"].(string) + ":" + subject["name"].(string)
			}
		}
		found := regexp.MustCompile(`^\[\{"expression":"request.userInfo.username.matches\('(.*)'\)","name":"[A-Za-z]*"\}\]$`).FindStringSubmatch(conditions)
		if found == nil {
			t.Fatalf("%s: %s", where, conditions)
		}
		of := regexp.MustCompile(found[1]) // CEL's matches has the same syntax as Go's
		if !of.MatchString("system:serviceaccount:" + account) {
			t.Errorf("%s: the policy is not for %s but for %s", where, account, of)
		}
		for _, other := range []string{"system:serviceaccount:cni-dra-driver:default", "system:serviceaccount:x:myxaccount", "system:node:cni-dra-driver", "cni-dra-driver"} {
			if of.MatchString(other) {
				t.Errorf("%s: the policy is for %s too", where, other)
			}
		}
	}
}

// OpenShift checks whether the pod's account may use the SecurityContextConstraints.
func TestAgentsMayUseTheirSecurityContextConstraints(t *testing.T) {
	withHelm := template(t, "x", `{openshift: true, fullnameOverride: full, dra: {enabled: true}}`)
	for _, c := range []struct {
		made               objects
		role, constraints  string
		program, namespace string
	}{
		{elsewhere(t, openshift), "y-devinfo-agent-scc-z", "y-devinfo-agent-z", "devinfo-agent", "x"},
		{kustomize(t, "devinfo/overlays/openshift"), "devinfo-agent-scc", "devinfo-agent", "devinfo-agent", "devinfo"},
		{withHelm, "full-agent-scc", "full-agent", "devinfo-agent", "x"},
		{elsewhere(t, driver), "system:openshift:scc:privileged", "", "cni-dra-driver", "x"},
		{withHelm, "system:openshift:scc:privileged", "", "cni-dra-driver", "x"},
	} {
		account := ""
		for _, set := range c.made.daemonSets(t) {
			if set.Spec.Selector.MatchLabels["app.kubernetes.io/name"] == c.program {
				account = set.Spec.Template.Spec.ServiceAccountName
			}
		}
		bound := false
		for name, object := range c.made {
			if !strings.HasPrefix(name, "RoleBinding ") || object["roleRef"].(map[string]any)["name"] != c.role {
				continue
			}
			subject := object["subjects"].([]any)[0].(map[string]any)
			bound = subject["name"] == account && subject["namespace"] == c.namespace && object["metadata"].(map[string]any)["namespace"] == c.namespace
		}
		if account == "" || !bound {
			t.Errorf("%s: account %q has no RoleBinding to %s", c.program, account, c.role)
		}
		if c.constraints == "" {
			continue
		}
		rule := c.made["ClusterRole "+c.role]["rules"].([]any)[0].(map[string]any)
		if !slices.Equal(rule["resourceNames"].([]any), []any{c.constraints}) || c.made["SecurityContextConstraints "+c.constraints]["users"] != nil {
			t.Errorf("%v, want %s", rule, c.constraints)
		}
	}
}
