package sandbox

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/sandbox/mounts/nomount"
	"github.com/clairun/clai-sandbox/sandbox/process/processtest"
	"github.com/clairun/clai-sandbox/sandbox/sshagent/serve"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestMain makes the test binary, with CLAI_SANDBOX_TEST_HELPER, a program that a test needs to run
// in a process of its own.
func TestMain(m *testing.M) {
	InsideMain()
	if len(os.Args) == 2 && os.Args[1] == agentProgram {
		if err := serve.Program(); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	if err := nomount.Apply(); err != nil {
		panic(err)
	}
	if name := os.Getenv("CLAI_SANDBOX_TEST_HELPER"); name != "" {
		helpers[name]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// agentProgram makes the test binary the program that serves a sandbox's ssh-agent, which has no
// variables.
const agentProgram = "ssh-agent"

// helpers are programs inside the test binary, by name.
var helpers = map[string]func(){}

// helperCommand is the test binary as one of its helpers.
func helperCommand(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), "CLAI_SANDBOX_TEST_HELPER="+name)
	return cmd
}

// host is a home and a workspace of a test's own, with the profile that a new agent would have
// there.
type host struct {
	t       testing.TB
	profile profile.Profile
	tree    Tree
	// launcher is changed by tests that need another bwrap or a shorter grace.
	launcher Launcher
	other    string // see outside
}

func newHost(t testing.TB) *host {
	t.Helper()
	bwrap, err := FindBwrap("", "")
	if err != nil {
		t.Fatal(err)
	}
	base := newDirectory(t)
	home, work := filepath.Join(base, "home"), filepath.Join(base, "home", "work")
	h := &host{t: t, tree: Host{}, launcher: Launcher{Bwrap: bwrap}}
	h.profile = profile.Profile{
		Agent: "main", UID: os.Getuid(), Home: home, Workspace: work, WorkingDirectory: work,
		Network: profile.NetworkEnabled,
		OwnDirectories: []string{filepath.Join(home, ".config/clai-sandbox"), filepath.Join(home, ".local/state/clai-sandbox"),
			"/etc/clai-sandbox"},
		Environment: []profile.Variable{{Name: "HOME", Value: home}, {Name: "PATH", Value: "/usr/local/bin:/usr/bin:/bin"}},
	}
	h.profile.Grants = []profile.Grant{
		{Path: home, Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginDefault}},
		{Path: work, Access: profile.ReadWrite, Origin: profile.Origin{Kind: profile.OriginWorkspace}},
	}
	h.launcher.State = h.mkdir(filepath.Join(base, "state"))
	h.profile.Written = filepath.Join(h.launcher.State, profile.WrittenName)
	for _, dir := range append([]string{work}, h.profile.OwnDirectories[:2]...) {
		h.mkdir(dir)
	}
	return h
}

// layered finds what is shut in layers of such a name: where the test gets to it.
func (h *host) layered(layers, below string) (found []string) {
	h.t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(h.profile.Layers, layers))
	for _, dir := range dirs {
		if inside, err := shut.Open(dir); err == nil {
			h.t.Cleanup(inside.Close)
			list, _ := filepath.Glob(inside.Path() + "/" + below)
			found = append(found, list...)
		}
	}
	return found
}

// newDirectory is a directory that goes with the test.
func newDirectory(t testing.TB) string {
	t.Helper()
	return processtest.Directory(t)
}

func (h *host) mkdir(path string) string {
	h.t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		h.t.Fatal(err)
	}
	return path
}

func (h *host) write(path, text string) string {
	h.t.Helper()
	h.mkdir(filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
	return path
}

func (h *host) symlink(text, path string) {
	h.t.Helper()
	h.mkdir(filepath.Dir(path))
	if err := os.Symlink(text, path); err != nil {
		h.t.Fatal(err)
	}
}

// grant adds a grant as a flag would, after the workspace.
func (h *host) grant(path string, access profile.Access) {
	h.profile.Grants = append(h.profile.Grants,
		profile.Grant{Path: path, Access: access, Origin: profile.Origin{Kind: profile.OriginConfig, Source: "config.json:1"}})
}

func (h *host) build() Plan {
	h.t.Helper()
	plan, err := Build(h.profile, h.tree)
	if err != nil {
		h.t.Fatal(err)
	}
	return plan
}

// ran is what came out of a command.
type ran struct {
	Result
	Out, Err string
	Failure  error
}

// run runs a command in the profile's sandbox, as everybody does who builds a plan to run it.
func (h *host) run(command ...string) ran {
	h.t.Helper()
	return h.runPlan(h.lookOut(), command...)
}

// lookOut builds the plan of a sandbox that is run next.
func (h *host) lookOut() Plan {
	h.t.Helper()
	lookout := NewLookout()
	h.t.Cleanup(lookout.Close)
	plan, err := Build(h.profile, lookout)
	if err != nil {
		h.t.Fatal(err)
	}
	return plan
}

func (h *host) runPlan(plan Plan, command ...string) ran {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if os.Getenv(inSessions) != "" && plan.CanStay() == "" {
		return h.runInSession(ctx, plan, command...)
	}
	var out, errs bytes.Buffer
	result, err := h.launcher.Run(ctx, plan, command, Stdio{Out: &out, Err: &errs})
	if result.Outcome == Cancelled {
		h.t.Errorf("%q did not end", command)
	}
	return ran{result, out.String(), errs.String(), err}
}

// sh runs a shell script and expects it to succeed.
func (h *host) sh(script string) string {
	h.t.Helper()
	r := h.run("/bin/sh", "-c", script)
	if r.Failure != nil || r.ExitCode != 0 {
		h.t.Fatalf("%s\n%v, exit status %d\n%s%s", script, r.Failure, r.ExitCode, r.Out, r.Err)
	}
	return r.Out
}

// refused runs a shell script and expects it to fail inside.
func (h *host) refused(script string) {
	h.t.Helper()
	r := h.run("/bin/sh", "-c", script)
	if r.Failure != nil {
		h.t.Fatalf("%s: %v", script, r.Failure)
	}
	if r.ExitCode == 0 {
		h.t.Errorf("it worked, and must not: %s\n%s%s", script, r.Out, r.Err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can set this up")
	}
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }

// needMounts skips what does not hold where the kernel refuses package mounts (docs/security.md
// says so).
func needMounts(t *testing.T) {
	t.Helper()
	if os.Getenv(nomount.Variable) != "" {
		t.Skip("the mounts are bubblewrap's in this run, which cannot do that")
	}
}
