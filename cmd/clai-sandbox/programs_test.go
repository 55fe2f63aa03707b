package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A project is a person's: a home of its own, and a directory in it where they type.
type project struct {
	t    *testing.T
	home string
	dir  string
}

func newProject(t *testing.T) project {
	t.Helper()
	p := project{t, newHome(t), ""}
	p.dir = filepath.Join(p.home, "project")
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

// write makes a file, below the home.
func (p project) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.home, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// command is what they type in the project.
func (p project) command(words ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), words[0], words[1:]...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "HOME="+p.home)
	cmd.WaitDelay = time.Second
	return cmd
}

// sh runs a shell script outside, which is where they type. It succeeds, and says all that it has
// to say.
func (p project) sh(script string) string {
	p.t.Helper()
	out, err := p.command("sh", "-euc", script).CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return string(out)
}

// fails runs a shell script that does not succeed.
func (p project) fails(script string) string {
	p.t.Helper()
	out, err := p.command("sh", "-euc", script).CombinedOutput()
	if err == nil {
		p.t.Errorf("it worked: %s\n%s", script, out)
	}
	return string(out)
}

func (p project) wants(got string, parts ...string) {
	p.t.Helper()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			p.t.Errorf("no %q in:\n%s", part, got)
		}
	}
}

func TestGitClonesAndCommits(t *testing.T) {
	needProgram(t, "git")
	p := newProject(t)
	p.write(".gitconfig", "[user]\n\tname = A Person\n\temail = person@example.org\n[init]\n\tdefaultBranch = trunk\n")
	p.sh(`git init -q ~/origin && cd ~/origin && echo one >file && git add file && git commit -q -m first`)
	p.sh(`clai-sandbox run -- sh -euc '
		git clone -q ~/origin clone
		cd clone
		echo two >>file
		git add file
		git commit -q -m "second, from inside"
		git checkout -q -b topic
		git gc -q
		git status --porcelain
	'`)
	p.wants(p.sh(`cd clone && git log --format='%an <%ae> %s' && git status --porcelain && git fsck --strict 2>&1`),
		"A Person <person@example.org> second, from inside\nA Person <person@example.org> first\n")
	// The repository that it came from is the home's, and read-only.
	p.fails(`cd clone && clai-sandbox run -- git push -q origin topic`)
	p.sh(`cd clone && clai-sandbox run --grant ~/origin:rw -- git push -q origin topic && git -C ~/origin rev-parse topic`)
}

// Go keeps a cache and modules in the home, which is read-only. The cache may be the sandbox's own,
// or granted.
func TestGoBuildsWithACacheThatItMayWrite(t *testing.T) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("this machine has no go: ", err)
	}
	root := strings.TrimSpace(string(goroot))
	p := newProject(t)
	p.write("project/go.mod", "module example.org/tiny\n\ngo 1.21\n")
	p.write("project/main.go", "package main\n\nfunc main() { println(\"built inside\") }\n")
	p.write("project/main_test.go", "package main\n\nimport \"testing\"\n\nfunc TestNothing(t *testing.T) {}\n")
	const offline = ` --grant "$GOROOT" --env GOTOOLCHAIN=local --env GOFLAGS=-mod=mod --env GOPROXY=off --env CGO_ENABLED=0 `
	script := func(options, command string) string {
		return "export GOROOT='" + root + "'; clai-sandbox run" + offline + options + " -- " + command
	}

	p.wants(p.fails(script("--caches off", "go build -o tiny .")), "read-only file system")
	p.sh(script("--grant ~/.cache/go-build:rw --env GOCACHE=$HOME/.cache/go-build", "true")) // it is not there yet: left out
	p.sh("mkdir -p ~/.cache/go-build")
	began := time.Now()
	p.sh(script("--grant ~/.cache/go-build:rw", "go build -o tiny ."))
	t.Logf("cold %v", time.Since(began))
	p.wants(p.sh("./tiny 2>&1"), "built inside")

	// What is in the cache serves the next run, and a cache in /tmp is gone with its sandbox.
	began = time.Now()
	p.sh(script("--grant ~/.cache/go-build:rw", "go build -o tiny2 ."))
	t.Logf("warm %v", time.Since(began))
	p.wants(p.sh(script("--grant ~/.cache/go-build:rw", "go vet -n . 2>&1")), "")
	p.wants(p.sh(script("--env GOCACHE=/tmp/go-build", "sh -c 'go env GOCACHE && go list . && ls -d /tmp/go-build'")), "example.org/tiny", "/tmp/go-build")
}

func TestPythonRunsAndMakesAVirtualEnvironment(t *testing.T) {
	needProgram(t, "python3")
	p := newProject(t)
	p.wants(p.sh(`clai-sandbox run -- python3 -c 'import json, ssl, sqlite3, tempfile, multiprocessing as m
with tempfile.NamedTemporaryFile() as f: f.write(b"x")
lock = m.Lock()
print(json.dumps({"lock": lock.acquire(False)}))'`), `{"lock": true}`)
	p.sh(`clai-sandbox run -- python3 -m venv --without-pip venv`)
	p.wants(p.sh(`clai-sandbox run -- venv/bin/python3 -c 'import sys; print(sys.prefix)'`), p.dir+"/venv")
	// Without a bus, a display or an agent there is nothing to talk to, and the home cannot be
	// written.
	p.wants(p.fails(`clai-sandbox run -- python3 -c 'open("../x", "w")'`), "Read-only file system")
}

func TestNodeRuns(t *testing.T) {
	needProgram(t, "node")
	p := newProject(t)
	p.write("project/package.json", `{"name": "tiny", "type": "module", "scripts": {"hello": "node main.js"}}`)
	p.write("project/main.js", `
import fs from "node:fs"; import { Worker } from "node:worker_threads"; import { execFileSync } from "node:child_process";
fs.writeFileSync("made", "by node");
await new Promise(done => new Worker("process.exit", { eval: true }).on("exit", done));
console.log(execFileSync("cat", ["made"]).toString(), process.env.HOME);
`)
	p.wants(p.sh(`clai-sandbox run -- node main.js`), "by node "+p.home)
}

func TestSSHReadsItsSettings(t *testing.T) {
	needProgram(t, "ssh")
	p := newProject(t)
	p.write(".ssh/config", "Host work\n\tHostName work.example.org\n\tPort 2222\n")
	if err := os.Chmod(filepath.Join(p.home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"ssh -G localhost", "ssh -F /etc/ssh/ssh_config -G x.example.org"} {
		out := p.sh("clai-sandbox run -- " + command)
		p.wants(out, "\nport 22\n", "\nuser ")
		if strings.Contains(out, "Bad owner") {
			t.Error(out)
		}
		// The system's settings are the same inside. (ssh looks the home up in /etc/passwd, not in
		// HOME.)
		if outside := p.sh(command); out != outside {
			t.Errorf("%s\noutside:\n%s\ninside:\n%s", command, outside, out)
		}
	}
	p.wants(p.sh("clai-sandbox run -- ssh -F ~/.ssh/config -G work"), "hostname work.example.org", "port 2222")
	p.wants(p.fails("clai-sandbox run --network disabled -- ssh -o BatchMode=yes -o ConnectTimeout=5 -p 9 127.0.0.1 true"), "Connection refused")
}

func TestAGibibyteComesThroughAPipeline(t *testing.T) {
	p := newProject(t)
	through := func(words ...string) time.Duration {
		cmd := p.command(words...)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		n, _ := io.Copy(struct{ io.Writer }{io.Discard}, out)
		if err := cmd.Wait(); err != nil || n != 1<<30 {
			t.Fatalf("%d bytes, %v", n, err)
		}
		return time.Since(began)
	}
	pipeline := []string{"sh", "-c", "head -c 1073741824 /dev/zero | cat"}
	outside := through(pipeline...)
	inside := through(append([]string{"clai-sandbox", "run", "--"}, pipeline...)...)
	t.Logf("outside %v, inside %v", outside, inside)
	if inside > 5*outside+5*time.Second {
		t.Errorf("outside %v, inside %v", outside, inside)
	}
}

func TestMakeRunsJobsAtOnce(t *testing.T) {
	needProgram(t, "make")
	p := newProject(t)
	// Each job waits until all have begun: they end only if they run at the same time.
	p.write("project/Makefile", `
jobs := 1 2 3 4 5 6 7 8
all: $(jobs:%=made-%)
	@echo all $(words $^)
made-%:
	@touch begun-$*
	@i=0; until [ $$(ls begun-* | wc -l) = 8 ] || [ $$i = 500 ]; do sleep 0.02; i=$$((i+1)); done; [ $$i != 500 ]
	@$(MAKE) --no-print-directory -f below.mk $@
`)
	p.write("project/below.mk", "made-%:\n\t@echo $* >$@\n")
	p.wants(p.sh("clai-sandbox run -- make -j8"), "all 8")
	for i := range 8 {
		if _, err := os.Stat(fmt.Sprintf("%s/made-%d", p.dir, i+1)); err != nil {
			t.Error(err)
		}
	}
}

// Root may start what lies where nobody else gets in; bwrap, which has no capabilities, must then
// be given it otherwise.
func TestAFilteredNetworkWithAProgramInAnotherUsersDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may start what lies in another user's closed directory")
	}
	p := newProject(t)
	self, err := exec.LookPath("clai-sandbox")
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	p.write("other/clai-sandbox", string(text))
	os.Chmod(p.home+"/other/clai-sandbox", 0o755)
	os.Chmod(p.home+"/other", 0o700)
	if err := os.Chown(p.home+"/other", 65534, 65534); err != nil {
		t.Fatal(err)
	}
	p.wants(p.sh(`~/other/clai-sandbox run --allow-domain example.org -- sh -c 'test -x /run/clai-sandbox/connect && ! test -w /run/clai-sandbox/connect && echo there'`), "there")
}

// In a sandbox, another one begins only where the first allows it, and for an ordinary user: root's
// settings in /proc are covered.
func TestASandboxInASandbox(t *testing.T) {
	home := newHome(t)
	project := filepath.Join(home, "project")
	program, err := exec.LookPath("clai-sandbox")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program)
	if err == nil {
		err = errors.Join(os.Mkdir(project, 0o755), os.WriteFile(project+"/clai-sandbox", text, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	for nesting, want := range map[string]string{"--allow-nesting=false": "start that one as an ordinary user with --allow-nesting", "--allow-nesting": "inner reads"} {
		if nesting == "--allow-nesting" && os.Getuid() == 0 {
			want = "start that one as an ordinary user with --allow-nesting"
		}
		cmd := exec.Command("clai-sandbox", "run", nesting, "--", "./clai-sandbox", "run", "--", "sh", "-c", "test -r clai-sandbox && echo inner reads; echo x >/proc/sys/kernel/core_pattern")
		cmd.Dir, cmd.Env = project, append(os.Environ(), "HOME="+home)
		out, _ := cmd.CombinedOutput()
		if !strings.Contains(string(out), want) {
			t.Errorf("%s: %s", nesting, out)
		}
	}
}
