package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A first command is one of those that people and agents type before they know anything of a
// sandbox.
type firstCommand struct {
	program string // without which the line is not run
	line    string // for bash, in a git repository with a remote
	said    string // a part of what it prints, outside and inside
	// differs is for what the sandbox does not do: a part of what is printed inside, which tells
	// why.
	differs string
}

// firstCommands do the same in a sandbox without any option as outside, or say what it does not do.
var firstCommands = []firstCommand{
	// git
	{"git", "git status --short && echo clean", "clean", ""},
	{"git", "git log --oneline | wc -l", "1", ""},
	{"git", "echo x >>file && git diff --stat", "1 insertion", ""},
	{"git", "echo x >new && git add . && git commit -qm new && git log -1 --format=%an:%s", "A Person:new", ""},
	{"git", "cd sub && echo x >new && git add new && git commit -qm new && git log -1 --format=%s", "new", ""},
	{"git", "git switch -qc topic && git commit -q --allow-empty -m t && git switch -q main && git merge -q topic && git branch", "topic", ""},
	{"git", "git stash -q 2>&1; echo x >file && git stash -q && git stash pop -q && cat file", "x", ""},
	{"git", "git config user.email other@example.org && git config user.email", "other@example.org", ""},
	{"git", "git clone -q ~/origin copy && ls copy", "Makefile", ""},
	{"git", "git fetch -q && git pull -q && echo pulled", "pulled", ""},
	{"git", "git push -q origin main && echo pushed", "pushed", ""},
	{"git", "git remote set-url origin ~/origin && git commit -q --allow-empty -m more && git push -q origin main && echo pushed", "", "clai-sandbox grants add --access rw "},
	{"git", "git commit -q --allow-empty -m more && git push && echo pushed", "", "/origin is read-only in the sandbox; to let it be written: clai-sandbox grants add --access rw "},
	{"git", "git worktree add -q ../tree -b tree && cd ../tree && ls", "", "/tree && clai-sandbox grants add --access rw "},
	{"git", "git config --global alias.st status && echo set", "", "leave --global out"},
	{"git", "git bisect start -q HEAD HEAD && git bisect reset -q; git format-patch -q -o p --root && git tag v1 && git gc -q && git fsck 2>&1 && git describe --tags && ls p", "0001-first.patch", ""},
	{"git", "git -c protocol.file.allow=always submodule add -q ~/origin mod 2>&1 && git commit -qm mod && git submodule status", " mod (heads/main)", ""},
	{"git", "git init -q own && cd own && for i in 1 2 3; do git remote add r$i ~/origin || exit; done && git remote | wc -l", "3", ""},
	// what is built and tested
	{"go", "go mod tidy && go list ./... && gofmt -l .", "example.org/tiny/sub", ""}, // what builds: TestGoBuildsWithACacheThatItMayWrite
	{"gcc", "make && ./a.out && echo made", "made", ""},
	{"gcc", "gcc -g -o b a.c && ./b && echo built", "built", ""},
	{"node", "node -e 'console.log(6*7)'", "42", ""},
	{"node", "node --test 2>&1", "# fail 0", ""},
	{"npm", "npm test 2>&1", "tested", ""},
	{"python3", "python3 -c 'print(6*7)'", "42", ""},
	{"python3", "python3 -m unittest -q t.py 2>&1", "OK", ""},
	{"python3", "python3 -m venv --without-pip v && v/bin/python -c 'print(6*7)'", "42", ""},
	{"perl", "perl -e 'print 6*7'", "42", ""},
	// what serves
	{"python3", "python3 -c 'import http.server as h; s = h.HTTPServer((\"127.0.0.1\", 0), h.SimpleHTTPRequestHandler); print(s.server_port, flush=True); s.serve_forever()' >port 2>/dev/null & " +
		"until [ -s port ]; do :; done; curl -sS http://127.0.0.1:$(cat port)/data.json; kill $!", `"a": 1`, ""},
	{"curl", "curl -sS http://127.0.0.1:1/ 2>&1", "onnect", ""},
	// what queries, searches and edits
	{"sqlite3", "sqlite3 x.db 'create table t(a); insert into t values(42); select a from t'", "42", ""},
	{"jq", "jq .a data.json", "1", ""},
	{"grep", "grep -rn needle .", "file:2:needle", ""},
	{"rg", "rg -n needle", "2:needle", ""},
	{"find", "find . -name '*.go' | wc -l", "2", ""},
	{"sed", "sed -i s/needle/pin/ file && cat file", "pin", ""},
	{"awk", "awk 'NR==2' file", "needle", ""},
	{"diff", "diff -u file Makefile", "needle", ""},
	{"patch", "printf -- '--- file\\n+++ file\\n@@ -1,2 +1,2 @@\\n hay\\n-needle\\n+pin\\n' | patch -p0 && cat file", "pin", ""},
	{"vim", "vim -es +'%s/needle/pin/' +wq file; cat file", "pin", ""},
	{"less", "less file", "needle", ""},
	{"man", "man -w ls; echo asked", "asked", ""},
	{"tar", "tar czf t.tgz file && tar tzf t.tgz", "file", ""},
	{"zip", "zip -q t.zip file && unzip -l t.zip", "1 file", ""},
	{"openssl", "openssl dgst -sha256 file", "SHA", ""},
	{"ssh-keygen", "ssh-keygen -q -t ed25519 -N '' -f key && ls key.pub", "key.pub", ""},
	// what asks about the machine
	{"id", "id -un; whoami; hostname >/dev/null && pwd", "project", ""},
	{"date", "date -d @0 +%Y && locale", "LC_", ""},
	{"ps", "ps aux >/dev/null; ps -p $$ -o comm=; true", "bash", ""},
	{"top", "top -bn1 | head -n1", "load average", ""},
	{"kill", "sleep 100 & kill $! && wait $!; echo $?", "143", ""},
	{"df", "df -h . | wc -l; du -sh . >/dev/null; free -m >/dev/null; nproc >/dev/null; uname -s", "Linux", ""},
	{"ip", "ip -brief addr", "lo", ""},
	{"dpkg", "dpkg -l bash | tail -n1", "bash", ""},
	{"mktemp", "f=$(mktemp) && echo x >$f && cat $f", "x", ""},
	{"ls", "ls -A ~ && cd ~ && ls", "project", ""},
	{"tmux", "tmux new -d cat && tmux ls && tmux kill-server", "1 windows", ""},
	{"env", "env | grep -c ^HOME=", "1", ""},
	{"which", "which git make", "/git", ""},
	{"inotifywait", "inotifywait -qt 1 . ; echo watched", "watched", ""},
	{"python3", "mkfifo f && (echo in >f &) && cat f && python3 -c 'import socket as s; a = s.socket(s.AF_UNIX); a.bind(\"/tmp/own.sock\"); print(\"bound\")'; rm -f /tmp/own.sock", "bound", ""},
	{"gdb", "gcc -g a.c && gdb -batch -ex 'break main' -ex run -ex bt ./a.out 2>&1", "#0  main", ""},
	{"strace", "strace -o t -e trace=openat true && grep -c openat t >/dev/null && echo traced", "traced", ""},
	{"script", "script -qc 'echo recorded' /dev/null </dev/null", "recorded", ""},
	{"bash", "touch -- 'a b' $'new\\nline' ü && git add -A && git commit -qm names && git status --short | wc -l", "0", ""},
	// what no sandbox does
	{"node", "node -e 'require(\"fs\").mkdirSync(process.env.HOME + \"/a/b\", {recursive: true})'", "", "/a && clai-sandbox grants add --access rw "},
	{"go", "go env -w GOFLAGS=-mod=mod", "", "/.config/go && clai-sandbox grants add --access rw "},
	{"sqlite3", "sqlite3 ~/own.db 'create table t(a)'", "", "nothing makes all of it writable"},
	{"tar", "tar c file | tar x -C ~", "", "nothing makes all of it writable"},
	{"unshare", "unshare -Ur true", "", "clai-sandbox run --allow-nesting"},
	{"npm", "npm config set fund false", "", "/.npmrc && clai-sandbox run --grant "},
	{"touch", "touch ~/note && echo noted", "", "nothing makes all of it writable"},
	{"touch", "touch /sys/x; echo $?", "1", ""},
	{"ssh-keygen", "ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id", "", "/.ssh && clai-sandbox run --grant "},
	{"gpg", "gpg --list-keys 2>&1 && echo listed", "", "/.gnupg is a place for credentials"},
	{"docker", "docker ps", "", "a sandbox reaches no container engine"},
	{"systemctl", "systemctl restart x", "", "a sandbox reaches none of the machine's services"},
	{"apt", "apt-get install -y jq", "", "a sandbox only reads the system"},
	{"ssh", "ssh -o BatchMode=yes -p 1 127.0.0.1 2>&1", "Connection refused", ""},
	{"./bin/gh", "./bin/gh repo list", "", "GH_TOKEN=$(gh auth token) clai-sandbox run --env GH_TOKEN"},
	{"./bin/sudo", "./bin/sudo true", "", "no command in a sandbox gets another user's rights"},
	{"./bin/crontab", "./bin/crontab -l", "", "nothing that a sandbox starts outlives it"},
	{"./bin/git-push", "./bin/git-push", "", "clai-sandbox run --ssh-agent git@github.com=KEY …"},
}

// What a set-up need not install says what the real one said in a sandbox.
var standIns = map[string]string{
	"gh":       "To get started with GitHub CLI, please run:  gh auth login\nAlternatively, populate the GH_TOKEN environment variable with a GitHub API authentication token.",
	"sudo":     `sudo: The "no new privileges" flag is set, which prevents sudo from running as root.`,
	"crontab":  "/var/spool/cron: No such file or directory",
	"git-push": "git@github.com: Permission denied (publickey).\nfatal: Could not read from remote repository.",
}

// newFirstProject is a home as it is on the first day, and a project in it.
func newFirstProject(t *testing.T) string {
	t.Helper()
	p := newProject(t)
	for name, text := range map[string]string{
		".gitconfig":  "[user]\nname = A Person\nemail = person@example.org\n[init]\ndefaultBranch = main\n",
		"project/a.c": "int main(void) { return 0; }\n", "project/Makefile": "a.out: a.c\n\tgcc a.c\n", "project/file": "hay\nneedle\n", "project/data.json": `{"a": 1}`,
		"project/package.json": `{"name": "own", "version": "1.0.0", "scripts": {"test": "echo tested"}}`,
		"project/t.py":         "import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\n",
		"project/go.mod":       "module example.org/tiny\n\ngo 1.21\n", "project/sub/main.go": "package main\n\nfunc main() { println(\"from go\") }\n",
		"project/sub/main_test.go": "package main\n\nimport \"testing\"\n\nfunc TestNothing(t *testing.T) {}\n",
	} {
		p.write(name, text)
	}
	for name, said := range standIns {
		p.write("project/bin/"+name, "#!/bin/sh\ncat >&2 <<'END'\n"+said+"\nEND\nexit 1\n")
	}
	p.sh("chmod +x bin/*; git init -q --bare ~/origin; git init -q; git remote add origin ../origin; git add .; git commit -qm first; git push -qu origin main")
	return p.home
}

// Each is tried outside and inside, in a home of its own that is as on the first day, without any
// option.
func TestTheFirstCommandsOfPeopleAndAgents(t *testing.T) {
	needProgram(t, "git")
	first := newFirstProject(t)
	environment := []string{"LANG=C.UTF-8", "PATH=" + os.Getenv("PATH"), "SHELL=/bin/bash", "TERM=xterm", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local", "USER=" + os.Getenv("USER")}
	run := func(t *testing.T, command string, words ...string) (string, int) {
		home := filepath.Join(newHome(t), "project-home")
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", first, home).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		cmd := exec.CommandContext(t.Context(), command, words...)
		cmd.Dir, cmd.Env = home+"/project", append(environment, "HOME="+home, "PWD="+home+"/project")
		out, err := cmd.CombinedOutput()
		if failed := new(exec.ExitError); err != nil && !errors.As(err, &failed) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, c := range slices.Concat(firstCommands, firstJobs) {
		t.Run(c.line, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(c.program); err != nil && !strings.HasPrefix(c.program, "./") {
				t.Skip("not here: ", err)
			}
			outside, status := run(t, "bash", "-c", c.line)
			if !strings.Contains(outside, c.said) {
				t.Fatalf("outside, with status %d:\n%s", status, outside)
			}
			inside, got := run(t, "clai-sandbox", "run", "--", "bash", "-c", c.line)
			switch {
			case c.differs == "" && (got != status || !strings.Contains(inside, c.said) || strings.Contains("\n"+inside, "\nclai-sandbox: ")):
				t.Errorf("inside, with status %d:\n%s\noutside, with status %d:\n%s", got, inside, status, outside)
			case c.differs != "" && (got == 0 || !strings.Contains("\n"+inside, "\nclai-sandbox: ") || !strings.Contains(inside, c.differs)):
				t.Errorf("inside, with status %d:\n%s\nno line says %q", got, inside, c.differs)
			}
		})
	}
}
