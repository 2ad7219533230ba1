package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// sbom is an SPDX 2.3 document of the programs, and of the modules that the Go linker says
// are in them.
func (r *release) sbom(name string, programs []program) ([]byte, error) {
	list := &bill{known: map[common.ElementID]bool{}}
	sum := sha256.New()
	for _, p := range programs {
		sum.Write(p.sum[:])
		id := list.program(p, r.version)
		list.relate("DOCUMENT", "DESCRIBES", id)
		goVersion, _, _ := strings.Cut(strings.TrimPrefix(p.info.GoVersion, "go"), "-X:") // experiments are none
		list.relate(id, "DEPENDS_ON", list.module("stdlib", goVersion, ""))
		for _, dep := range p.info.Deps {
			if module := replaced(dep); module.Version != "(devel)" { // ours: in the program's own version
				list.relate(id, "DEPENDS_ON", list.module(module.Path, module.Version, module.Sum))
			}
		}
	}
	document := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: fmt.Sprintf("tag:devinfo-cni.io,2026:spdx/%s-%x", name, sum.Sum(nil)[:8]),
		CreationInfo: &v2_3.CreationInfo{
			Created:  r.time.Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "devinfo-cni.io/deploy/pack"}},
		},
		Packages: list.packages, Relationships: list.relationships,
	}
	var text bytes.Buffer
	err := json.Write(document, &text, json.Indent(" "))
	return text.Bytes(), err
}

func replaced(m *debug.Module) *debug.Module {
	if m.Replace == nil {
		return m
	}
	if m.Replace.Version == "" { // by a directory of this repository
		return &debug.Module{Path: m.Path, Version: "(devel)"}
	}
	return m.Replace
}

// bill is the list of an SPDX document, without duplicates.
type bill struct {
	packages      []*v2_3.Package
	relationships []*v2_3.Relationship
	known         map[common.ElementID]bool
}

func (b *bill) relate(from common.ElementID, what string, to common.ElementID) {
	b.relationships = append(b.relationships, &v2_3.Relationship{
		RefA: common.MakeDocElementID("", string(from)), Relationship: what, RefB: common.MakeDocElementID("", string(to)),
	})
}

func (b *bill) program(p program, version string) common.ElementID {
	pack := unknown(identifier("Program", p.arch, p.name), p.name, version)
	pack.PackageFileName = "linux_" + p.arch + "/" + p.name
	pack.PrimaryPackagePurpose = "APPLICATION"
	pack.PackageLicenseDeclared = "Apache-2.0"
	pack.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: fmt.Sprintf("%x", p.sum)}}
	b.packages = append(b.packages, pack)
	return pack.PackageSPDXIdentifier
}

// module adds a module unless it is there. Its sum is that of go.sum.
func (b *bill) module(path, version, sum string) common.ElementID {
	id := identifier("Module", path, version)
	if b.known[id] {
		return id
	}
	b.known[id] = true
	pack := unknown(id, path, version)
	pack.PackageComment = sum
	pack.PrimaryPackagePurpose = "LIBRARY"
	pack.PackageExternalReferences = []*v2_3.PackageExternalReference{{
		Category: "PACKAGE-MANAGER", RefType: "purl", Locator: fmt.Sprintf("pkg:golang/%s@%s", path, version),
	}}
	b.packages = append(b.packages, pack)
	return id
}

// unknown is a package of which nothing else is known.
func unknown(id common.ElementID, name, version string) *v2_3.Package {
	const no = "NOASSERTION"
	return &v2_3.Package{
		PackageSPDXIdentifier: id, PackageName: name, PackageVersion: version,
		PackageDownloadLocation: no, PackageLicenseConcluded: no, PackageLicenseDeclared: no, PackageCopyrightText: no,
		IsFilesAnalyzedTagPresent: true,
	}
}

// identifier makes an SPDX identifier, which has letters, digits, dots and hyphens only
// (SPDX 2.3, 7.2); a checksum tells apart what differs in other characters only.
func identifier(parts ...string) common.ElementID {
	plain := regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(strings.Join(parts, "-"), "-")
	return common.ElementID(fmt.Sprintf("%s-%.4x", plain, sha256.Sum256([]byte(strings.Join(parts, "\x00")))))
}
