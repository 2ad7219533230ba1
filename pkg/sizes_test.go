package pkg_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"strings"
	"testing"
)

// The limits for a type. A larger type probably has several purposes.
const mostMethods, mostFields = 40, 20

// tooLarge lists the exceptions, each with its reason.
var tooLarge = map[string]string{
	"methods of cmd/devinfoctl.tool":       "each command is a method; the functions that print for a command count too",
	"methods of pkg/host/sysfs.FS":         "each method reads one fact of sysfs",
	"fields of cmd/cni-dra-driver.options": "each flag sets a field",
	"fields of pkg/core/config.Config":     "a field for each key of the network configuration",
	"fields of pkg/core/journal.Entry":     "a field for each key of an attachment's record",
}

// large returns the sizes that exceed a limit, by "methods of TYPE" or "fields of TYPE". Methods promoted from embedded
// types of the package count as methods of the type. So do functions of the package whose first parameter is the type
// or a pointer to it.
func large(path string, fset *token.FileSet, files []*ast.File) map[string]int {
	// There is no importer, so types of other packages are invalid and promote no methods.
	conf := types.Config{IgnoreFuncBodies: true, Error: func(error) {}}
	pkg, _ := conf.Check(path, fset, files, nil)
	sizes := map[string]int{}
	for _, name := range pkg.Scope().Names() {
		switch object := pkg.Scope().Lookup(name).(type) {
		case *types.TypeName:
			typ := object.Type()
			if s, ok := typ.Underlying().(*types.Struct); ok {
				sizes["fields of "+path+"."+name] = s.NumFields()
			}
			if !types.IsInterface(typ) { // a pointer to an interface has no methods
				typ = types.NewPointer(typ)
			}
			sizes["methods of "+path+"."+name] += types.NewMethodSet(typ).Len()
		case *types.Func:
			if params := object.Signature().Params(); params.Len() > 0 {
				first := params.At(0).Type()
				if pointer, ok := first.(*types.Pointer); ok {
					first = pointer.Elem()
				}
				if named, ok := first.(*types.Named); ok && named.Obj().Pkg() == pkg {
					sizes["methods of "+path+"."+named.Obj().Name()]++
				}
			}
		}
	}
	maps.DeleteFunc(sizes, func(what string, size int) bool {
		return size <= mostFields || size <= mostMethods && strings.HasPrefix(what, "methods")
	})
	return sizes
}

func TestTypesHaveFewMethodsAndFields(t *testing.T) {
	fset, packages := token.NewFileSet(), map[string][]*ast.File{}
	for _, path := range sources(t, ".go") {
		if !isTest(path) {
			packages[folder(path)] = append(packages[folder(path)], parsed(t, fset, path))
		}
	}
	unused := maps.Clone(tooLarge)
	for path, files := range packages {
		for what, size := range large(path, fset, files) {
			if delete(unused, what); tooLarge[what] == "" {
				t.Errorf("%d %s, of at most %d methods and %d fields: move a part of it to a new type", size, what, mostMethods, mostFields)
			}
		}
	}
	for what := range unused {
		t.Errorf("%s are within the limit: remove the exception from pkg/sizes_test.go", what)
	}
}
