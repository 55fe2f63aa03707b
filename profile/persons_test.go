package profile

import (
	"slices"
	"testing"
)

// What variables name that choose code is protected in a workspace, wherever it stands in their
// values.
func TestWhatTheEnvironmentNamesIsProtected(t *testing.T) {
	p := Profile{Grants: []Grant{{Path: "/w", Access: ReadWrite}}}
	caller := Caller{Environ: []string{"NODE_OPTIONS=--no-warnings --require=/w/pre.js", "LESSOPEN=||/w/lo %s", "KUBECONFIG=/w/a:/w/b", "PYTHONPATH=/w/lib:lib",
		"CARGO_HOME=/w/c", "PIP_CONFIG_FILE=/w/pip", "RIPGREP_CONFIG_PATH=/w/rg", "PWD=/w/pwd", "TMPDIR=/w/tmp", "LANG=/w/lang", "PATH=/w/bin"}}
	p.personsEnvironment(caller)
	p.personsNamed(caller)
	for _, file := range []string{"/w/pre.js", "/w/lo", "/w/a", "/w/b", "/w/lib/sitecustomize.py", "/w/c/config.toml", "/w/pip", "/w/rg"} {
		if !slices.Contains(p.PersonsNamed, file) {
			t.Errorf("%s is not in %q", file, p.PersonsNamed)
		}
	}
	for _, file := range []string{"/w/pwd", "/w/tmp", "/w/lang", "/w/bin"} {
		if slices.Contains(p.PersonsNamed, file) {
			t.Errorf("%s is", file)
		}
	}
}

// A relative directory of PATH counts, as an empty one does, which is the directory where one is.
func TestRelativeDirectoriesOfPATHCount(t *testing.T) {
	for value, want := range map[string][]string{
		"/usr/bin:.:bin/": {"/usr/bin", ".", "bin"},
		":/bin":           {".", "/bin"},
		"/bin::/sbin":     {"/bin", ".", "/sbin"},
		"./node_modules/.bin:.venv/bin:/w/venv/bin": nil,
		"": nil,
	} {
		var p Profile
		p.personsEnvironment(Caller{Environ: []string{"PATH=" + value}})
		if !slices.Equal(p.PersonsPath, want) {
			t.Errorf("%q: %q", value, p.PersonsPath)
		}
	}
}

// What a person's shell starts with may go by any variable of the caller's that is one whole path.
func TestWholePathsOfTheEnvironmentAreKept(t *testing.T) {
	var p Profile
	p.personsNamed(Caller{Environ: []string{"DOTS=/home/x/dots", "ZDOTDIR=/w/z", "ROOT=/", "RELATIVE=a/b", "EMPTY=", "WORDS=/a b", "LIST=/a:/b", "LINE=/a;b", "LINES=/a\nb", "AND=/a&b",
		"PIPE=/a|b", "TAB=/a\tb", "PWD=/w/pwd", "noequals"}})
	if want := []string{"DOTS=/home/x/dots", "ZDOTDIR=/w/z"}; !slices.Equal(p.PersonsVariables, want) {
		t.Errorf("%q, want %q", p.PersonsVariables, want)
	}
	var many []string
	for range maxNamed + 1 {
		many = append(many, "X=/x")
	}
	p = Profile{}
	if p.personsNamed(Caller{Environ: many}); len(p.PersonsVariables) != maxNamed {
		t.Errorf("%d are kept", len(p.PersonsVariables))
	}
}
