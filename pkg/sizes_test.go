package pkg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"devinfo-cni.io/test/difftest"
)

// The limits for a type. A larger type probably has several purposes.
const mostMethods, mostFields = 40, 20

// tooLarge lists the exceptions, each with its reason.
var tooLarge = map[string]string{
	"methods of cmd/devinfoctl.tool":       "each command is a method; the functions that print for a command count too",
	"fields of cmd/cni-dra-driver.options": "each flag sets a field",
	"fields of pkg/core/config.Config":     "a field for each key of the network configuration",
	"fields of pkg/core/journal.Entry":     "a field for each key of an attachment's record",
}

// A function of the package whose first parameter is the type, or a pointer to it, counts as a method.
func TestTypesHaveFewMethodsAndFields(t *testing.T) {
	sizes, declared := map[string]int{}, map[string]bool{}
	for _, path := range sources(t, ".go") {
		if isTest(path) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		difftest.Must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				declared[folder(path)+"."+n.Name.Name] = true
				if s, ok := n.Type.(*ast.StructType); ok {
					sizes["fields of "+folder(path)+"."+n.Name.Name] = s.Fields.NumFields()
				}
			case *ast.FuncDecl:
				first := n.Type.Params
				if n.Recv != nil {
					first = n.Recv
				}
				if first.NumFields() == 0 {
					break
				}
				is := first.List[0].Type
				if pointer, ok := is.(*ast.StarExpr); ok {
					is = pointer.X
				}
				if name, ok := is.(*ast.Ident); ok {
					sizes["methods of "+folder(path)+"."+name.Name]++
				}
			}
			return true
		})
	}
	for what, size := range sizes {
		kind, of, _ := strings.Cut(what, " of ")
		large := size > map[string]int{"methods": mostMethods, "fields": mostFields}[kind] && declared[of]
		if reason := tooLarge[what]; large && reason == "" {
			t.Errorf("%d %s, of at most %d methods and %d fields: move a part of it to a new type", size, what, mostMethods, mostFields)
		} else if !large && reason != "" {
			t.Errorf("%s are within the limit: remove the exception from pkg/sizes_test.go", what)
		}
	}
}
