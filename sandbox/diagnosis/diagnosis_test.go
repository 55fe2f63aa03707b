package diagnosis

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
	"github.com/clairun/clai-sandbox/sandbox"
)

// host is a home of which a sandbox shows the workspace, for writing, and shown, for reading. It
// does not show other.
type host struct {
	t                        testing.TB
	home, work, shown, other string
	profile                  profile.Profile
	launcher                 sandbox.Launcher
}

func newHost(t testing.TB) *host {
	t.Helper()
	bwrap, err := sandbox.FindBwrap("", "")
	if err != nil {
		t.Fatal(err)
	}
	// Not below /tmp, of which every sandbox has its own.
	home, err := os.MkdirTemp("/var/tmp", "clai-sandbox-test-")
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shuttest.RemoveAll(home) })
	h := &host{t: t, launcher: sandbox.Launcher{Bwrap: bwrap}, home: home, work: home + "/work", shown: home + "/shown", other: home + "/other"}
	for name, text := range map[string]string{
		"work/a.txt": "a\n", "work/sub/b.txt": "b\n", "work/.git/hooks/pre-commit.sample": "", "work/.git/config": "",
		"shown/s.txt": "s\n", "shown/dir/t.txt": "t\n", "shown/sp ace/s.txt": "s\n",
		"other/f.txt": "f\n", "other/sp ace.txt": "f\n", "other/dir/g.txt": "g\n", "other/mod.py": "x = 1\n", "other/mod.js": "", "other/inc/needed.h": "", "other/lib/libneeded.a": "",
		"other/go.mod": "module other\n", "other/package.json": "{}", "other/Makefile": "all:\n", "other/repo/.git/HEAD": "ref: refs/heads/main\n", "shown/bare/HEAD": "ref: refs/heads/main\n", "shown/bare/objects/info/none": "", "shown/bare/refs/heads/.none": "", "shown/bare/config": "[core]\nrepositoryformatversion = 0\nbare = true\n", "other/a.tar": "", "other/x.sh": "echo x\n",
		"other/bin/sometool": "#!/bin/sh\n", "other/key": "", "other/A.jar": "", "other/Gemfile": "", "other/data.json": "{}", "other/b.txt": "b\n",
		".ssh/id_ed25519": "secret", ".aws/credentials": "secret", ".netrc": "secret",
	} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	os.Chmod(filepath.Join(h.other, "bin/sometool"), 0o755)
	os.Chmod(filepath.Join(h.other, "x.sh"), 0o755)
	os.Symlink(filepath.Join(h.other, "f.txt"), filepath.Join(h.work, "link"))
	os.WriteFile(filepath.Join(h.work, "locked"), []byte("x"), 0o000)
	h.profile = profile.Profile{
		Agent: "main", UID: os.Getuid(), Home: home, Workspace: h.work, WorkingDirectory: h.work,
		Environment: []profile.Variable{{Name: "CGO_ENABLED", Value: "0"}, {Name: "GOCACHE", Value: goCache}, {Name: "GOFLAGS", Value: "-mod=mod"}, {Name: "GOPROXY", Value: "off"}, {Name: "HOME", Value: home},
			{Name: "LC_ALL", Value: "C.UTF-8"}, {Name: "PATH", Value: "/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin:" + h.other + "/bin"}},
		Grants: []profile.Grant{
			{Path: h.shown, Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginConfig}},
			{Path: goCache, Access: profile.ReadWrite, Origin: profile.Origin{Kind: profile.OriginConfig}},
			{Path: h.work, Access: profile.ReadWrite, Origin: profile.Origin{Kind: profile.OriginWorkspace}}},
	}
	for _, name := range profile.CredentialStores() {
		h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: filepath.Join(home, name)})
	}
	return h
}

func (h *host) build() sandbox.Plan {
	h.t.Helper()
	plan, err := sandbox.Build(h.profile, sandbox.Host{})
	if err != nil {
		h.t.Fatal(err)
	}
	return plan
}

// fill puts the host's directories into a script.
func (h *host) fill(text string) string {
	return strings.NewReplacer("{home}", h.home, "{work}", h.work, "{shown}", h.shown, "{other}", h.other).Replace(text)
}

// diagnose runs a command and says what it lacked, and what was written.
func (h *host) diagnose(plan sandbox.Plan, command ...string) ([]Missing, string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var out, complaints bytes.Buffer
	result, err := h.launcher.Run(ctx, plan, command, sandbox.Stdio{Out: &out, Err: &complaints})
	if err != nil {
		h.t.Fatal(err)
	}
	list := Of(Failure{Plan: &plan, Command: command, ExitCode: result.ExitCode, Stderr: complaints.Bytes(), Stdout: out.Bytes(), Notices: result.Notices})
	return list, fmt.Sprintf("exit status %d\n%s%s", result.ExitCode, out.String(), complaints.String())
}

func wordsOf(list []Missing) []string {
	var words []string
	for _, missing := range list {
		if missing.Kind == Domain {
			words = append(words, fmt.Sprintf("%s %s", missing.Domain, missing.Why))
		} else {
			words = append(words, fmt.Sprintf("%s %s %s", missing.Path, missing.Access, missing.Why))
		}
	}
	slices.Sort(words)
	return words
}

func installed(program string) bool {
	for _, dir := range []string{"/usr/local/go/bin", "/usr/local/bin", "/usr/bin", "/bin"} {
		if info, err := os.Stat(filepath.Join(dir, program)); err == nil && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

// What nobody can grant is not offered.
func TestOfWhatIsHiddenForGoodNoGrantIsOffered(t *testing.T) {
	h := newHost(t)
	h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: h.shown + "/dir", Enforced: true})
	plan := h.build()
	for line, want := range map[string]string{
		"cat {shown}/dir/t.txt":    "{shown}/dir is hidden for good, by the administrator's file or by .clai-sandbox.json of the project, and no grant shows it",
		"cat {home}/.ssh/id_dummy": "{home}/.ssh is a place for credentials, which no sandbox shows; only if you trust the command with them, for one run: clai-sandbox run --grant {home}/.ssh …",
	} {
		list := Of(Failure{Plan: &plan, Command: []string{"sh", "-c", h.fill(line)}, ExitCode: 1, Unread: true})
		if len(list) != 1 || list[0].Remedy("main") != h.fill(want) {
			t.Errorf("%s: %+v", line, list)
		}
	}
}

// What is written to a terminal is not read. The words of the command line say as much as can be
// said.
func TestWhatACommandLineNames(t *testing.T) {
	h := newHost(t)
	plan := h.build()
	for _, c := range []struct {
		command string
		want    []string
		remedy  string
	}{
		{"cat {other}/f.txt", []string{"{other}/f.txt read_only not_granted"}, "{other}/f.txt is not shown in the sandbox; to show it: clai-sandbox grants add --agent helper {other}/f.txt"},
		{"cd sub && sort <{other}/f.txt >out", []string{"{other}/f.txt read_only not_granted"}, ""},
		{"cat --from={other}/f.txt", []string{"{other}/f.txt read_only not_granted"}, ""},
		{"ssh -i ~/.ssh/id_ed25519 host", []string{"{home}/.ssh read_only hidden"}, "{home}/.ssh is a place for credentials, which no sandbox shows; only if you trust the command with them, for one run: clai-sandbox run --grant {home}/.ssh …"},
		{"cat ~/.ssh/not-there", []string{"{home}/.ssh read_only hidden"}, ""},
		{"touch {shown}/new", []string{"{shown} read_write read_only"}, "{shown} is read-only in the sandbox; to let it be written: clai-sandbox grants add --agent helper --access rw {shown}"},
		{"mkdir -p {shown}/dir/a", []string{"{shown}/dir read_write read_only"}, ""},
		{"echo x 2>{shown}/s.txt", []string{"{shown}/s.txt read_write read_only"}, ""},
		{"cp a.txt {shown}/dir/", []string{"{shown}/dir read_write read_only"}, ""},
		{"cp {shown}/s.txt sub/", nil, ""},
		{"cat {shown}/none", nil, ""},
		{"cat /no/such", nil, ""},
		{"git commit -m x", nil, ""},
		{"touch a.txt; frobnicate", nil, ""},
		{"cd .. && cat ../f.txt && pushd x", nil, ""},
	} {
		list := Of(Failure{Plan: &plan, Command: []string{"bash", "-c", h.fill(c.command)}, ExitCode: 2, Unread: true})
		if got := wordsOf(list); h.fill(strings.Join(c.want, "\n")) != strings.Join(got, "\n") {
			t.Errorf("%s: %q", c.command, got)
		} else if c.remedy != "" && list[0].Remedy("helper") != h.fill(c.remedy) {
			t.Errorf("%s: %s", c.command, list[0].Remedy("helper"))
		}
	}
}

func TestWhatIsLeftInTheBackgroundIsSeenInALine(t *testing.T) {
	for line, want := range map[string]bool{"server &": true, "cd a && nohup server >log 2>&1 & disown": true, "server & echo $!": true, "server &\n": true, "server & (sleep 1)": false,
		"server & wait": false, "a && b": false, "echo '&'": false, "a &&": false,
		"server >log 2>&1 & sleep 1; curl -sS localhost:80 && echo up": true, "server & p=$!; test; kill $p": false, "server & python3 client.py": false, "make &>log": false,
		"pg_ctl -D d -l log start && sleep 1; psql -c 'select 1 & 2'": true, "pg_ctl start; psql; pg_ctl stop": false, "tmux new -d; tmux kill-server": false, "redis-server --daemonize yes": true} {
		if got := LeavesInBackground([]string{"sh", "-c", line}); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
	for want, words := range map[bool][]string{false: {"echo", "&"}, true: {"pg_ctl", "-D", "d", "start"}} {
		if LeavesInBackground(words) != want {
			t.Errorf("%q", words)
		}
	}
}

// A command in a part of a repository lacks the repository, not the directory in it where git
// stopped.
func TestInAPartOfARepositoryTheRepositoryIsLacking(t *testing.T) {
	h := newHost(t)
	h.profile.Grants[2].Path, h.profile.Workspace, h.profile.WorkingDirectory = h.work+"/sub", h.work+"/sub", h.work+"/sub"
	h.profile.Grants = slices.Insert(h.profile.Grants, 0, profile.Grant{Path: h.home, Access: profile.ReadOnly})
	plan := h.build()
	said := "fatal: Unable to create '" + h.work + "/.git/index.lock': Read-only file system\n"
	for name, f := range map[string]Failure{"read": {Stderr: []byte(said)}, "at a terminal": {Unread: true}} {
		f.Plan, f.Command, f.ExitCode = &plan, []string{"git", "commit", "-m", "x"}, 128
		list := Of(f)
		want := "the repository " + h.work + " is read-only in the sandbox, whose workspace is a part of it; to work in all of it: clai-sandbox run --workspace " + h.work + " …"
		if len(list) != 1 || list[0].Path != h.work || list[0].Remedy("") != want {
			t.Errorf("%s: %+v", name, list)
		}
	}
}

func TestWhatACommandLacked(t *testing.T) {
	for name, group := range map[string][]failing{"cases": cases, "later": laterCases} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newHost(t).try(t, group)
		})
	}
}

// try runs each case, and counts.
func (h *host) try(t *testing.T, cases []failing) {
	plan := h.build()
	right, silent, missed, wrong, absent := 0, 0, 0, 0, 0
	for _, c := range cases {
		if !installed(c.program) {
			t.Logf("not here: %s", c.program)
			absent++
			continue
		}
		script, shell := h.fill(c.script), "/bin/sh"
		if c.program == "bash" {
			shell = "/bin/bash"
		}
		list, output := h.diagnose(plan, shell, "-c", script)
		got, want := wordsOf(list), []string{}
		for _, words := range c.want {
			want = append(want, h.fill(words))
		}
		slices.Sort(want)
		switch {
		case slices.Equal(got, want) && len(want) == 0:
			silent++
		case slices.Equal(got, want):
			right++
		case len(got) == 0:
			missed++
			t.Errorf("missed: %s\n%swant %q", script, output, want)
		default:
			wrong++
			t.Errorf("wrong: %s\n%sgot %q, want %q", script, output, got, want)
		}
	}
	t.Logf("%d cases: %d diagnosed, %d rightly silent, %d missed, %d wrong, %d not here", len(cases), right, silent, missed, wrong, absent)
}
