package validate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"devinfo-cni.io/pkg/core/config"
)

// networksAnnotation is where a pod requests networks (Network Custom Resource Definition De-facto Standard, section 4.1).
const networksAnnotation = "k8s.v1.cni.cncf.io/networks"

// checkAnnotations checks the name of the resource whose device Multus passes to the network.
func checkAnnotations(d *Document, all map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if key != resourceAnnotation && strings.EqualFold(key, resourceAnnotation) {
			d.find("annotation-key", "metadata.annotations."+key, config.Encode(all[key]))
		}
	}
	resource := all[resourceAnnotation]
	if domain, name, _ := strings.Cut(resource, "/"); resource != "" && (domain == "" || name == "") {
		d.find("resource-domain", "metadata.annotations."+resourceAnnotation, config.Encode(resource))
	}
}

// A NetworkName is namespace and name of a NetworkAttachmentDefinition.
type NetworkName struct{ Namespace, Name string }

func (n NetworkName) String() string { return strings.TrimPrefix(n.Namespace+"/"+n.Name, "/") }

// Networks returns the networks in a pod's annotation, in either of its forms: "NAME, NAMESPACE/NAME@INTERFACE", or a
// list in JSON. Multus tells them apart in this way (ParsePodNetworkAnnotation), and refuses the pod if ok is false.
func Networks(annotation, namespace string) (names []NetworkName, ok bool) {
	if strings.ContainsAny(annotation, `[{"`) {
		err := json.Unmarshal([]byte(annotation), &names)
		for n := range names {
			names[n].Namespace = cmp.Or(names[n].Namespace, namespace)
		}
		return names, err == nil
	}
	for one := range strings.SplitSeq(annotation, ",") {
		one, _, _ = strings.Cut(strings.TrimSpace(one), "@")
		at, name, qualified := strings.Cut(one, "/")
		if !qualified {
			at, name = namespace, one
		}
		if name != "" {
			names = append(names, NetworkName{at, name})
		}
	}
	return names, true
}

// resourcesIn returns the resource of each network among documents, whose device a container of the pod must request; "" = none,
// or the network is made by the SR-IOV network operator, which also adds the requests.
func resourcesIn(docs []Document) map[NetworkName]string {
	resources := map[NetworkName]string{}
	for _, d := range docs {
		name := NetworkName{d.object.Metadata.Namespace, d.object.Metadata.Name}
		var operator struct {
			Spec struct{ NetworkNamespace, ResourceName string }
		}
		switch {
		case d.object.Kind == definition:
			resources[name] = ResourceOf(d)
		case makers[d.object.Kind] != "" && json.Unmarshal(d.data, &operator) == nil && operator.Spec.ResourceName != "":
			resources[NetworkName{cmp.Or(operator.Spec.NetworkNamespace, name.Namespace), name.Name}] = ""
		}
	}
	return resources
}

// template is a pod, or the part of a workload that describes its pods.
type template struct {
	Metadata struct {
		Namespace   string
		Annotations map[string]string
	}
	Spec struct{ Containers, InitContainers []container }
}

type container struct {
	Resources struct{ Requests, Limits map[string]any }
}

// requests returns how many devices of a resource the pod's containers may get at most.
func (t *template) requests(resource string) (most int64) {
	for _, c := range slices.Concat(t.Spec.Containers, t.Spec.InitContainers) {
		most += max(amount(c.Resources.Requests[resource]), amount(c.Resources.Limits[resource]))
	}
	return most
}

// amount returns a quantity, which may be missing. One that a template will replace may be any.
func amount(quantity any) int64 {
	n, err := apiresource.ParseQuantity(fmt.Sprint(quantity))
	switch {
	case quantity == nil:
		return 0
	case err != nil:
		return math.MaxInt32
	}
	return n.Value()
}

// templates are the paths of the pod in a workload, by its kind.
var templates = map[string][]string{
	"Pod": {}, "Deployment": {"spec", "template"}, "DaemonSet": {"spec", "template"}, "StatefulSet": {"spec", "template"},
	"ReplicaSet": {"spec", "template"}, "Job": {"spec", "template"}, "CronJob": {"spec", "jobTemplate", "spec", "template"},
}

// noNetwork is the reason for skipping a pod that asks for other networks.
const noNetwork = "it names no network that is among the documents"

// checkWorkload checks that containers of a pod request the resources of the pod's networks that are among the documents.
// It reports whether the document is a pod or a workload that names networks.
func checkWorkload(d *Document, resources map[NetworkName]string) bool {
	keys, known := templates[d.object.Kind]
	if !known {
		return false
	}
	raw := d.data
	for _, key := range keys {
		raw = config.Object(raw)[key]
	}
	var pod template
	if json.Unmarshal(raw, &pod) != nil {
		return false
	}
	asked, above := pod.Metadata.Annotations[networksAnnotation], d.object.Metadata.Annotations[networksAnnotation]
	if asked == "" && above != "" {
		d.Kind = CNIConfig
		d.find("networks-above", "metadata.annotations."+networksAnnotation, config.Encode(above), "template", strings.Join(keys, "."))
	}
	if asked == "" {
		return above != ""
	}
	d.Skipped = noNetwork
	names, ok := Networks(asked, d.object.Metadata.Namespace)
	path := strings.Join(append(keys, "metadata.annotations."+networksAnnotation), ".")
	if !ok {
		d.Kind, d.Skipped = CNIConfig, ""
		d.find("networks", path, config.Encode(asked))
	}
	needs := map[string]int64{} // Multus gives each attachment the next device of its resource
	for _, name := range names {
		resource, found := resources[name]
		if found {
			d.Kind, d.Skipped = CNIConfig, ""
		}
		if resource == "" {
			continue
		}
		rule, has := "not-requested", pod.requests(resource)
		if needs[resource]++; has > 0 {
			rule = "too-few-requested"
		}
		if has < needs[resource] {
			d.find(rule, path, config.Encode(asked), "resource", resource, "network", name.String(), "unless", ", unless a webhook adds them")
		}
	}
	return true
}
