package files

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// globTree are the files that the patterns are held against.
var globTree = []string{"a.go", "b.go", "c.txt", ".hidden", "d/a.go", "d/e/a.go", "d/e/f/b.txt", "d/.h/a.go", "x[1].go", "sp ace.go", "é.go", "d/e/ab.go"}

// TestGlobIsThatOfBash holds patterns against a shell that has them, with globstar and dotglob.
func TestGlobIsThatOfBash(t *testing.T) {
	tools := here(t)
	for _, name := range globTree {
		put(t, tools.at(name), "x")
	}
	for _, pattern := range []string{"*", "*.go", "**/*.go", "**", "d/**", "d/*", "d/**/a.go", "?.go", "[ab].go", "[!a].go", "[^a].go", "[a-c].*", "{a,b}.go", "{a,d/a}.go", "**/{a,b}.*",
		`x\[1\].go`, "x[[]1].go", "sp*", "é.go", "**/e/*", "d/*/a.go", "*/*/*", "**/*", "none", "d/e/a?.go", "**/a*", "./a.go", "./*.go", "[]x]*.go", "{a}.go,"} {
		shell := exec.Command("bash", "-O", "globstar", "-O", "dotglob", "-O", "nullglob", "-c", `for f in `+strings.ReplaceAll(pattern, " ", `\ `)+`; do [ -e "$f" ] && printf '%s\n' "$f"; done`)
		shell.Dir = tools.cwd
		shell.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
		out, _ := shell.Output()
		var want, got []string
		for line := range strings.Lines(string(out)) {
			want = append(want, strings.TrimPrefix(strings.TrimRight(line, "\n/"), "./"))
		}
		result, err := tools.glob(Glob{Pattern: pattern})
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		for _, file := range result.Files {
			got = append(got, strings.TrimPrefix(file.Path, tools.cwd+"/"))
		}
		slices.Sort(want)
		want = slices.Compact(want)
		slices.Sort(got)
		if pattern == "d/**" { // bash lists the directory itself, too
			want = slices.DeleteFunc(want, func(name string) bool { return name == "d" })
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, and bash has %q", pattern, got, want)
		}
	}
}

func TestGlobIsBoundedAndFollowsNoLinks(t *testing.T) {
	tools := here(t)
	for _, name := range []string{"a", "b", "c", ".git/config", "d/x"} {
		put(t, tools.at(name), "x")
	}
	os.Symlink(".", tools.at("loop"))
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"a", "c", "d/x"} {
		os.Chtimes(tools.at(name), old, old)
		old = old.Add(-time.Hour)
	}
	result, err := tools.glob(Glob{Pattern: "**", MaxResults: 2})
	if err != nil || len(result.Files) != 2 || !result.Truncated || result.Total != 7 {
		t.Errorf("%+v, %v", result, err)
	}
	result, err = tools.glob(Glob{Pattern: "{a,b,c}", SortBy: "modified"})
	if err != nil || len(result.Files) != 3 || result.Truncated || result.Files[0].Path != tools.at("b") || result.Files[2].Path != tools.at("c") {
		t.Errorf("%+v, %v", result, err)
	}
	if result, err = tools.glob(Glob{Pattern: "loop/*"}); err != nil || len(result.Files) == 0 {
		t.Errorf("a link that is named: %+v, %v", result, err)
	}
	if result, err = tools.glob(Glob{Pattern: ".git/*"}); err != nil || len(result.Files) != 1 {
		t.Errorf(".git, which is named: %+v, %v", result, err)
	}
	if result, err = tools.glob(Glob{Pattern: "*", SortBy: "size"}); codeOf(err) != Invalid {
		t.Errorf("%+v, %v", result, err)
	}
	many := strings.Repeat("{a,b}", 800) // 2^800 words, if one tried them
	if result, err = tools.glob(Glob{Pattern: many}); err != nil || len(result.Files) != 0 {
		t.Errorf("%+v, %v", result, err)
	}
	tools.until = time.Now().Add(-time.Second)
	for i := range 100 {
		put(t, tools.at("many/"+strings.Repeat("x", i+1)), "")
	}
	if result, err = tools.glob(Glob{Pattern: "**"}); err != nil || !result.Truncated {
		t.Errorf("without time: %+v, %v", result, err)
	}
}

// FuzzGlob compiles whatever comes; what compiles is linear, and never leaves its directory.
func FuzzGlob(f *testing.F) {
	for _, pattern := range []string{"**/*.go", "[!a-z]", "{a,{b,c}}", `\*`, "[", "a**b", "[a-]", `[\]]`, "[[:alpha:]]"} {
		f.Add(pattern, "a/b.go")
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if fits, err := compileGlob(pattern); err == nil {
			fits.MatchString(path)
		}
		if !strings.ContainsAny(pattern, `*?[]{}\,`) && pattern != "" && !strings.Contains(pattern, "/") {
			if fits, err := compileGlob(pattern); err == nil && !fits.MatchString(pattern) && strings.ToValidUTF8(pattern, "") == pattern {
				t.Fatalf("%q is not itself", pattern)
			}
		}
	})
}
