package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// refusals are the types of errors that tell a person what to do, with the positions of what was wrong and of that, where a literal
// has no names.
var refusals = map[string][2]int{
	"sandbox.SetupError": {1, 2}, "sandbox.UnavailableError": {1, 2}, "sandbox.CommandError": {2, 3}, "grants.UnavailableError": {0, 1},
	"egress.RefusedError": {1, 2}, "profile.ConfigError": {4, 5}, "main.usage": {0, 1}, "hosted.Misuse": {0, 1},
}

// asWithoutASandbox is what anybody knows from elsewhere.
var asWithoutASandbox = []string{"command not found inside the sandbox", "an empty command", "is a directory", "no command given"}

// refusalsIn finds the refusals of a file: what each says, and what to do. Variables are "…".
func refusalsIn(file *ast.File, at *token.FileSet) (list [][3]string) {
	r := room(file.Name.Name)
	for _, declaration := range file.Decls {
		later := []string{} // what this function says to do where the literal does not
		ast.Inspect(declaration, func(n ast.Node) bool {
			if a, ok := n.(*ast.AssignStmt); ok {
				for i, left := range a.Lhs {
					if s, ok := left.(*ast.SelectorExpr); ok && strings.EqualFold(s.Sel.Name, "hint") && len(a.Rhs) == len(a.Lhs) {
						later = append(later, r.said(a.Rhs[i]))
					}
				}
			}
			return true
		})
		ast.Inspect(declaration, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			name := r.said(literal.Type)
			switch of := literal.Type.(type) {
			case *ast.Ident:
				name = file.Name.Name + "." + of.Name
			case *ast.SelectorExpr:
				name = of.X.(*ast.Ident).Name + "." + of.Sel.Name
			}
			places, ok := refusals[name]
			if !ok {
				return true
			}
			var why, hint string
			for i, element := range literal.Elts {
				switch pair, named := element.(*ast.KeyValueExpr); {
				case named && slices.Contains([]string{"why", "stderr"}, strings.ToLower(pair.Key.(*ast.Ident).Name)):
					why = r.said(pair.Value)
				case named && pair.Key.(*ast.Ident).Name == "Line":
					hint = "mend it there: the message names the line, the column and the key, and says what can stand there"
				case named && strings.EqualFold(pair.Key.(*ast.Ident).Name, "hint"):
					hint = r.said(pair.Value)
				case !named && i == places[0]:
					why = r.said(element)
				case !named && i == places[1]:
					hint = r.said(element)
				}
			}
			if name == "profile.ConfigError" && why == "…" && hint == "" {
				why, hint = "what is wrong with a configuration file as a whole", "the message says it"
			}
			if name == "sandbox.CommandError" && why == "…" {
				why, hint = "what the system says of a program that it does not execute", "as without a sandbox"
			}
			if hint == "" && slices.Contains(asWithoutASandbox, why) {
				hint = "as without a sandbox"
			}
			if hint == "" && len(later) > 0 {
				hint = strings.Join(later, ", or: ")
			}
			place := at.Position(literal.Pos())
			list = append(list, [3]string{fmt.Sprintf("%s:%d", place.Filename, place.Line), why, hint})
			return true
		})
	}
	return list
}

// A room is a package, by its name, in which an expression stands.
type room string

// constantsSaid are the texts that several refusals share: constants by room, and what a map has for one.
var constantsSaid = map[string]string{}

func keepConstants(file *ast.File) {
	r := room(file.Name.Name)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			for _, spec := range n.Specs {
				if c, ok := spec.(*ast.ValueSpec); ok && n.Tok == token.CONST && len(c.Values) == 1 && r.said(c.Values[0]) != "…" {
					constantsSaid[file.Name.Name+"."+c.Names[0].Name] = r.said(c.Values[0])
				}
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && strings.HasPrefix(key.Name, "Reason") {
				constantsSaid["["+key.Name+"]"] = r.said(n.Value)
			}
		}
		return true
	})
}

// said is what an expression comes to, with … for what is not written in it.
func (r room) said(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		return r.said(e.X) + r.said(e.Y)
	case *ast.Ident:
		return cmp.Or(constantsSaid[string(r)+"."+e.Name], "…")
	case *ast.IndexExpr:
		if key, ok := e.Index.(*ast.Ident); ok {
			return cmp.Or(constantsSaid["["+key.Name+"]"], "…")
		}
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Sprintf" {
			var b strings.Builder
			for i, part := range strings.Split(r.said(e.Args[0]), "%") {
				if i > 0 {
					b.WriteString("…")
					part = strings.TrimLeft(part, "#+0123456789.[]")
					part = part[min(1, len(part)):]
				}
				b.WriteString(part)
			}
			return b.String()
		}
	}
	return "…"
}

// Each refusal that a person may meet says what to do about it, and docs/refusals.md lists them.
func TestRefusalsAreUpToDate(t *testing.T) {
	var (
		files []*ast.File
		found [][3]string
	)
	at := token.NewFileSet()
	for _, top := range []string{"cmd", "grants", "integration", "profile", "sandbox"} {
		err := filepath.WalkDir("../../"+top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(at, strings.TrimPrefix(path, "../../"), text, 0)
			if err != nil {
				return err
			}
			files = append(files, file)
			keepConstants(file)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		found = append(found, refusalsIn(file, at)...)
	}
	if len(found) < 100 {
		t.Fatalf("only %d refusals found", len(found))
	}
	for _, reason := range constants(t, "../../sandbox", "Reason") {
		hint := ""
		for name, text := range constantsSaid {
			if text == reason && strings.HasPrefix(name, "sandbox.Reason") {
				hint = constantsSaid["["+strings.TrimPrefix(name, "sandbox.")+"]"]
			}
		}
		found = append(found, [3]string{"sandbox/classify.go", fmt.Sprintf("cannot sandbox on this host (%s): …", reason), hint})
	}
	rows := map[string]bool{}
	for _, r := range found { // place, what it says, what to do
		if r[2] == "" {
			t.Errorf("%s: %q does not say what to do", r[0], r[1])
		}
		cell := strings.NewReplacer("|", `\|`, "\n", " ", "<", `\<`)
		rows[fmt.Sprintf("| %s | %s |\n", cell.Replace(r[1]), cell.Replace(r[2]))] = true
	}
	var page bytes.Buffer
	page.WriteString("# What clai-sandbox refuses, and what to do\n\n" +
		"Made from the source by `make generate`. `…` stands for a path, a name, a number, or what the system says.\n\n| it says | what to do |\n|---|---|\n")
	page.WriteString(strings.Join(slices.Sorted(maps.Keys(rows)), ""))
	checkGenerated(t, "../../docs/refusals.md", page.Bytes())
}
