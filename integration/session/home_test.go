package session

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
	"github.com/clairun/clai-sandbox/sandbox"
)

// newSession is a session whose home no grant shows.
func (p *place) newSession(agent string) *Session {
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
	first, second := p.newSession(""), p.newSession("")
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
	if got, err := p.inside(p.newSession(""), "cat ~/mine"); err != nil || got != "1\n" {
		t.Errorf("the next session: %q, %v", got, err)
	}
}

// While a command runs in an agent's home, and afterwards, nobody who goes by paths gets there.
// Root does: no mode holds it.
func TestNoPathLeadsToAnAgentsHome(t *testing.T) {
	p := newPlace(t)
	first, second := p.newSession(""), p.newSession("")
	look := func(home, name string) {
		t.Helper()
		planted := homePath(p.caller.Directories().State, profile.DefaultAgent, wholeHome)
		if home != "" {
			planted += home
		}
		planted += "/" + name
		if _, err := os.Lstat(shuttest.Reach(t, planted)); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(planted); errors.Is(err, fs.ErrPermission) != (os.Getuid() != 0) {
			t.Errorf("uid %d: %v", os.Getuid(), err)
		}
	}
	script := "mkdir ~/repo; echo x > ~/repo/config; touch made; n=0; while ! [ -e looked ] && [ $n -lt 2000 ]; do sleep 0.01; n=$((n+1)); done; echo more > ~/repo/more"
	ended := make(chan error, 1)
	go func() {
		_, err := p.inside(first, script)
		ended <- err
	}()
	p.until("the command runs", func() bool { _, err := os.Lstat(p.work + "/made"); return err == nil })
	look("", "repo/config")
	if _, err := p.inside(second, "echo x > ~/mine"); err != nil { // beside it, in another one
		t.Fatal(err)
	}
	look("-2", "mine")
	look("", "repo/config")
	if err := os.WriteFile(p.work+"/looked", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	first.Close()
	second.Close()
	look("", "repo/more")
}

// The homes that an earlier version made are moved to where no path leads, when no sandbox has
// them.
func TestAHomeOfAnEarlierVersionIsMoved(t *testing.T) {
	p := newPlace(t)
	state := p.caller.Directories().State
	for _, file := range []string{"main/home/mine", "main/home-2/other", "idle/home/x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(state, "homes", file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(state, "homes", file), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := lockAt(filepath.Join(state, "homes/main"), "home")
	if err != nil {
		t.Fatal(err)
	}
	s := p.newSession("")
	if got, err := p.inside(s, "ls ~"); err != nil || got != "other\nwork\n" { // an earlier version's sandbox has the first
		t.Errorf("%q %v", got, err)
	}
	s.Close()
	if _, err := os.Lstat(filepath.Join(state, "homes/main/home/mine")); err != nil {
		t.Error(err)
	}
	unix.Close(lock)
	if got, err := p.inside(p.newSession(""), "cat ~/mine"); err != nil || got != "old" {
		t.Errorf("%q %v", got, err)
	}
	for _, home := range []string{"main/home", "main/home-2", "idle/home"} {
		if _, err := os.Lstat(filepath.Join(state, "homes", home)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", home, err)
		}
	}
}

func TestAHomeThatCannotBeHadIsAnErrorWhereItWasAskedFor(t *testing.T) {
	p := newPlace(t)
	state := p.caller.Directories().State
	if err := os.WriteFile(filepath.Join(state, "homes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.inside(p.newSession(""), "true"); err == nil || !strings.Contains(err.Error(), "the agent's own home") {
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

// A person may grant the home itself to a sandbox that runs with another in its place, and take it
// away again.
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

// Where an agent's commands run apart, neither side sees the other's home, nor that of both
// together, and what commands serve is published for them.
func TestAnAgentAndItsCommandsApartShareNoHome(t *testing.T) {
	p := newPlace(t)
	open := func(apart bool) *Session {
		s, err := Open(context.Background(), Options{Caller: p.caller, Config: p.config, Apart: apart,
			Request: profile.Request{Home: "private", Network: "disabled", Publish: []string{"8080"}}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	furnished := ""
	agent := func(s *Session) *Prepared {
		prepared, err := s.PrepareAgent(func(r *profile.Request) { r.Environment = []string{"KEY=its"} }, func(home string) error { furnished = home; return nil }, "/run/door")
		if err != nil {
			t.Fatal(err)
		}
		prepared.Close()
		return prepared
	}
	commands := func(s *Session) *Prepared {
		prepared, err := s.Prepare(nil)
		if err != nil {
			t.Fatal(err)
		}
		return prepared
	}
	both := open(false)
	homes := map[string]bool{commands(both).Profile.PrivateHome: true}
	both.Close()
	s := open(true)
	defer s.Close()
	its, theirs := agent(s), commands(s)
	homes[its.Profile.PrivateHome], homes[theirs.Profile.PrivateHome] = true, true
	if len(homes) != 3 || homes[""] {
		t.Errorf("their homes: %v", homes)
	}
	if filepath.Base(furnished) != filepath.Base(its.Profile.PrivateHome) {
		t.Errorf("%s was furnished, and not %s", furnished, its.Profile.PrivateHome)
	}
	has := func(p *Prepared) (key, published, door bool) {
		for _, v := range p.Profile.Environment {
			key = key || v.Name == "KEY"
		}
		for _, step := range p.Plan.Steps {
			door = door || step.Path == sandbox.CommandSocket && step.Source == "/run/door"
		}
		return key, len(p.Plan.Published) > 0, door
	}
	if key, published, door := has(its); !key || published || !door {
		t.Errorf("the agent's sandbox: key %v, published %v, door %v", key, published, door)
	}
	if key, published, door := has(theirs); key || !published || door {
		t.Errorf("its commands': key %v, published %v, door %v", key, published, door)
	}
}
