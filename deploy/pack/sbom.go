package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// sbom returns an SPDX 2.3 document with the programs, and the modules in their build information.
func (r *release) sbom(name string, programs []program) ([]byte, error) {
	var list bill
	sum := sha256.New()
	for _, p := range programs {
		sum.Write(p.sum[:])
		id := list.program(p, r.version)
		list.relate("DOCUMENT", "DESCRIBES", id)
		// Go experiments after "-X:" are not part of the version.
		goVersion, _, _ := strings.Cut(strings.TrimPrefix(p.info.GoVersion, "go"), "-X:")
		list.relate(id, "DEPENDS_ON", list.module("stdlib", goVersion, ""))
		for _, dep := range p.info.Deps {
			// A module of this repository has no version, or a directory replaces it. The program, which has its own
			// package, represents it.
			if module := cmp.Or(dep.Replace, dep); module.Version != "(devel)" && module.Version != "" {
				list.relate(id, "DEPENDS_ON", list.module(module.Path, module.Version, module.Sum))
			}
		}
	}
	list.SPDXVersion, list.DataLicense, list.SPDXIdentifier, list.DocumentName = v2_3.Version, v2_3.DataLicense, "DOCUMENT", name
	list.DocumentNamespace = fmt.Sprintf("tag:devinfo-cni.io,2026:spdx/%s-%x", name, sum.Sum(nil)[:8])
	list.CreationInfo = &v2_3.CreationInfo{
		Created:  r.time.Format(time.RFC3339),
		Creators: []common.Creator{{CreatorType: "Tool", Creator: "devinfo-cni.io/deploy/pack"}},
	}
	var text bytes.Buffer
	err := json.Write(list.Document, &text, json.Indent(" "))
	return text.Bytes(), err
}

// bill is an SPDX document without duplicates.
type bill struct{ v2_3.Document }

func (b *bill) relate(from common.ElementID, what string, to common.ElementID) {
	b.Relationships = append(b.Relationships, &v2_3.Relationship{
		RefA: common.MakeDocElementID("", string(from)), Relationship: what, RefB: common.MakeDocElementID("", string(to)),
	})
}

func (b *bill) program(p program, version string) common.ElementID {
	pack := unknown(identifier("Program", p.arch, p.name), p.name, version)
	pack.PackageFileName = "linux_" + p.arch + "/" + p.name
	pack.PrimaryPackagePurpose = "APPLICATION"
	pack.PackageLicenseDeclared = "Apache-2.0"
	pack.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: fmt.Sprintf("%x", p.sum)}}
	b.Packages = append(b.Packages, pack)
	return pack.PackageSPDXIdentifier
}

// module adds a module if it is missing. sum is the sum in go.sum.
func (b *bill) module(path, version, sum string) common.ElementID {
	id := identifier("Module", path, version)
	if slices.ContainsFunc(b.Packages, func(p *v2_3.Package) bool { return p.PackageSPDXIdentifier == id }) {
		return id
	}
	pack := unknown(id, path, version)
	pack.PackageComment = sum
	pack.PrimaryPackagePurpose = "LIBRARY"
	pack.PackageExternalReferences = []*v2_3.PackageExternalReference{{
		Category: "PACKAGE-MANAGER", RefType: "purl", Locator: fmt.Sprintf("pkg:golang/%s@%s", path, version),
	}}
	b.Packages = append(b.Packages, pack)
	return id
}

// unknown returns a package with nothing but name and version.
func unknown(id common.ElementID, name, version string) *v2_3.Package {
	const no = "NOASSERTION"
	return &v2_3.Package{
		PackageSPDXIdentifier: id, PackageName: name, PackageVersion: version,
		PackageDownloadLocation: no, PackageLicenseConcluded: no, PackageLicenseDeclared: no, PackageCopyrightText: no,
		IsFilesAnalyzedTagPresent: true,
	}
}

// identifier returns an SPDX identifier, which may contain only letters, digits, dots and hyphens (SPDX 2.3, 7.2). A
// checksum distinguishes names that differ only in other characters.
func identifier(parts ...string) common.ElementID {
	plain := regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(strings.Join(parts, "-"), "-")
	return common.ElementID(fmt.Sprintf("%s-%.4x", plain, sha256.Sum256([]byte(strings.Join(parts, "\x00")))))
}
