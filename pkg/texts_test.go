package pkg_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// phrases are constructions that make a reader start a sentence again, each with the better way. CONTRIBUTING.md
// describes how to write. Some occurrences are correct, so the test limits their number.
var phrases = []struct{ pattern, instead string }{
	{`\b[Ww]hat (is|was|are|were|has|had|have|may|can|it|they|the|an?|no|nobody|others?|we|did|does|do|pods?|plugins?|containers?)\b`, "name the thing"},
	{`\b[Ww]hoever\b|(^|[.;:,(] ?|\b(by|for|of|to|and|or|than|from|with) )[Ww]ho (has|have|is|was|may|can|wants?|owns?|holds?|reads?)\b`, "name the person, pod or program"},
	{`\b(is|are|as|than|has|have|of|for|by|to|and|or|from|in|with) (that|those) of\b|\bthose (that|which|who|whose)\b`, "repeat the noun"},
	{`(^|[.;:] )Of [a-z]+`, "begin with the subject"},
	{`\b(cannot |can )?(says?|said|tells?|told|asks|(is|are|was) asked)\b`, "functions return or report, files contain, programs log"},
	{`\b(is|are|was|were|be) (not |no longer |still |already )?there\b`, "exists, is missing"},
	{`\b(is|are|was|were|be) no [a-z]+`, "is not a"},
	{`\b(by|of|for|in|to|from|with|on|at|behind|below|after|before) which\b`, "two sentences"},
	{`\b(nobody|nothing|none|never|neither|cannot|without)\b[^.;:]{1,70}\b(nobody|nothing|none|never|nor|without|unless)\b`, "one negation a sentence"},
	{`\b(lately|anew|meanwhile|at hand|by now|all the same|likewise|at last|goes? by)\b`, "recently, again, while ..., now, still, uses"},
	{`\bbut for\b|\b(another|others?|else) (\w+ )?than\b`, "except"},
	{`\b(is|are|was|were|be|not) ([a-z]+ )?(\w+'s|ours|theirs|mine)( alone| too)?([.,;:]|$)`, "belongs to"},
	{"[a-z)\\]`\"]: (it|they|that|this|those|these|there|whoever|who|nobody|nothing|what|its|their|others?|else|so|then)\\b", "because, so"},
	{`\b(another|other)'s\b|\b(others|somebody|anybody|nobody|someone else)\b`, "name the pod, program or person"},
	{`\b(is|are|was) what\b`, "say it directly"},
}

// fine contains matches that are good English.
var fine = []string{"cannot tell", "can tell", "is no longer", "are no longer", "was no longer", "be no longer", "is no more", "are no more", "is no such"}

// most is the limit of hits in 10,000 words, by kind of text. In each package two hits of a kind are allowed in any
// case.
var most = map[string]int{"strings": 30, "comments": 50, "tests": 80, "docs": 40}

// A text is one comment, string or paragraph.
type text struct{ kind, folder, place, words string }

func (x text) hits() (list []string) {
	for _, p := range phrases {
		for _, hit := range regexp.MustCompile(p.pattern).FindAllString(x.words, -1) {
			if !slices.Contains(fine, strings.TrimSpace(hit)) {
				list = append(list, fmt.Sprintf("%s: %q: %s", x.place, hit, p.instead))
			}
		}
	}
	return list
}

// textsOf returns the comments and strings of a Go file. A string with fewer than three words is a name.
func textsOf(fset *token.FileSet, file *ast.File) (list []text) {
	path := fset.Position(file.Package).Filename
	isTest := strings.HasSuffix(path, "_test.go") || strings.HasPrefix(folder(path), "test")
	add := func(kind string, at token.Pos, words string) {
		list = append(list, text{kind, folder(path), strings.TrimPrefix(fset.Position(at).String(), "../"), words})
	}
	for _, group := range file.Comments {
		add(map[bool]string{true: "tests", false: "comments"}[isTest], group.Pos(), strings.ReplaceAll(strings.TrimSpace(group.Text()), "\n", " "))
	}
	if isTest {
		return list
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if words, err := strconv.Unquote(literal.Value); err == nil && strings.Count(words, " ") > 1 && !strings.HasPrefix(words, "{") {
				add("strings", literal.Pos(), strings.ReplaceAll(words, "\n", " "))
			}
		}
		return true
	})
	return list
}

// paragraphs returns the paragraphs of a Markdown file, without code.
func paragraphs(folder, path, markdown string) (list []text) {
	code := regexp.MustCompile("(?ms)^ *```.*?^ *```|`[^`\n]*`|\\]\\([^)]*\\)")
	blank := code.ReplaceAllStringFunc(markdown, func(s string) string { return "X" + strings.Repeat("\n", strings.Count(s, "\n")) })
	line := 1
	for part := range strings.SplitSeq(blank, "\n\n") {
		list = append(list, text{"docs", folder, fmt.Sprintf("%s:%d", path, line), strings.ReplaceAll(part, "\n", " ")})
		line += strings.Count(part, "\n") + 2
	}
	return list
}

func TestTextsArePlain(t *testing.T) {
	var all []text
	fset := token.NewFileSet()
	for _, path := range sources(t, ".md") {
		all = append(all, paragraphs("docs", strings.TrimPrefix(path, "../"), difftest.Read(t, path))...)
	}
	for _, path := range sources(t, ".go") {
		if file := parsed(t, fset, path); !ast.IsGenerated(file) {
			all = append(all, textsOf(fset, file)...)
		}
	}
	words, hits := map[string]int{}, map[string][]string{}
	for _, x := range all {
		key := x.kind + " of " + x.folder
		words[key] += len(strings.Fields(x.words))
		hits[key] = append(hits[key], x.hits()...)
	}
	for _, key := range slices.Sorted(maps.Keys(words)) {
		kind, _, _ := strings.Cut(key, " ")
		if limit := max(2, most[kind]*words[key]/10000); len(hits[key]) > limit {
			t.Errorf("%s: %d phrases to reword, of at most %d in %d words:\n  %s", key, len(hits[key]), limit, words[key], strings.Join(hits[key], "\n  "))
		}
	}
}

func TestPhrasesAreFound(t *testing.T) {
	source := "package p\n\n// F tells what is there.\n// It is no longer used.\nfunc F() string { return \"a file that nobody has\" }\n"
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, parser.ParseComments)
	difftest.Must(t, err)
	var got []string
	for _, x := range append(textsOf(fset, file), paragraphs("docs", "a.md", "A line.\n\n```\nwhat is\n```\n\nWhat is `said` anew.\n")...) {
		got = append(got, x.hits()...)
	}
	want := []string{
		`p.go:3:1: "what is": name the thing`, `p.go:3:1: "tells": functions return or report, files contain, programs log`, `p.go:3:1: "is there": exists, is missing`,
		`p.go:5:26: "nobody": name the pod, program or person`,
		`a.md:7: "What is": name the thing`, `a.md:7: "anew": recently, again, while ..., now, still, uses`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
