package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unzip is like untar, for a tar.gz.
func unzip(t *testing.T, packed string) (list []*tar.Header, files map[string]string) {
	t.Helper()
	plain, err := gzip.NewReader(strings.NewReader(packed))
	must(t, err)
	return untar(t, plain)
}

func TestChartNamesReleaseAndItsImages(t *testing.T) {
	made := contents(t, pack(t, programs(t), "-prefix", "registry.example.com/net"))
	_, got := unzip(t, made["devinfo-1.2.3.tgz"])
	want := contents(t, "../charts/devinfo")
	if len(got) != len(want) {
		t.Errorf("%q", slices.Sorted(maps.Keys(got)))
	}
	for name, content := range want {
		switch name {
		case "Chart.yaml":
			content = strings.Replace(strings.Replace(content, "\nversion: 0.1.0\n", "\nversion: 1.2.3\n", 1), "\nappVersion: v0.1.0\n", "\nappVersion: v1.2.3\n", 1)
			content = strings.Replace(content, "\nhome: \"\"\n", "\nhome: \"https://example.com/devinfo\"\n", 1)
			content = strings.Replace(content, "\nsources: []\n", "\nsources: [\"https://example.com/devinfo\"]\n", 1)
			if !strings.Contains(content, "https://example.com/devinfo") || !strings.Contains(content, "\nmaintainers:\n  - name: ") {
				t.Errorf("Chart.yaml lacks home, sources or maintainers: %s", content)
			}
		case "values.yaml":
			content = regexp.MustCompile(`(?m)^  tag: "" #.*$`).ReplaceAllString(content, `  tag: "v1.2.3"`)
			content = regexp.MustCompile(`(?m)^  registry: "" #.*$`).ReplaceAllString(content, `  registry: "registry.example.com/net"`)
		}
		if got["devinfo/"+name] != content {
			t.Errorf("%s is\n%s\nwant\n%s", name, got["devinfo/"+name], content)
		}
	}
}

// Users cannot download from an invented address. Helm would report that, but with Krew they would find out late.
func TestWithoutDownloadURLNoAddressIsWritten(t *testing.T) {
	made := contents(t, pack(t, programs(t), "-downloads", ""))
	_, chart := unzip(t, made["devinfo-1.2.3.tgz"])
	if text := chart["devinfo/values.yaml"]; !strings.Contains(text, `  registry: "" #`) {
		t.Error(text)
	}
	if len(made) != 10 || strings.Contains(made["SHA256SUMS"], ".yaml") {
		t.Errorf("there are manifests: %q", slices.Sorted(maps.Keys(made)))
	}
}

func TestManifestsNameImagesOfRelease(t *testing.T) {
	made := contents(t, pack(t, programs(t), "-prefix", "registry.example.com/net", "-tag", "t1"))
	for name, want := range map[string][]string{
		"install.yaml":                {"kind: Namespace\n", "kind: ServiceAccount\n", "kind: DaemonSet\n", "image: \"registry.example.com/net/devinfo-agent:t1\"\n"},
		"install-cni-dra-driver.yaml": {"kind: Namespace\n", "kind: ClusterRole\n", "kind: DeviceClass\n", "kind: ValidatingAdmissionPolicy\n", "kind: DaemonSet\n", "image: \"registry.example.com/net/cni-dra-driver:t1\"\n"},
	} {
		for _, text := range want {
			if !strings.Contains(made[name], text) {
				t.Errorf("%s has no %q", name, text)
			}
		}
		if strings.Contains(made[name], "cluster.local/") {
			t.Errorf("%s: cluster.local\n%s", name, made[name])
		}
	}
}

func TestChartVersionIsSemantic(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-4-gabcdef0-dirty": "1.2.3-4-gabcdef0-dirty", "v1.2.3-rc.1": "1.2.3-rc.1", "0123456": "0.0.0-g0123456", "abc-dirty": "0.0.0-gabc-dirty",
	} {
		r := release{version: version}
		if got := r.chartVersion(); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}

func TestKrewManifestNamesProgramAndChecksum(t *testing.T) {
	made := contents(t, pack(t, programs(t)))
	manifest := made["kubectl-devinfo-v1.2.3.yaml"]
	if !strings.Contains(manifest, "\n  version: v1.2.3\n  homepage: https://example.com/devinfo\n  shortDescription: ") || strings.Contains(manifest, "{{") {
		t.Errorf("%s", manifest)
	}
	for _, platform := range []string{"darwin-arm64", "linux-amd64", "linux-arm64"} {
		system, arch, _ := strings.Cut(platform, "-")
		name := "kubectl-devinfo-v1.2.3-" + platform + ".tar.gz"
		want := fmt.Sprintf("    - selector:\n        matchLabels:\n          os: %s\n          arch: %s\n      uri: https://example.com/v1.2.3/%s\n      sha256: %x\n      bin: kubectl-devinfo\n",
			system, arch, name, sha256.Sum256([]byte(made[name])))
		if !strings.Contains(manifest, want) {
			t.Errorf("no\n%s\nin\n%s", want, manifest)
		}
		if _, files := unzip(t, made[name]); files["kubectl-devinfo"] == "" {
			t.Errorf("%s has no program at the top", name)
		}
	}
}
