package repository

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var gitConfigs = []string{
	"",
	"[core]\n\thooksPath = .githooks\n",
	"[core]\nhookspath=.githooks # a comment\n[include]\n\tpath = ../.gitconfig\n",
	"[core] hooksPath = a b  ; comment\n",
	"[Core]\n HOOKSPATH = \" a # b \" # c\n",
	"[includeIf \"gitdir:~/work/\"]\n path = \"x\\\"y\"\n",
	"[core]\n\thooksPath = a\\\nb\n\tbare\n",
	"[remote \"a\\\"b\\\\c\"]\n\turl = x\n",
	"[core]\r\n\thooksPath = windows\r\n",
	"[core]\n\thooksPath = \"a\"b\"c\" d\n",
	"[core]\n\thooksPath =\n[user]\n\tname = A\\tB\\n\n",
	"; c\n# d\n[a.b]\n c = d\n[a \"B\"]c=e\n",
	"[core]\n\thooksPath = x",
	"[core]\n\thooksPath",
}

// git itself is the judge.
func TestGitConfigsReadAsGitReadsThem(t *testing.T) {
	for _, text := range gitConfigs {
		want, ok := readByGit(t, text)
		if !ok {
			t.Errorf("git cannot read %q", text)
		}
		if got := listed(text); got != want {
			t.Errorf("%q:\n%q, git has\n%q", text, got, want)
		}
		if document, err := parseDocument(text); err != nil || ofSettings(document.settings()) != want || document.text() != text {
			t.Errorf("%q: %v, %q, git has\n%q", text, err, document, want)
		}
	}
}

func listed(text string) string { return ofSettings(Parse(text)) }

func ofSettings(list []Setting) string {
	var b strings.Builder
	for _, s := range list {
		b.WriteString(s.Key + "\n" + s.Value + "\x00")
	}
	return b.String()
}

// readByGit lists a file as git config --list does. A variable without a value is "true" in both.
func readByGit(t *testing.T, text string) (string, bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "config", "--file", path, "--no-includes", "--null", "--list").Output()
	var b strings.Builder
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if entry == "" {
			continue
		}
		if !strings.Contains(entry, "\n") {
			entry += "\ntrue"
		}
		b.WriteString(entry + "\x00")
	}
	return b.String(), err == nil
}

// Whatever git reads, we read as it does; what git refuses must only end.
func FuzzGitConfig(f *testing.F) {
	for _, text := range gitConfigs {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := listed(text)
		if len(text) > 200 || strings.ContainsAny(text, "\x00\r\v\f") || strings.HasPrefix(text, "\xef\xbb\xbf") {
			return
		}
		// A tab in a value is a blank to some versions of git.
		want, ok := readByGit(t, text)
		document, err := parseDocument(text)
		for entry := range strings.SplitSeq(want, "\x00") {
			if key, _, _ := strings.Cut(entry, "\n"); err != nil && key != "" && !strings.Contains(key, ".") {
				return // of no section: such a file is not ours to change
			}
		}
		if ok && (err != nil || strings.ReplaceAll(ofSettings(document.settings()), "\t", " ") != strings.ReplaceAll(want, "\t", " ")) {
			t.Errorf("%q:\n%q %v, git has\n%q", text, document, err, want)
		}
		if !ok && err == nil {
			t.Errorf("%q: %q, and git refuses it", text, document.settings())
		}
		if err == nil && document.text() != text {
			t.Errorf("%q: %q", text, document.text())
		}
		if ok && strings.ReplaceAll(got, "\t", " ") != strings.ReplaceAll(want, "\t", " ") {
			t.Errorf("%q:\n%q, git has\n%q", text, got, want)
		}
	})
}
