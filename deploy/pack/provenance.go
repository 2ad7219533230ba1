package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// statement is an in-toto statement (https://in-toto.io/Statement/v1) with SLSA provenance
// (https://slsa.dev/provenance/v1). It is not signed.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []material `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     struct {
		BuildDefinition struct {
			BuildType            string            `json:"buildType"`
			ExternalParameters   map[string]string `json:"externalParameters"`
			ResolvedDependencies []material        `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails struct {
			Builder struct {
				ID      string            `json:"id"`
				Version map[string]string `json:"version"`
			} `json:"builder"`
		} `json:"runDetails"`
	} `json:"predicate"`
}

// A material is a resource descriptor in SLSA's terms.
type material struct {
	Name      string            `json:"name,omitempty"`
	URI       string            `json:"uri,omitempty"`
	MediaType string            `json:"mediaType,omitempty"`
	Digest    map[string]string `json:"digest"`
}

// ourselves is the default builder: the person who runs "make push". It is a tag URI (RFC 4151), not an address.
const ourselves = "tag:devinfo-cni.io,2026:deploy/pack"

// provenance returns the provenance of an image: its source, builder and programs. It refers to the modules by the
// digest of the SPDX document.
func (r *release) provenance(name string, image v1.Hash, programs []program, bill []byte) ([]byte, error) {
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	s.Subject = []material{{Name: name, Digest: map[string]string{image.Algorithm: image.Hex}}}
	source := material{Name: "source", Digest: map[string]string{"gitCommit": r.revision}}
	if r.source != "" {
		source.URI = "git+" + r.source + "@" + r.revision
	}
	build := &s.Predicate.BuildDefinition
	build.BuildType = ourselves + "/v1"
	build.ExternalParameters = map[string]string{
		"source": r.source, "revision": r.revision,
		"command": fmt.Sprintf("make push REGISTRY='%s' TAG='%s' VERSION='%s' SOURCE='%s' ARCHES='%s'", r.prefix, r.tag, r.version, r.source, strings.Join(r.arches(), " ")),
	}
	build.ResolvedDependencies = []material{source, {
		Name: "sbom.spdx.json", MediaType: string(spdx), Digest: map[string]string{"sha256": fmt.Sprintf("%x", sha256.Sum256(bill))},
	}}
	s.Predicate.RunDetails.Builder.ID = r.builder
	s.Predicate.RunDetails.Builder.Version = map[string]string{"go": programs[0].info.GoVersion}
	return json.MarshalIndent(s, "", " ")
}
