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
