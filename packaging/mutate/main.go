// Mutate tries whether the tests notice when a security decision is wrong. Each condition of the
// files that are its arguments is taken out once, one way and the other (a condition that never
// holds, one that always does, one side of && and of || alone), and tests run on that. What they
// let pass is printed: a decision that no test holds.
//
// An argument is FILE[,DIRECTORY...]: the tests are those of the file's package, and of the
// packages in these directories.
//
// Nothing is written to the checkout: go builds each with an overlay.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A mutant is one change of a file.
type mutant struct {
	at     token.Position
	was    string
	now    string
	source []byte // the whole file with it
}

// How the tests took it.
const (
	killed   = "killed"
	survived = "survived"
	notBuilt = "does not compile"
)

func main() {
	timeout := flag.Duration("timeout", time.Minute, "how long the tests of one package may take; longer counts as noticed")
	flag.Parse()
	counts, failed := map[string]int{}, false
	for _, argument := range flag.Args() {
		path, others, _ := strings.Cut(argument, ",")
		packages := append([]string{filepath.Dir(path)}, strings.FieldsFunc(others, func(r rune) bool { return r == ',' })...)
		mutants, err := mutantsOf(path)
		if err == nil {
			var original []byte
			if original, err = os.ReadFile(path); err == nil && try(path, packages, mutant{source: original}, *timeout) != survived {
				err = fmt.Errorf("%s: the tests fail without it", argument)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "mutate:", err)
			os.Exit(1)
		}
		for _, m := range mutants {
			came := try(path, packages, m, *timeout)
			counts[came]++
			if came == survived {
				failed = true
				fmt.Printf("%s:%d: %s -> %s\n", path, m.at.Line, m.was, m.now)
			}
		}
	}
	fmt.Printf("%d noticed, %d survived, %d do not compile\n", counts[killed], counts[survived], counts[notBuilt])
	if failed {
		os.Exit(1)
	}
}

// mutantsOf are all mutants of a file.
func mutantsOf(path string) ([]mutant, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, 0)
	if err != nil {
		return nil, err
	}
	var mutants []mutant
	text := func(n ast.Node) string {
		return string(source[set.Position(n.Pos()).Offset:set.Position(n.End()).Offset])
	}
	change := func(n ast.Node, now string) {
		begin, end := set.Position(n.Pos()), set.Position(n.End())
		changed := string(source[:begin.Offset]) + now + string(source[end.Offset:])
		mutants = append(mutants, mutant{at: begin, was: oneLine(text(n)), now: oneLine(now), source: []byte(changed)})
	}
	condition := func(c ast.Expr) {
		if c != nil {
			change(c, "false && ("+text(c)+")")
			change(c, "true || ("+text(c)+")")
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			condition(n.Cond)
		case *ast.SwitchStmt:
			if n.Tag == nil {
				for _, clause := range n.Body.List {
					for _, c := range clause.(*ast.CaseClause).List {
						condition(c)
					}
				}
			}
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				neutral := map[token.Token]string{token.LAND: "true", token.LOR: "false"}[n.Op]
				change(n, "("+neutral+" "+n.Op.String()+" "+text(n.Y)+")")
				change(n, "("+text(n.X)+" "+n.Op.String()+" "+neutral+")")
			}
		}
		return true
	})
	return mutants, nil
}

// oneLine is what is printed of source text.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// try runs the tests of packages on a mutant, until some notice it.
func try(path string, packages []string, m mutant, timeout time.Duration) string {
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(dir)
	absolute, _ := filepath.Abs(path)
	changed, overlay := filepath.Join(dir, filepath.Base(path)), filepath.Join(dir, "overlay.json")
	places, _ := json.Marshal(map[string]any{"Replace": map[string]string{absolute: changed}})
	os.WriteFile(changed, m.source, 0o600)
	os.WriteFile(overlay, places, 0o600)
	for _, pkg := range packages {
		program := filepath.Join(dir, "tests")
		if exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, "./"+pkg).Run() != nil {
			return notBuilt
		}
		if !pass(program, pkg, timeout) {
			return killed
		}
	}
	return survived
}

func pass(program, dir string, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	tests := exec.CommandContext(ctx, program, "-test.failfast", "-test.timeout", timeout.String())
	tests.Dir, tests.WaitDelay = dir, time.Second
	return tests.Run() == nil
}
