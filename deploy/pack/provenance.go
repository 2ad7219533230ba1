package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// object is one of JSON.
type object = map[string]any

// ourselves is the default builder: the person who runs "make push". It is a tag URI (RFC 4151), not an address.
const ourselves = "tag:devinfo-cni.io,2026:deploy/pack"

// provenance returns an in-toto statement (https://in-toto.io/Statement/v1) with the SLSA provenance
// (https://slsa.dev/provenance/v1) of an image: its source, builder and programs. It is not signed. It refers to the modules
// by the digest of the SPDX document.
func (r *release) provenance(name string, image v1.Hash, programs []program, bill []byte) ([]byte, error) {
	source := object{"name": "source", "digest": object{"gitCommit": r.revision}}
	if r.source != "" {
		source["uri"] = "git+" + r.source + "@" + r.revision
	}
	modules := object{"name": "sbom.spdx.json", "mediaType": spdx, "digest": object{"sha256": fmt.Sprintf("%x", sha256.Sum256(bill))}}
	command := fmt.Sprintf("make push REGISTRY='%s' TAG='%s' VERSION='%s' SOURCE='%s' ARCHES='%s'", r.prefix, r.tag, r.version, r.source, strings.Join(r.arches(), " "))
	return json.MarshalIndent(object{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://slsa.dev/provenance/v1",
		"subject": []object{{"name": name, "digest": object{image.Algorithm: image.Hex}}},
		"predicate": object{
			"buildDefinition": object{
				"buildType":            ourselves + "/v1",
				"externalParameters":   object{"source": r.source, "revision": r.revision, "command": command},
				"resolvedDependencies": []object{source, modules},
			},
			"runDetails": object{"builder": object{"id": r.builder, "version": object{"go": programs[0].info.GoVersion}}},
		},
	}, "", " ")
}
