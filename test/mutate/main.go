// Mutate changes one expression or statement of a package at a time, and runs the package's tests. A mutant that no test
// notices shows a line whose behaviour is not tested, or does not matter.
//
//	go run ./test/mutate -seed 1 -n 20 ./pkg/core/journal ./devinfo
//	go run ./test/mutate -with ./cmd/devinfoctl ./pkg/ctl/node
//
// It changes no file: go test reads the mutant through -overlay. The last line is the score. A mutant that does not
// compile does not count; one that makes a test hang is noticed.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A mutant is one change of a file.
type mutant struct {
	dir, file string
	line      int
	from, to  int // offsets of the replaced text
	text      string
	what      string
}

var swapped = map[token.Token]string{
	token.LAND: "||", token.LOR: "&&", token.EQL: "!=", token.NEQ: "==", token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.ADD: "-", token.SUB: "+",
}

func main() {
	seed := flag.Uint64("seed", 1, "`number` that selects the mutants")
	n := flag.Int("n", 20, "`number` of mutants of each package")
	short := flag.Bool("short", true, "run the tests with -short")
	with := flag.String("with", "", "`package` whose tests run too")
	flag.Parse()
	if err := run(*seed, *n, *short, *with, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(seed uint64, n int, short bool, with string, packages []string) error {
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, killed := 0, 0
	for _, of := range packages {
		list, err := mutants(of)
		if err != nil {
			return err
		}
		random := rand.New(rand.NewPCG(seed, 0))
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		tried, died := 0, 0
		for _, m := range list {
			if tried == n {
				break
			}
			noticed, compiles, err := m.try(dir, short, with)
			if err != nil {
				return err
			}
			switch {
			case !compiles:
				continue
			case noticed:
				died++
			default:
				fmt.Printf("%s:%d: lives: %s\n", m.file, m.line, m.what)
			}
			tried++
		}
		fmt.Printf("%s: %d of %d mutants die\n", of, died, tried)
		all, killed = all+tried, killed+died
	}
	fmt.Printf("score: %d of %d mutants die, %d %%\n", killed, all, 100*killed/max(1, all))
	return nil
}

// mutants returns all mutants of a package, whose path is that of its directory.
func mutants(dir string) (list []mutant, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: no Go files", dir)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || err != nil {
			continue
		}
		fset := token.NewFileSet()
		var f *ast.File
		if f, err = parser.ParseFile(fset, name, nil, 0); err != nil {
			break
		}
		add := func(from, to token.Pos, text, what string) {
			at := fset.Position(from)
			list = append(list, mutant{dir, name, at.Line, at.Offset, fset.Position(to).Offset, text, what})
		}
		ast.Inspect(f, func(node ast.Node) bool {
			mutate(node, add)
			return true
		})
	}
	return list, err
}

// mutate adds the mutants of one node.
func mutate(node ast.Node, add func(from, to token.Pos, text, what string)) {
	switch x := node.(type) {
	case *ast.BinaryExpr:
		if op, ok := swapped[x.Op]; ok {
			add(x.OpPos, x.OpPos+token.Pos(len(x.Op.String())), op, x.Op.String()+" becomes "+op)
		}
	case *ast.IfStmt:
		add(x.Cond.Pos(), x.Cond.Pos(), "false && ", "the condition, up to its first ||, becomes false")
	case *ast.ReturnStmt:
		if len(x.Results) > 0 {
			if last, ok := x.Results[len(x.Results)-1].(*ast.Ident); ok && last.Name == "err" {
				add(last.Pos(), last.End(), "nil", "the error is dropped")
			}
		}
	case *ast.ExprStmt:
		add(x.Pos(), x.End(), "", "the call is left out")
	case *ast.BasicLit:
		if x.Kind == token.INT {
			add(x.End(), x.End(), "+1", "one more than "+x.Value)
		}
	}
}

// try runs the tests of the package with the mutant, and those of the package with.
func (m mutant) try(dir string, short bool, with string) (noticed, compiles bool, err error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return false, false, err
	}
	path, err := filepath.Abs(m.file)
	changed, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	list, encodeErr := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	err = errors.Join(err, encodeErr, os.WriteFile(changed, []byte(string(text[:m.from])+m.text+string(text[m.to:])), 0o600), os.WriteFile(overlay, list, 0o600))
	if err != nil {
		return false, false, err
	}
	build := exec.Command("go", "build", "-o", os.DevNull, "-overlay", overlay, ".")
	build.Dir = m.dir // may be in another module than the working directory
	if build.Run() != nil {
		return false, false, nil
	}
	for _, of := range []string{m.dir, with} {
		if of != "" && !noticed {
			cmd := exec.Command("go", "test", "-overlay", overlay, "-vet=off", "-timeout=2m", fmt.Sprint("-short=", short), ".")
			cmd.Dir = of
			noticed = cmd.Run() != nil
		}
	}
	return noticed, true, nil
}
