package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"devinfo-cni.io/pkg/ctl/validate"
)

// What SARIF 2.1.0 needs (OASIS, sections 3.13 ff.).
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		Level     string          `json:"level"` // "error" or "warning"
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
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
		Logical []sarifLogical `json:"logicalLocations"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
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
	run.Tool.Driver = sarifDriver{Name: "devinfoctl", Rules: []sarifRule{{"syntax", sarifText{"the text is JSON or YAML"}}}}
	for _, k := range validate.Kinds {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{string(k), sarifText{"the text is valid as " + string(k)}})
	}
	for _, v := range all {
		for _, f := range v.Findings {
			r := sarifResult{RuleID: string(v.Kind), Level: level(f, strict), Message: sarifText{f.String()}}
			if r.RuleID == "" {
				r.RuleID = "syntax"
			}
			at := sarifLocation{Logical: []sarifLogical{{strings.TrimSpace(v.Name + " " + f.Path)}}}
			at.Physical.Artifact.URI = filepath.ToSlash(v.File)
			at.Physical.Region.StartLine, at.Physical.Region.StartColumn = v.line(f), f.Column
			r.Locations = []sarifLocation{at}
			run.Results = append(run.Results, r)
		}
	}
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
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
