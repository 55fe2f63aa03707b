package session

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// sitting is a session whose home no grant shows.
func (p *place) sitting(agent string) *Session {
	p.t.Helper()
	s, err := Open(context.Background(), Options{Caller: p.caller, Config: p.config, Request: profile.Request{Agent: agent, Home: "private"}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(s.Close)
	return s
}

func (p *place) inside(s *Session, script string) (string, error) {
	p.t.Helper()
	prepared, err := s.Prepare(nil)
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	l := sandbox.Launcher{Bwrap: p.bwrap, State: p.caller.Directories().State}
	_, err = prepared.Run(context.Background(), l, []string{"/bin/sh", "-c", script}, sandbox.Stdio{Out: &out, Err: &errs})
	return out.String() + errs.String(), err
}

func TestSessionsOfOneAgentShareNoHomeWhileTheyRun(t *testing.T) {
	p := newPlace(t)
	first, second := p.sitting(""), p.sitting("")
	for _, step := range []struct {
		session      *Session
		script, want string
	}{
		{first, "echo 1 > ~/mine; ls ~", "mine\nwork\n"},
		{first, "cat ~/mine", "1\n"}, // all commands of a session have one
		{second, "ls ~; echo 2 > ~/other", "work\n"},
		{second, "ls ~", "other\nwork\n"},
		{first, "ls ~", "mine\nwork\n"},
	} {
		if got, err := p.inside(step.session, step.script); err != nil || got != step.want {
			t.Fatalf("%s: %q, want %q (%v)", step.script, got, step.want, err)
		}
	}
	if notices := second.Notices(); len(notices) != 1 || notices[0].Kind != NoticeHome {
		t.Errorf("%+v", notices)
	}
	first.Close()
	if got, err := p.inside(p.sitting(""), "cat ~/mine"); err != nil || got != "1\n" {
		t.Errorf("the next session: %q, %v", got, err)
	}
}

func TestAHomeThatCannotBeHadIsAnErrorWhereItWasAskedFor(t *testing.T) {
	p := newPlace(t)
	state := p.caller.Directories().State
	if err := os.WriteFile(filepath.Join(state, "homes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.inside(p.sitting(""), "true"); err == nil || !strings.Contains(err.Error(), "the agent's own home") {
		t.Errorf("%v", err)
	}
}

func TestAHomeIsMadeInNobodyElsesState(t *testing.T) {
	dir := t.TempDir()
	for name, make := range map[string]func(string) error{
		"a link":         func(at string) error { return os.Symlink(t.TempDir(), at) },
		"another user's": func(at string) error { os.Mkdir(at, 0o777); return os.Chown(at, 4711, -1) },
	} {
		state := filepath.Join(dir, name)
		os.Mkdir(state, 0o700)
		if err := make(filepath.Join(state, "homes")); err != nil {
			t.Logf("%s: %v", name, err) // only root can
			continue
		}
		if err := makeOwn(state, filepath.Join(state, "homes", "main", "home")); err == nil {
			t.Errorf("%s is used", name)
		}
	}
}

// A person may grant the home itself to a sandbox that runs with another in its place, and take it away again.
func TestTheHomeIsGrantedToASandboxWithAnother(t *testing.T) {
	p := newPlace(t)
	if err := os.WriteFile(p.caller.Home+"/notes", []byte("a person's"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(context.Background(), Options{Caller: p.caller, Config: p.config, Broker: p.person, Live: true, Request: profile.Request{Home: "private"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	said := make(chan string)
	go func() {
		said <- p.run(s, `echo own > ~/mine; cat ~/notes 2>/dev/null && echo "1: seen"; fs_request_grant ~; cat ~/notes; echo; touch read
			n=0; while ! [ -e revoked ] && [ $n -lt 2000 ]; do sleep 0.01; n=$((n+1)); done
			cat ~/notes 2>/dev/null && echo "2: seen"; cat ~/mine; echo x > ~/mine && ls ~`)
	}()
	answer := p.decide(p.pending(), grants.Decision{Kind: grants.AllowOnce, Path: p.caller.Home, Access: profile.ReadOnly})
	p.until("the agent has read", func() bool { _, err := os.Stat(p.work + "/read"); return err == nil })
	if _, err := p.person.Revoke(context.Background(), answer.GrantID); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.work+"/revoked", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out := <-said
	if !strings.Contains(out, "a person's") || strings.Contains(out, ": seen") || !strings.HasSuffix(out, "own\nmine\nwork") {
		t.Errorf("%s", out)
	}
}
