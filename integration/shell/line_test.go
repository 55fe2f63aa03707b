package shell

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheLineAmongTheWordsOfAShellIsFound(t *testing.T) {
	for given, want := range map[string]string{
		"echo a; b":       "echo a; b",
		"-c|echo a":       "echo a",
		"-lc|x|name|1":    "x",
		"-l|-c|x":         "x",
		"-c|-l|x":         "x",
		"-c|-o|pipefail":  "pipefail", // not it, but a note is none either
		"+x|-c|x":         "x",
		"-c|echo a && b":  "echo a && b",
		"file|argument":   "",
		"file|-c|x":       "",
		"--|-c|x":         "",
		"-s":              "",
		"--login":         "",
		"--norc|-c|x":     "x",
		"-c":              "",
		"-c|-l":           "",
		"":                "",
		"--rcfile|-c|x|y": "x",
	} {
		words, got := strings.Split(given, "|"), ""
		if i := Line(words); i >= 0 {
			got = words[i]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", given, got, want)
		}
	}
	if i := Line(nil); i != -1 {
		t.Errorf("no words: %d", i)
	}
}

// Of what a line names, one file is written outside: that with which Claude Code keeps cd.
func TestOnlyTheNoteOfALinesEndIsTaken(t *testing.T) {
	const note = " && pwd -P >| "
	for line, file := range map[string]string{
		"eval 'cd x'\n && true" + note + "/tmp/claude-0a1b-cwd": "/tmp/claude-0a1b-cwd",
		"x" + note + "/own/claude-0a1b-cwd":                     "/own/claude-0a1b-cwd",
		"x" + note + "/tmp/claude-1-cwd; y":                     "",
		"x" + note + "/tmp/claude-1-cwd" + note + "/tmp/y":      "",
		"x" + note + "/tmp/.bashrc":                             "",
		"x" + note + "/tmp/sub/claude-0a1b-cwd":                 "",
		"x" + note + "/tmp/../home/claude-0a1b-cwd":             "",
		"x" + note + "/own/../tmp/claude-0a1b-cwd":              "",
		"x" + note + "/home/claude-0a1b-cwd":                    "",
		"x" + note + "tmp/claude-0a1b-cwd":                      "",
		"x" + note + "/tmp/claude-$(y)-cwd":                     "",
		"x" + note + "/tmp/claude--cwd":                         "",
		"x; pwd -P >| /tmp/claude-0a1b-cwd":                     "",
		"x":                                                     "",
	} {
		rest, got := TakeNote(line, []string{"/own", "", ".", "/tmp"})
		if got != file {
			t.Errorf("%q: %q, want %q", line, got, file)
		}
		if want := strings.TrimSuffix(line, note+file); file != "" && rest != want || file == "" && rest != line {
			t.Errorf("%q: of it stays %q", line, rest)
		}
	}
}

func TestOfALinesDirectoryOnlyOneThatIsThereIsBelieved(t *testing.T) {
	links := func(path string) (string, error) {
		switch path {
		case "/there", "/file":
			return path, nil
		case "/link":
			return "/there", nil
		}
		return "", errors.New("not there")
	}
	is := func(path string) bool { return path == "/there" || path == "/link" }
	for told, want := range map[string]bool{"/there\n": true, "/there": false, "/link\n": false, "/file\n": false, "/other\n": false, "/there\n/there\n": false,
		"/there/../there\n": false, "there\n": false, "": false, "\n": false, "/" + strings.Repeat("x", 5000) + "\n": false, "/a\x1b\n": false} {
		if dir, got := Directory([]byte(told), links, is); got != want || got && dir+"\n" != told {
			t.Errorf("%.40q: %v", told, got)
		}
	}
}

func TestANoteIsWrittenIntoNothingButTheAgentsOwnFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{os.WriteFile(at("old"), []byte("/a/much/longer/directory\n"), 0o600), os.WriteFile(at("other"), nil, 0o600), os.Link(at("other"), at("linked")),
		os.WriteFile(at("target"), nil, 0o600), os.Symlink("target", at("link")), os.Mkdir(at("dir"), 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, writes := range map[string]bool{"new": true, "old": true, "link": false, "linked": false, "dir": false, "none/new": false} {
		err := WriteNote(at(name), "/there")
		if (err == nil) != writes {
			t.Errorf("%s: %v", name, err)
		}
		if text, _ := os.ReadFile(at(name)); writes && string(text) != "/there\n" {
			t.Errorf("%s: %q", name, text)
		}
	}
	for _, name := range []string{"target", "other"} {
		if text, err := os.ReadFile(at(name)); err != nil || len(text) > 0 {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

func TestWhatGeminiNotesOfALinesJobsGoesNowhere(t *testing.T) {
	const rest = "\n(\n  trap 'jobs -p > \"$_bgpids_file\"' EXIT\nx\n)"
	for line, want := range map[string]string{
		"_bgpids_file=/tmp/gemini-shell-1aB/bgpids.tmp" + rest:                          "_bgpids_file=/dev/null" + rest,
		"shopt -u promptvars dotglob; _bgpids_file=/t/gemini-shell-1/bgpids.tmp" + rest: "shopt -u promptvars dotglob; _bgpids_file=/dev/null" + rest,
		"_bgpids_file=/tmp/other/bgpids.tmp" + rest:                                     "_bgpids_file=/tmp/other/bgpids.tmp" + rest,
		"x; _bgpids_file=/tmp/gemini-shell-1/bgpids.tmp" + rest:                         "x; _bgpids_file=/tmp/gemini-shell-1/bgpids.tmp" + rest,
		"x": "x",
	} {
		if got := WithoutJobs(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
