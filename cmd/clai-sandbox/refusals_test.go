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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// refusals are the types of errors that tell a person what to do, with the positions of what was
// wrong and of that, where a literal has no names.
var refusals = map[string][2]int{
	"sandbox.SetupError": {1, 2}, "sandbox.UnavailableError": {1, 2}, "sandbox.CommandError": {2, 3}, "grants.UnavailableError": {0, 1},
	"egress.RefusedError": {1, 2}, "profile.ConfigError": {4, 5}, "main.usage": {0, 1}, "main.misuse": {0, 1}, "delegated.Misuse": {0, 1}, "store.Error": {0, 1},
	"store.OpenError": {1, 2},
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

// constantsSaid are the texts that several refusals share: constants by room, and what a map has
// for one.
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

// A reason is the sentence of an error that is of no type with a place for what to do, and mostly a
// part of one that is.
type reason struct{ file, words string }

// tellsItself finds the sentences that say what to do, or what can stand there.
var tellsItself = regexp.MustCompile(`; |--|clai-sandbox |at most|at least|must |write |for example|chmod |, as |such as |use |name a|choose|instead|install|try again|outside|: …$|^[…: ]*$|send |unset `)

// reasonsIn finds the reasons of a file. What wraps another error says nothing of its own, and what
// has words of another place has them there.
func reasonsIn(file *ast.File, name string) (list []reason) {
	r := room(file.Name.Name)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil || n.Name.Name != "Error" || len(n.Type.Params.List) > 0 {
				break
			}
			of := n.Recv.List[0].Type
			if pointer, ok := of.(*ast.StarExpr); ok {
				of = pointer.X
			}
			if id := of.(*ast.Ident).Name; refusals[file.Name.Name+"."+id] == [2]int{} {
				list = append(list, reason{name, "type " + id})
			}
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || len(n.Args) == 0 {
				break
			}
			of, _ := f.X.(*ast.Ident)
			if of == nil || of.Name+"."+f.Sel.Name != "errors.New" && of.Name+"."+f.Sel.Name != "fmt.Errorf" {
				break
			}
			words := r.said(n.Args[0])
			if f.Sel.Name == "Errorf" {
				if strings.Contains(words, "%w") {
					break
				}
				words = verbs.ReplaceAllString(words, "…")
			}
			if !tellsItself.MatchString(words) {
				list = append(list, reason{name, words})
			}
		}
		return true
	})
	return list
}

var verbs = regexp.MustCompile(`%[#+0-9.\[\]]*[a-z%]`)

// checkReasons holds the reasons against testdata/reasons.txt, where each has what to do, by its
// words or by its file. It returns the rows.
func checkReasons(t *testing.T, found []reason) map[string]bool {
	type row struct{ place, words, hint string }
	var rows []row
	used := map[row]bool{}
	text, err := os.ReadFile("testdata/reasons.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		part := strings.SplitN(line, " | ", 3)
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		if len(part) != 3 || part[2] == "" {
			t.Fatalf("testdata/reasons.txt: %q is not FILE | WORDS | WHAT TO DO", line)
		}
		rows = append(rows, row{part[0], part[1], part[2]})
	}
	told := map[string]bool{}
	cell := strings.NewReplacer("|", `\|`, "\n", " ", "<", `\<`)
	for _, f := range found {
		i := slices.IndexFunc(rows, func(r row) bool {
			return (r.place == f.file || strings.HasPrefix(f.file, r.place+"/")) && (r.words == f.words || r.words == "*" && !strings.HasPrefix(f.words, "type "))
		})
		if i < 0 {
			t.Errorf("%s: %q does not say what to do: make it of a type that does (%s), or write that into testdata/reasons.txt", f.file, f.words,
				strings.Join(slices.Sorted(maps.Keys(refusals)), ", "))
			continue
		}
		used[rows[i]] = true
		if !strings.HasPrefix(f.words, "type ") {
			told[fmt.Sprintf("| %s | %s |\n", cell.Replace(f.words), cell.Replace(rows[i].hint))] = true
		}
	}
	for _, r := range rows {
		if !used[r] {
			t.Errorf("testdata/reasons.txt: nothing says %q in %s any more", r.words, r.place)
		}
	}
	return told
}

// Each refusal that a person may meet says what to do about it, and docs/refusals.md lists them.
func TestRefusalsAreUpToDate(t *testing.T) {
	var (
		files []*ast.File
		found [][3]string
	)
	at := token.NewFileSet()
	var reasons []reason
	for _, top := range []string{"audit", "cmd", "grants", "integration", "outside", "policy", "profile", "sandbox", "wire"} {
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
			if name := at.Position(file.Package).Filename; !slices.Contains(strings.Split(name, "/"), "linkstest") {
				reasons = append(reasons, reasonsIn(file, name)...)
			}
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
	page.WriteString("\n## Reasons\n\nThese stand in one of those, behind a colon, or are the answer to a program. All others say themselves what to do.\n\n| it says | what to do |\n|---|---|\n")
	page.WriteString(strings.Join(slices.Sorted(maps.Keys(checkReasons(t, reasons))), ""))
	checkGenerated(t, "../../docs/refusals.md", page.Bytes())
}
