package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A desk is a home with a project in it, and real programs to run there.
type desk struct {
	t             *testing.T
	home, project string
}

func newDesk(t *testing.T, programs ...string) desk {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	home, err := os.MkdirTemp("/var/tmp", "clai-sandbox-programs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		exec.Command("chmod", "-R", "u+w", home).Run()
		os.RemoveAll(home)
	})
	d := desk{t, home, filepath.Join(home, "project")}
	if err := os.Mkdir(d.project, 0o755); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d desk) write(name, text string) {
	d.t.Helper()
	path := filepath.Join(d.home, name)
	os.MkdirAll(filepath.Dir(path), 0o755)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// run runs a script in a sandbox with options, and returns what it printed.
func (d desk) run(script string, options ...string) string {
	d.t.Helper()
	cmd := exec.Command("clai-sandbox", append(append([]string{"run"}, options...), "--", "sh", "-euc", script)...)
	cmd.Dir, cmd.Env = d.project, append(os.Environ(), "HOME="+d.home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return string(out)
}

func TestGitClonesAndCommits(t *testing.T) {
	d := newDesk(t, "git")
	d.write(".gitconfig", "[user]\n\tname = Some Body\n\temail = some@body.example\n[init]\n\tdefaultBranch = main\n[safe]\n\tdirectory = *\n")
	d.write("origin/file", "text\n")
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-qm", "first"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = d.home+"/origin", append(os.Environ(), "HOME="+d.home)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s", out)
		}
	}
	out := d.run("git clone -q ~/origin clone; cd clone; echo more >> file; git commit -qam second; git log --format='%an %s'; git status --short")
	if out != "Some Body second\nSome Body first\n" {
		t.Error(out)
	}
}

func TestGoBuildsWithItsCacheInThePrivateTmp(t *testing.T) {
	d := newDesk(t, "go")
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip(err)
	}
	d.write("project/go.mod", "module example.org/hello\n\ngo 1.21\n")
	d.write("project/main.go", "package main\n\nfunc main() { println(\"built inside\") }\n")
	out := d.run(strings.TrimSpace(string(root))+"/bin/go build -o hello . && ./hello",
		"--env", "GOCACHE=/tmp/cache", "--env", "GOPATH=/tmp/go", "--env", "GOTOOLCHAIN=local", "--env", "GOFLAGS=-mod=mod", "--env", "GOPROXY=off",
		"--grant", strings.TrimSpace(string(root)))
	if out != "built inside\n" {
		t.Error(out)
	}
}

func TestInterpretersRun(t *testing.T) {
	for program, script := range map[string]string{
		"python3": `/usr/bin/python3 -c 'import json, sqlite3, tempfile, multiprocessing as m; tempfile.TemporaryFile(); m.Lock(); print(json.dumps("python"))'`,
		"node":    `node -e 'const fs = require("fs"); fs.writeFileSync("made", "x"); console.log(JSON.stringify("node"))'`,
		"perl":    `perl -e 'print "\"perl\"\n"'`,
	} {
		t.Run(program, func(t *testing.T) {
			d := newDesk(t, program)
			if out := d.run(script); out != `"`+strings.TrimSuffix(program, "3")+`"`+"\n" {
				t.Error(out)
			}
		})
	}
}

func TestSSHReadsTheSystemsSettings(t *testing.T) {
	d := newDesk(t, "ssh")
	out := d.run("ssh -G localhost; ssh -F /etc/ssh/ssh_config -G localhost")
	if strings.Contains(out, "Bad owner") || strings.Count(out, "hostname localhost") != 2 {
		t.Error(out)
	}
	host, err := exec.Command("ssh", "-F", "/etc/ssh/ssh_config", "-G", "localhost").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"hashknownhosts", "sendenv", "gssapiauthentication"} {
		for line := range strings.Lines(string(host)) {
			if strings.HasPrefix(line, setting+" ") && !strings.Contains(out, line) {
				t.Errorf("the host's %s is unknown inside", strings.TrimSpace(line))
			}
		}
	}
}

func TestMakeRunsItsJobs(t *testing.T) {
	d := newDesk(t, "make", "cc")
	d.write("project/Makefile", "all: a b c d\n\t@cat $^\na b c d: %: %.c\n\t@cc -o $@.bin $< && ./$@.bin > $@\n")
	for _, name := range []string{"a", "b", "c", "d"} {
		d.write("project/"+name+".c", "#include <stdio.h>\nint main(void) { puts(\""+name+"\"); return 0; }\n")
	}
	if out := d.run("make -s -j4"); out != "a\nb\nc\nd\n" {
		t.Error(out)
	}
}

func TestAPipelineCarriesAGibibyte(t *testing.T) {
	d := newDesk(t, "wc")
	cmd := exec.Command("sh", "-c", "clai-sandbox run -- head -c 1073741824 /dev/zero | clai-sandbox run -- sh -c 'cat | wc -c'")
	cmd.Dir, cmd.Env = d.project, append(os.Environ(), "HOME="+d.home)
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "1073741824" {
		t.Errorf("%v: %s", err, out)
	}
}
