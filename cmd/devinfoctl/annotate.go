package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"devinfo-cni.io/pkg/ctl/validate"
)

func level(f validate.Finding, strict bool) string {
	if f.Warning && !strict {
		return "warning"
	}
	return "error"
}

// sarifOf is a log of SARIF 2.1.0 (OASIS, sections 3.13 ff.) with a result of each finding. The rules
// are the kinds: the message of a finding says what the format requires.
func sarifOf(all []validation, strict bool) any {
	type object map[string]any
	text := func(s string) object { return object{"text": s} }
	rules, results := []object{{"id": "syntax", "shortDescription": text("the text is JSON or YAML")}}, []object{}
	for _, k := range validate.Kinds {
		rules = append(rules, object{"id": k, "shortDescription": text("the text is valid as " + string(k))})
	}
	for _, v := range all {
		for _, f := range v.Findings {
			region := object{"startLine": v.line(f)}
			if f.Column > 0 {
				region["startColumn"] = f.Column
			}
			results = append(results, object{
				"ruleId": cmp.Or(string(v.Kind), "syntax"), "level": level(f, strict), "message": text(f.String()),
				"locations": []object{{
					"physicalLocation": object{"artifactLocation": object{"uri": filepath.ToSlash(v.File)}, "region": region},
					"logicalLocations": []object{{"fullyQualifiedName": strings.TrimSpace(v.Name + " " + f.Path)}},
				}},
			})
		}
	}
	run := object{"tool": object{"driver": object{"name": "devinfoctl", "rules": rules}}, "columnKind": "unicodeCodePoints", "results": results}
	return object{"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": []object{run}}
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
