package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"devinfo-cni.io/pkg/ctl/validate"
)

// What SARIF 2.1.0 needs (OASIS, sections 3.13 ff.).
type (
	sarifLog struct {
		Schema  string      `json:"$schema"`
		Version string      `json:"version"`
		Runs    [1]sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver struct {
				Name  string      `json:"name"`
				Rules []sarifRule `json:"rules"`
			} `json:"driver"`
		} `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifRule struct {
		ID    string    `json:"id"`
		Short sarifText `json:"shortDescription"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string           `json:"ruleId"`
		Level     string           `json:"level"` // "error" or "warning"
		Message   sarifText        `json:"message"`
		Locations [1]sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region struct {
				StartLine   int `json:"startLine"`
				StartColumn int `json:"startColumn,omitempty"`
			} `json:"region"`
		} `json:"physicalLocation"`
		Logical [1]struct {
			Name string `json:"fullyQualifiedName"`
		} `json:"logicalLocations"`
	}
)

func level(f validate.Finding, strict bool) string {
	if f.Warning && !strict {
		return "warning"
	}
	return "error"
}

// sarifOf makes a result of each finding. The rules are the kinds: the message of a finding
// says what the format requires.
func sarifOf(all []validation, strict bool) sarifLog {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	tool := &run.Tool.Driver
	tool.Name, tool.Rules = "devinfoctl", []sarifRule{{"syntax", sarifText{"the text is JSON or YAML"}}}
	for _, k := range validate.Kinds {
		tool.Rules = append(tool.Rules, sarifRule{string(k), sarifText{"the text is valid as " + string(k)}})
	}
	for _, v := range all {
		for _, f := range v.Findings {
			r := sarifResult{RuleID: cmp.Or(string(v.Kind), "syntax"), Level: level(f, strict), Message: sarifText{f.String()}}
			at := &r.Locations[0]
			at.Logical[0].Name = strings.TrimSpace(v.Name + " " + f.Path)
			at.Physical.Artifact.URI = filepath.ToSlash(v.File)
			at.Physical.Region.StartLine, at.Physical.Region.StartColumn = v.line(f), f.Column
			run.Results = append(run.Results, r)
		}
	}
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: [1]sarifRun{run}}
}

// annotate writes workflow commands of GitHub Actions, in which "%", line ends and, in a
// property, ":" and "," must be escaped.
func annotate(w io.Writer, all []validation, strict bool) error {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	for _, v := range all {
		for _, f := range v.Findings {
			text := f.String()
			if v.Name != "" {
				text = v.Name + ": " + text
			}
			at := fmt.Sprintf("line=%d", v.line(f))
			if f.Column > 0 {
				at += fmt.Sprintf(",col=%d", f.Column)
			}
			if _, err := fmt.Fprintf(w, "::%s file=%s,%s::%s\n", level(f, strict), property.Replace(v.File), at, data.Replace(text)); err != nil {
				return err
			}
		}
	}
	return nil
}
