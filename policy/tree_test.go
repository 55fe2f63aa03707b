package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A tree is a host for tests: programs in bin, a working directory, a home.
type tree struct {
	t   testing.TB
	dir string
	m   *Machine
}

func newTree(t testing.TB, programs ...string) *tree {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tr := &tree{t, dir, &Machine{Files: Disk{}, Path: []string{dir + "/bin"}, Home: dir + "/home", Trusted: []string{dir + "/bin"}, Shell: dir + "/bin/sh"}}
	for _, name := range append(programs, "sh", "env", "nice", "timeout") {
		tr.write("bin/"+name, "#!/bin/sh\nexit 0\n", 0o755)
	}
	for _, name := range []string{"work", "home"} {
		if err := os.MkdirAll(dir+"/"+name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

func (tr *tree) write(path, content string, mode os.FileMode) {
	tr.t.Helper()
	path = filepath.Join(tr.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *tree) link(target, path string) {
	tr.t.Helper()
	if err := os.Symlink(target, filepath.Join(tr.dir, path)); err != nil {
		tr.t.Fatal(err)
	}
}

// lists allows programs of bin by their names, and everything else by its pattern. DIR is the
// tree's directory.
func (tr *tree) lists(allow ...string) *Lists {
	return newLists(tr.m, tr.entries(allow...), nil, false)
}

func (tr *tree) entries(patterns ...string) []Entry {
	var entries []Entry
	for _, p := range patterns {
		if !strings.ContainsAny(p, "/*") {
			p = "DIR/bin/" + p
		}
		entries = append(entries, Entry{Pattern: strings.ReplaceAll(p, "DIR", tr.dir)})
	}
	return entries
}

func (tr *tree) cwd() string { return tr.dir + "/work" }

// policy asks where the allowlist misses, with an allowlist of programs.
func (tr *tree) policy(allow ...string) *Policy {
	gateway, allowlist := HostGateway, SecurityAllowlist
	return &Policy{Machine: tr.m, Layers: Layers{Global: Preference{Host: &gateway, Security: &allowlist}}, SafeBins: SafeBins{Names: DefaultSafeBins()},
		Approvals: &Approvals{Agents: map[string]*AgentApprovals{"main": {Security: say(SecurityAllowlist), Allowlist: tr.entries(allow...)}}}}
}

func (tr *tree) decide(p *Policy, line string) Decision {
	return p.Decide(Request{Command: strings.ReplaceAll(line, "DIR", tr.dir), Cwd: tr.cwd()})
}
