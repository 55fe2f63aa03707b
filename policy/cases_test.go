package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// The behaviour cases are what another implementation answers, as data. They are read from where
// EXEC_CASES_DIR points, so that other cases of the same kind can be tried. Looser than they say is
// a defect; stricter needs a reason that docs/policy-differences.md has; skipped is only what
// concerns other systems, or what this project does not have.

const casesDirectory = "../../shared/cases/exec" // beside the repository

type caseFile struct {
	Cases []execCase `json:"cases"`
}

type execCase struct {
	Name      string                     `json:"name"`
	Fn        string                     `json:"fn"`
	Rule      string                     `json:"rule"`
	Input     json.RawMessage            `json:"input"`
	Expect    json.RawMessage            `json:"expect"`
	FS        []caseNode                 `json:"fs"`
	ByVersion map[string]json.RawMessage `json:"byVersion"`
	Source    struct {
		Fn string `json:"fn"`
	} `json:"source"`
}

type caseNode struct {
	Path      string  `json:"path"`
	Dir       bool    `json:"dir"`
	Mode      string  `json:"mode"`
	Content   *string `json:"content"`
	SymlinkTo string  `json:"symlinkTo"`
}

type caseLayout struct {
	ExecutablesDir string     `json:"executablesDir"`
	Executables    []string   `json:"executables"`
	Files          []caseNode `json:"files"`
	Symlinks       []struct {
		Path   string `json:"path"`
		Target string `json:"target"`
	} `json:"symlinks"`
}

// An outcome is what became of one case. A reason belongs to stricter and skipped, a detail to
// looser and wrong.
type outcome struct{ kind, reason, detail string }

var equal = outcome{kind: "equal"}

func stricter(reason string) outcome { return outcome{kind: "stricter", reason: reason} }
func skipped(reason string) outcome  { return outcome{kind: "skipped", reason: reason} }
func looser(format string, a ...any) outcome {
	return outcome{kind: "looser", detail: fmt.Sprintf(format, a...)}
}
func wrong(format string, a ...any) outcome {
	return outcome{kind: "wrong", detail: fmt.Sprintf(format, a...)}
}

// judge compares two answers to "may it?".
func judge(got, want bool, reason string) outcome {
	switch {
	case got == want:
		return equal
	case got:
		return looser("allowed")
	}
	return stricter(reason)
}

// A trial is one case being tried.
type trial struct {
	*testing.T
	execCase
	roots  map[string]string // of the placeholders
	layout *caseLayout
}

// into decodes JSON, with the placeholders filled in.
func (t *trial) into(raw json.RawMessage, value any) {
	t.Helper()
	err := json.Unmarshal([]byte(t.fill(string(raw))), value)
	// A field of another type than the other cases have counts as one that is not there.
	if odd := (*json.UnmarshalTypeError)(nil); err != nil && !errors.As(err, &odd) {
		panic(err) // the case is wrong then
	}
}

// words are argv as senders write it: whatever is no text is turned into one as their language
// does.
type words []string

func (w *words) UnmarshalJSON(raw []byte) error {
	var list []any
	if json.Unmarshal(raw, &list) != nil {
		*w = nil
		return nil
	}
	*w = words{}
	for _, word := range list {
		*w = append(*w, wordOf(word))
	}
	return nil
}

func wordOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		return v
	case float64:
		text := strconv.FormatFloat(v, 'f', -1, 64)
		if a := math.Abs(v); a != 0 && (a >= 1e21 || a < 1e-6) {
			text = strings.Replace(strings.Replace(strconv.FormatFloat(v, 'e', -1, 64), "e+0", "e+", 1), "e-0", "e-", 1)
		}
		return text
	case []any:
		parts := make([]string, len(v))
		for i, part := range v {
			if part != nil {
				parts[i] = wordOf(part)
			}
		}
		return strings.Join(parts, ",")
	case map[string]any:
		return "[object Object]"
	}
	return fmt.Sprint(value)
}

func (t *trial) fill(text string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, "$ROOT")
		if i < 0 {
			return b.String() + text
		}
		j := i + len("$ROOT")
		for j < len(text) && text[j] >= '0' && text[j] <= '9' {
			j++
		}
		b.WriteString(text[:i] + t.root(text[i:j]))
		text = text[j:]
	}
}

func (t *trial) root(name string) string {
	if dir, ok := t.roots[name]; ok {
		return dir
	}
	dir, err := os.MkdirTemp("", "case")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.roots[name] = dir
	return dir
}

const caseProgram = "#!/bin/sh\nexit 0\n"

func (t *trial) build(nodes []caseNode) {
	t.Helper()
	for _, n := range nodes {
		path, err := t.fill(n.Path), error(nil)
		switch {
		case n.Dir:
			err = os.MkdirAll(path, 0o755)
		case n.SymlinkTo != "":
			err = os.Symlink(t.fill(n.SymlinkTo), path)
		default:
			content, mode := caseProgram, os.FileMode(0o755)
			if n.Content != nil {
				content = t.fill(*n.Content)
			}
			if n.Mode == "644" {
				mode = 0o644
			}
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = os.WriteFile(path, []byte(content), mode)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// hermetic builds the tree that some cases share, and is the machine that sees it.
func (t *trial) hermetic() *Machine {
	t.Helper()
	for _, name := range t.layout.Executables {
		t.build([]caseNode{{Path: t.layout.ExecutablesDir + "/" + name}})
	}
	t.build(t.layout.Files)
	for _, link := range t.layout.Symlinks {
		if err := os.Symlink(link.Target, t.fill(link.Path)); err != nil {
			t.Fatal(err)
		}
	}
	root := t.root("$ROOT")
	return &Machine{Files: Disk{}, Path: []string{root + "/bin"}, Home: root + "/home", Trusted: []string{root + "/bin"}, Shell: root + "/bin/sh"}
}

// caseTests say how the cases of a file are tried. A file that is not here is reported.
var caseTests = map[string]func(*trial) outcome{}

func TestCases(t *testing.T) {
	dir := os.Getenv("EXEC_CASES_DIR")
	if dir == "" {
		dir = casesDirectory
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	if len(names) == 0 {
		t.Skipf("no behaviour cases in %s; EXEC_CASES_DIR says where they are", dir)
	}
	differences, err := os.ReadFile("../docs/policy-differences.md")
	if err != nil {
		t.Fatal(err)
	}
	layout := readLayout(t, dir)
	sort.Strings(names)
	var lines []string
	total := map[string]int{}
	for _, name := range names {
		if filepath.Base(name) == "hermetic_layout.json" {
			continue
		}
		counts := runCaseFile(t, name, layout, string(differences))
		for kind, n := range counts {
			total[kind] += n
		}
		lines = append(lines, countLine(filepath.Base(name), counts))
	}
	// The lines are for programs too: they stand at the line's start, whatever the test's own
	// output does.
	fmt.Println(strings.Join(append(lines, countLine("TOTAL", total)), "\n"))
	if applies := total["equal"] + total["stricter"] + total["looser"] + total["wrong"]; total["equal"]*100 < applies*95 {
		t.Errorf("%d of %d are equal: less than 95 in a hundred", total["equal"], applies)
	}
}

func countLine(name string, counts map[string]int) string {
	line := name
	for _, kind := range [...]string{"equal", "stricter", "looser", "wrong", "skipped"} {
		line += fmt.Sprintf(" %s=%d", kind, counts[kind])
	}
	return line
}

func readLayout(t *testing.T, dir string) *caseLayout {
	text, err := os.ReadFile(filepath.Join(dir, "hermetic_layout.json"))
	if os.IsNotExist(err) {
		return nil
	}
	var layout caseLayout
	if err == nil {
		err = json.Unmarshal(text, &layout)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &layout
}

func runCaseFile(t *testing.T, name string, layout *caseLayout, differences string) map[string]int {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var file caseFile
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	counts := map[string]int{}
	base := strings.TrimSuffix(filepath.Base(name), ".json")
	for i, c := range file.Cases {
		t.Run(fmt.Sprintf("%s/%d", base, i), func(t *testing.T) {
			o := skipped("a file that the harness does not know")
			if try := caseTests[base]; try != nil {
				o = tried(try, &trial{t, c, map[string]string{}, layout})
			}
			counts[o.kind]++
			report(t, c, o, differences)
		})
	}
	return counts
}

// tried survives a case that is not like the others: it is wrong then, and the rest is tried all
// the same.
func tried(try func(*trial) outcome, t *trial) (o outcome) {
	defer func() {
		if problem := recover(); problem != nil {
			o = wrong("the harness cannot try it: %v", problem)
		}
	}()
	return try(t)
}

func report(t *testing.T, c execCase, o outcome, differences string) {
	switch o.kind {
	case "equal":
	case "stricter", "skipped":
		t.Logf("%s: %s: %s", c.Name, o.kind, o.reason)
		if !strings.Contains(differences, "`"+o.reason+"`") {
			t.Errorf("%s: %s: the reason %q is not in docs/policy-differences.md", c.Name, o.kind, o.reason)
		}
	default:
		t.Errorf("%s: %s: %s\ninput %s\nexpect %s", c.Name, o.kind, o.detail, c.Input, c.Expect)
	}
}

// sameWords compares lists of words.
func sameWords(a, b []string) bool { return slices.Equal(a, b) }
