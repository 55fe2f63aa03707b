package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// conversation is the session with a key, which may not write the workspace.
func (p *place) conversation(r profile.Request) *Session {
	p.t.Helper()
	if r.WorkspaceAccess == "" {
		r.WorkspaceAccess = "none"
	}
	s, err := Open(context.Background(), Options{Caller: p.caller, Config: p.config, Request: r})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(s.Close)
	return s
}

func (p *place) configure(text string) {
	p.t.Helper()
	d := p.caller.Directories()
	err := os.WriteFile(filepath.Join(d.Config, "config.json"), []byte(text), 0o600)
	if err == nil {
		p.config, err = profile.Load(profile.Directories{Config: d.Config})
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func TestSessionsShareAWorkspaceAsTheirScopeSays(t *testing.T) {
	p := newPlace(t)
	p.configure(`{"agents": {"a": {}, "b": {}}}`)
	for _, c := range []struct {
		scope  string
		shares []string // keys that see what agent:a:one leaves
		others []string
	}{
		{"agent", []string{"agent:a:one", "agent:a:two"}, []string{"agent:b:one", "agent:main:one"}},
		{"session", []string{"agent:a:one"}, []string{"agent:a:two", "agent:b:one", "agent:a:main"}},
		{"shared", []string{"agent:a:two", "agent:b:one"}, nil},
	} {
		if out, err := p.inside(p.conversation(profile.Request{Session: "agent:a:one", Scope: c.scope}), "pwd; touch left-"+c.scope); err != nil || out != "/workspace\n" {
			t.Fatalf("%s: %s, %v", c.scope, out, err)
		}
		for _, key := range append(slices.Clone(c.shares), c.others...) {
			// Not by the state directory either, which holds all of them.
			out, err := p.inside(p.conversation(profile.Request{Session: key, Scope: c.scope}), "ls -A . ~/.local/state/clai-sandbox; find / -xdev -name 'left-*' 2>/dev/null")
			if err != nil || strings.Contains(out, "left-"+c.scope) != slices.Contains(c.shares, key) || strings.Count(out, "sandboxes") > 0 {
				t.Errorf("%s, %s: %s, %v", c.scope, key, out, err)
			}
		}
	}
}

func TestASandboxWorkspaceBeginsWithTheAgentsFiles(t *testing.T) {
	p := newPlace(t)
	secret := p.write("secret", "s3cret")
	for name, text := range map[string]string{"SOUL.md": "soul", "skills/a.md": "skill", "AGENTS.md": "agents", "other.md": "not mine", "USER.md": "hidden"} {
		os.MkdirAll(filepath.Dir(filepath.Join(p.work, name)), 0o755)
		if err := os.WriteFile(filepath.Join(p.work, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// What a command could have left there to have something else copied, or to keep us waiting.
	if err := errors.Join(os.Symlink(secret, filepath.Join(p.work, "IDENTITY.md")), unix.Mkfifo(filepath.Join(p.work, "TOOLS.md"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.work, "BOOTSTRAP.md"), make([]byte, maxBootstrap+1), 0o644); err != nil {
		t.Fatal(err)
	}
	request := profile.Request{Session: "agent:main:x", Hide: []string{filepath.Join(p.work, "USER.md")}}
	s := p.conversation(request)
	out, err := p.inside(s, "ls -A; cat SOUL.md skills/a.md; echo x > skills/a.md || echo ' read-only'; echo changed > SOUL.md; ln -s /etc/passwd HEARTBEAT.md; rm AGENTS.md")
	if err != nil || !strings.HasPrefix(out, "AGENTS.md\nSOUL.md\nskills\nsoulskill read-only\n") {
		t.Errorf("%q, %v", out, err)
	}
	var told []string
	for _, n := range s.Notices() {
		told = append(told, filepath.Base(n.Path))
	}
	if slices.Sort(told); strings.Join(told, " ") != "BOOTSTRAP.md IDENTITY.md TOOLS.md" {
		t.Errorf("%v", told)
	}
	s.Close()
	os.WriteFile(filepath.Join(p.work, "HEARTBEAT.md"), []byte("beats"), 0o644)
	os.WriteFile(filepath.Join(p.work, "skills/a.md"), []byte("newer"), 0o644)
	if out, err := p.inside(p.conversation(request), "cat SOUL.md AGENTS.md skills/a.md; readlink HEARTBEAT.md"); err != nil || out != "changed\nagentsnewer/etc/passwd\n" {
		t.Errorf("what is there stays, what is missing comes back: %q, %v", out, err)
	}
	p.configure(`{"defaults": {"skipBootstrap": true}}`)
	if out, err := p.inside(p.conversation(profile.Request{Session: "x", Scope: "session"}), "ls -A"); err != nil || out != "skills\n" {
		t.Errorf("without them: %q, %v", out, err)
	}
	if err := errors.Join(os.Rename(filepath.Join(p.work, "skills"), filepath.Join(p.other, "skills")), os.Symlink(filepath.Join(p.other, "skills"), filepath.Join(p.work, "skills"))); err != nil {
		t.Fatal(err)
	}
	if out, err := p.inside(p.conversation(profile.Request{Session: "y", Scope: "session"}), "ls -A"); err != nil || out != "" {
		t.Errorf("skills that are a link: %q, %v", out, err)
	}
}

func TestTheAgentsWorkspaceIsReadBesideTheSessionsOwn(t *testing.T) {
	p := newPlace(t)
	os.WriteFile(filepath.Join(p.work, "file"), []byte("the agent's"), 0o644)
	out, err := p.inside(p.conversation(profile.Request{Session: "x", WorkspaceAccess: "ro"}), "pwd; cat /agent/file; readlink /agent; echo x >> /agent/file || echo no; touch here")
	if want := "/workspace\nthe agent's" + p.work + "\nno\n"; err != nil || !strings.HasPrefix(out, want) {
		t.Errorf("%q, want %q (%v)", out, want, err)
	}
	for _, access := range []string{"rw", "cow"} {
		if out, err := p.inside(p.conversation(profile.Request{Session: "x", WorkspaceAccess: access}), "pwd; ls -d /agent /workspace"); err != nil || !strings.HasPrefix(out, p.work+"\n") || strings.Contains(out, "\n/") {
			t.Errorf("%s: %q, %v", access, out, err)
		}
	}
	s := p.conversation(profile.Request{Session: "x"})
	if out, err := p.inside(s, "ls -d /agent"); err != nil || strings.HasPrefix(out, "/agent") {
		t.Errorf("with none: %q, %v", out, err)
	}
}

func TestOnlyIdleOldAndUnusedWorkspacesAreRemoved(t *testing.T) {
	p := newPlace(t)
	p.configure(`{"defaults": {"execution": {"sandbox": {"prune": {"idleHours": 2, "maxAgeDays": 1}}}}, "agents": {"kept": {"execution": {"sandbox": {"prune": {"idleHours": 0, "maxAgeDays": 0}}}}, "used": {}, "idle": {}}}`)
	state := p.caller.Directories().State
	names := func() string {
		var list []string
		entries, _ := os.ReadDir(filepath.Join(state, sandboxesName))
		for _, e := range entries {
			if e.Name()[0] != '.' || e.IsDir() {
				name := strings.TrimPrefix(e.Name(), "agent-")
				list = append(list, name[:strings.LastIndexByte(name, '-')])
			}
		}
		return strings.Join(list, " ")
	}
	for _, agent := range []string{"idle", "kept"} {
		s := p.conversation(profile.Request{Session: "agent:" + agent + ":x"})
		if _, err := p.inside(s, "mkdir -p deep/er; touch deep/er/file; chmod 0 deep"); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	used := p.conversation(profile.Request{Session: "agent:used:x"})
	if _, err := p.inside(used, "touch file"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{time.Hour, "idle kept used"}, {3 * time.Hour, "kept used"}, {48 * time.Hour, "kept used"}} {
		prune(state, p.config, time.Now().Add(step.after), 0)
		if got := names(); got != step.want {
			t.Errorf("after %v: %s, want %s", step.after, got, step.want)
		}
	}
	if out, err := p.inside(used, "ls"); err != nil || out != "file\n" {
		t.Errorf("in use: %q, %v", out, err)
	}
	used.Close()
	prune(state, p.config, time.Now().Add(30*time.Hour), 0)
	if got := names(); got != "kept" {
		t.Errorf("at the end: %s", got)
	}
}

// Sessions come while others are removed: each has a workspace that stays, with its lock.
func TestASessionNeverHasAWorkspaceThatWasRemoved(t *testing.T) {
	p := newPlace(t)
	state := p.caller.Directories().State
	dir := filepath.Join(state, sandboxesName, "x")
	stop := make(chan bool)
	done := make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				pruneOne(dir, p.config, time.Now().Add(1000*time.Hour))
			}
		}
	}()
	for range 200 {
		lock, err := takeWorkspace(state, dir, aboutWorkspace{ScopeKey: "x", Made: time.Now().UnixMilli()})
		if err != nil {
			t.Error(err)
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, workspaceName, "file"), nil, 0o600); err != nil || !isAt(lock, filepath.Join(dir, lockName)) {
			t.Errorf("it was removed: %v", err)
		}
		unix.Close(lock)
	}
	close(stop)
	<-done
}
