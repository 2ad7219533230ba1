package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A recipe describes an image. An image contains only programs and the SPDX document.
type recipe struct {
	name     string // also the name of the program that it runs
	programs []string
	about    string
}

// recipes returns the images. Both agents install the plugin. devinfoctl is for administrators who debug an agent's
// pod.
func recipes() []recipe {
	return []recipe{
		{"cni-dra-driver", []string{"cni-dra-driver", "cni-dra-gate", "devinfo", "devinfoctl"}, "Attaches pods to CNI networks by Dynamic Resource Allocation"},
		{"devinfo-agent", []string{"devinfo-agent", "devinfo", "devinfoctl"}, "Installs the CNI plugin devinfo, and hands its device information to containers"},
	}
}

// images writes <name><suffix>.oci.tar for each recipe.
func (r *release) images(suffix string) error {
	for _, recipe := range recipes() {
		if err := r.make(recipe, recipe.name+suffix+".oci.tar"); err != nil {
			return fmt.Errorf("image %s: %w", recipe.name, err)
		}
	}
	return nil
}

func (r *release) make(recipe recipe, file string) error {
	reference := path.Join(r.prefix, recipe.name) + ":" + r.tag
	index, err := r.index(recipe)
	if err != nil {
		return err
	}
	if err := r.writeImage(index, reference, file); err != nil {
		return err
	}
	if r.push {
		if err := r.pushed(index, recipe, reference); err != nil {
			return err
		}
	}
	digest, err := index.Digest()
	fmt.Printf("%s@%s\t%s\n", reference, digest, filepath.Join(r.out, file))
	return err
}

// index builds an index with one image for each architecture.
func (r *release) index(recipe recipe) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range r.arches() {
		image, err := r.image(recipe, arch)
		if err != nil {
			return nil, err
		}
		platform := &v1.Platform{OS: "linux", Architecture: arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return index, nil
}

// Media types of the documents about an image.
const (
	spdx   = types.MediaType("application/spdx+json")
	inToto = types.MediaType("application/vnd.in-toto+json")
)

// pushed pushes an image to its registry with the credentials of "docker login". It also pushes an SPDX document and
// the provenance as referrers of the image.
func (r *release) pushed(index v1.ImageIndex, recipe recipe, reference string) error {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(ref, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return err
	}
	parts := r.pick("", recipe.programs...)
	text, err := r.sbom(recipe.name+"-"+r.version, parts)
	if err != nil {
		return err
	}
	subject, err := partial.Descriptor(index)
	if err != nil {
		return err
	}
	origin, err := r.provenance(ref.Context().Name(), subject.Digest, parts, text)
	if err != nil {
		return err
	}
	return errors.Join(refer(ref, *subject, "sbom.spdx.json", spdx, text), refer(ref, *subject, "provenance.json", inToto, origin))
}

// refer pushes a document as a referrer of an image (OCI distribution specification 1.1).
func refer(ref name.Reference, subject v1.Descriptor, file string, kind types.MediaType, text []byte) error {
	titled := mutate.Addendum{Layer: static.NewLayer(text, kind), Annotations: map[string]string{"org.opencontainers.image.title": file}}
	document, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), kind), titled)
	if err != nil {
		return err
	}
	document = mutate.Subject(document, subject).(v1.Image)
	digest, err := document.Digest()
	if err != nil {
		return err
	}
	return remote.Write(ref.Context().Digest(digest.String()), document, remote.WithAuthFromKeychain(authn.DefaultKeychain))
}

// image builds an image with one layer: the programs and their SPDX document.
func (r *release) image(recipe recipe, arch string) (v1.Image, error) {
	programs := r.pick(arch, recipe.programs...)
	if len(programs) != len(recipe.programs) {
		return nil, fmt.Errorf("%s: not all are built for %s", strings.Join(recipe.programs, ", "), arch)
	}
	text, err := r.sbom(recipe.name+"-"+r.version+"-"+arch, programs)
	if err != nil {
		return nil, err
	}
	files, err := r.tar(append(executables("", programs), file{name: "sbom.spdx.json", content: text, mode: 0o444}))
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.time}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: created,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: []string{"/" + recipe.name}, Labels: r.labels(recipe)},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "make image"}})
}

// labels returns the annotations of the OCI image specification (annotations.md).
func (r *release) labels(recipe recipe) map[string]string {
	const annotation = "org.opencontainers.image."
	labels := map[string]string{
		annotation + "created":     r.time.Format(time.RFC3339),
		annotation + "title":       recipe.name,
		annotation + "description": recipe.about,
		annotation + "version":     r.version,
		annotation + "revision":    r.revision,
		annotation + "licenses":    "Apache-2.0",
	}
	if r.source != "" {
		labels[annotation+"source"] = r.source
	}
	return labels
}

// writeImage packs an OCI layout into a tar for "ctr images import", "podman load" and "skopeo copy oci-archive:".
func (r *release) writeImage(index v1.ImageIndex, reference, name string) error {
	dir, err := os.MkdirTemp("", "pack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	outer, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	err = outer.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.tag,
		"io.containerd.image.name":          reference,
	}))
	if err != nil {
		return err
	}
	files, err := filesOf(dir)
	if err != nil {
		return err
	}
	text, err := r.tar(files)
	if err != nil {
		return err
	}
	return r.write(name, text)
}
