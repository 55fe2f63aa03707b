package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// openSession opens a session's sandbox of the profile's.
func (h *host) openSession() *Session {
	h.t.Helper()
	s, err := h.launcher.Open(context.Background(), h.build())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(s.Close)
	return s
}

// capture starts a command whose output is collected.
func (s *Session) capture(t testing.TB, c Command) (*Process, func() (string, Result, error)) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Out, c.Err = write, write
	p, err := s.Start(c)
	write.Close()
	if err != nil {
		read.Close()
		t.Fatal(err)
	}
	return p, func() (string, Result, error) {
		r, err := p.Wait()
		read.SetReadDeadline(time.Now().Add(2 * time.Second)) // what it left may hold the other end
		text, _ := io.ReadAll(io.LimitReader(read, 1<<20))
		read.Close()
		return string(text), r, err
	}
}

// sh runs a line.
func (s *Session) sh(t testing.TB, line string) (string, Result) {
	t.Helper()
	_, wait := s.capture(t, Command{Argv: []string{"sh", "-c", line}})
	out, r, err := wait()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return out, r
}

// inSessions is a variable with which all tests run what they run in a session's sandbox, one for
// each command: to see that it holds what any other holds.
const inSessions = "CLAI_SANDBOX_TEST_SESSIONS"

// runInSession is runPlan in a session's sandbox, which ends with the command.
func (h *host) runInSession(ctx context.Context, plan Plan, command ...string) ran {
	h.t.Helper()
	if err := plan.Find(h.tree, command[0]); err != nil {
		return ran{Failure: err}
	}
	s, err := h.launcher.Open(ctx, plan)
	if err != nil {
		return ran{Failure: err}
	}
	var texts [2]string
	var files [2]*os.File
	done := make(chan int, 2)
	for i := range files {
		read, write, err := os.Pipe()
		if err != nil {
			h.t.Fatal(err)
		}
		files[i] = write
		go func() {
			text, _ := io.ReadAll(read)
			texts[i] = string(text)
			read.Close()
			done <- i
		}()
	}
	p, err := s.Start(Command{Argv: command, Out: files[0], Err: files[1]})
	files[0].Close()
	files[1].Close()
	if err != nil {
		return ran{Failure: err}
	}
	r, err := p.Wait()
	r.Notices = s.LimitsReached(r)
	s.Close()
	<-done
	<-done
	whole, _ := s.Result()
	for _, n := range whole.Notices { // the end tells of the sandbox's limits, too
		if !slices.ContainsFunc(r.Notices, func(told Notice) bool { return told.Limit != "" && told.Limit == n.Limit }) {
			r.Notices = append(r.Notices, n)
		}
	}
	return ran{r, texts[0], texts[1], err}
}

func TestASessionsCommandsHaveWhatTheOnlyCommandOfASandboxHas(t *testing.T) {
	h := newHost(t)
	h.write(h.profile.Workspace+"/file", "content")
	h.limit(profile.LimitCPU, 100)
	h.limit(profile.LimitFileSize, 1<<30)
	h.limit(profile.LimitOpenFiles, 300)
	h.limit(profile.LimitMemory, 8<<30)
	const line = `cat file; pwd; env | sort | grep -v '^_='; grep -E '^(Cap|NoNewPrivs|Seccomp|NSpid|Uid|Gid|Groups|SigIgn|SigBlk)' /proc/self/status | sed 's/NSpid.*\t.*/NSpid/'
for n in user mnt ipc uts pid cgroup net; do readlink /proc/self/ns/$n | sed 's/[0-9]*//g'; done
umask; cat /proc/self/limits; ls -l /proc/self/fd | sed 's/.* 9 //' | grep -c . ; ls /; cat /proc/mounts | cut -d' ' -f2- ; touch /usr/x ../x 2>&1; rm -rf a b; mkdir a b; touch a/x; ln a/x b/y && echo linked; cat /proc/self/oom_score_adj; nice`
	alone := h.run("sh", "-c", line)
	out, r := h.openSession().sh(t, line)
	theirs, ours := strings.Split(alone.Out+alone.Err, "\n"), strings.Split(out, "\n")
	slices.Sort(theirs)
	slices.Sort(ours)
	for _, line := range ours {
		if !slices.Contains(theirs, line) {
			t.Errorf("only in a session: %s", line)
		}
	}
	for _, line := range theirs {
		if !slices.Contains(ours, line) {
			t.Errorf("not in a session: %s", line)
		}
	}
	if r.ExitCode != alone.ExitCode || len(ours) < 50 {
		t.Errorf("%d %s", r.ExitCode, out)
	}
}

// What takes a command's rights away it must have before it is the command: so the server, whose
// fork it is, has it from the start.
func TestASessionsServerIsHeldToWhatItsCommandsAre(t *testing.T) {
	h := newHost(t)
	h.limit(profile.LimitOpenFiles, 300)
	h.limit(profile.LimitMemory, 8<<30)
	s := h.openSession()
	of := func(file string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.server.Load().PID(), file))
		if err != nil && os.Getuid() == 0 {
			t.Fatal(err)
		}
		return string(text)
	}
	status := of("status")
	for name, want := range map[string]string{"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "0000000000000000",
		"CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2", "Threads": "1"} {
		if !strings.Contains(status, "\n"+name+":\t"+want+"\n") {
			t.Errorf("it does not have %s %s in\n%s", name, want, status)
		}
	}
	var info unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/environ", s.server.Load().PID()), &info); err != nil || info.Uid != 0 {
		t.Errorf("who is not root could look into it: its files are uid %d's (%v)", info.Uid, err)
	}
	if out, _ := s.sh(t, "stat -c %u /proc/1/environ; stat -c %u /proc/self/environ"); os.Getuid() != 0 && out != fmt.Sprintf("65534\n%d\n", os.Getuid()) {
		t.Errorf("the first process can be looked into: %s", out)
	}
	if limits := of("limits"); os.Getuid() == 0 && !regexp.MustCompile(`Max open files +300 +300 `).MatchString(limits) {
		t.Errorf("its limits are\n%s", limits)
	}
	if environ := of("environ"); os.Getuid() == 0 && (strings.Contains(environ, "TMPDIR=") || !strings.Contains(environ, "HOME="+h.profile.Home)) {
		t.Errorf("its environment is %q", environ)
	}
	if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.attempt.init())); os.Getuid() == 0 && (err != nil || len(open) > 0) {
		t.Errorf("the first process has %v open (%v)", open, err)
	}
	if session, err := unix.Getsid(s.server.Load().PID()); err != nil || session != s.server.Load().PID() {
		t.Errorf("it is in session %d, and hears what that one's terminal sends (%v)", session, err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if places, _ := hostCgroups.Reach(h.profile.Limits); err != nil || len(places) > 0 && of("cgroup") == string(own) {
		t.Errorf("it is in this process's cgroup (%v):\n%s", err, own)
	}
	for _, name := range []string{"user", "mnt", "ipc", "uts", "pid", "cgroup"} {
		host, err := os.Readlink("/proc/self/ns/" + name)
		if out, _ := s.sh(t, "readlink /proc/self/ns/"+name); err != nil || out == host+"\n" || !strings.HasPrefix(out, name+":[") {
			t.Errorf("the namespace %s is %s inside, and %s outside (%v)", name, out, host, err)
		}
	}
	without := newHost(t)
	without.profile.Network = profile.NetworkDisabled
	host, err := os.Readlink("/proc/self/ns/net")
	if out, _ := without.openSession().sh(t, "readlink /proc/self/ns/net"); err != nil || out == host+"\n" || !strings.HasPrefix(out, "net:[") {
		t.Errorf("without a network, its namespace is %s inside, and %s outside (%v)", out, host, err)
	}
	// What a command gets is what it was given: nothing of the server's, nothing of the command's
	// before.
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	if p, err := s.Start(Command{Argv: []string{"sleep", "300"}, In: read, Out: write, Extra: write, ExtraFD: 20}); err != nil {
		t.Error(err)
	} else {
		defer p.End(unix.SIGKILL)
	}
	if out, _ := s.sh(t, "echo /proc/self/fd/*; readlink /proc/self/fd/0; ps -o pgid=,sid= -p $$ | tr -s ' '; echo $$"); !regexp.MustCompile(
		`^/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2( /proc/self/fd/3)?\n/dev/null\n ?(\d+) (\d+)\n(\d+)\n$`).MatchString(out) {
		t.Errorf("%q", out)
	} else if words := strings.Fields(out); words[len(words)-1] != words[len(words)-2] || words[len(words)-1] != words[len(words)-3] {
		t.Errorf("it is in another session or group than its own: %q", out)
	}
}

func TestASessionTellsHowItsCommandsEnded(t *testing.T) {
	h := newHost(t)
	s := h.openSession()
	for line, want := range map[string]Result{
		"exit 3":                        {Outcome: Exited, ExitCode: 3},
		"kill -9 $$":                    {Outcome: Signalled, ExitCode: 137, Signal: 9},
		"kill -TERM $$":                 {Outcome: Signalled, ExitCode: 143, Signal: 15},
		"sleep 300 >/dev/null 2>&1 & :": {Outcome: Exited},
	} {
		if _, r := s.sh(t, line); r.Outcome != want.Outcome || r.ExitCode != want.ExitCode || r.Signal != want.Signal {
			t.Errorf("%s: %+v", line, r)
		}
	}
	for name, c := range map[string]struct {
		command Command
		want    string
	}{
		"no such command":   {Command{Argv: []string{"no-such-command"}}, "command not found"},
		"not executable":    {Command{Argv: []string{"/etc/passwd"}}, "permission denied"},
		"no such directory": {Command{Argv: []string{"true"}, Dir: "/no/such"}, "cannot be the working directory"},
	} {
		p, err := s.Start(c.command)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	file, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := s.Start(Command{Argv: []string{"true"}, In: file}); err == nil {
		t.Error("a file was taken for a stream")
	}
	s.Close()
	if _, err := s.Start(Command{Argv: []string{"true"}}); !errors.Is(err, ErrSessionEnded) {
		t.Errorf("%v", err)
	}
}

// What is done at the end of a sandbox is done while one stays, as far as that is safe.
func TestASessionSettlesWhatItChangedOfAHostsRepository(t *testing.T) {
	h, _ := settingsHost(t)
	s := h.openSession()
	work := h.profile.Workspace
	_, busy := s.capture(t, Command{Argv: []string{"sh", "-c", "while ! test -e stop; do :; done; echo went on"}})
	if out, r := s.sh(t, "git remote add one /srv/one.git; git config core.fsmonitor evil"); r.ExitCode != 0 {
		t.Fatal(out)
	}
	if got := settingsOf(t, h); strings.Contains(got, "/srv/one.git") {
		t.Errorf("the host's file is not the host's alone:\n%s", got)
	}
	notices := s.Settle()
	if len(notices) != 1 || !strings.Contains(notices[0].Text, "core.fsmonitor = evil") || !strings.Contains(notices[0].Text, "clai-sandbox quarantine restore") {
		t.Errorf("%+v", notices)
	}
	if got := settingsOf(t, h); !strings.Contains(got, "remote.one.url=/srv/one.git") || strings.Contains(got, "evil") {
		t.Errorf("the host has\n%s", got)
	}
	if notices := s.Settle(); len(notices) != 0 {
		t.Errorf("it is told again: %+v", notices)
	}
	const shown = "git config core.fsmonitor; git config remote.one.url; rm .git/config 2>&1 || test -L .git/config && echo a link"
	if out, _ := s.sh(t, shown); !strings.HasPrefix(out, "evil\n/srv/one.git\n") || !strings.HasSuffix(out, "a link\n") {
		t.Errorf("inside there is %q", out)
	}
	h.git(work, "config", "user.email", "theirs@example.com")
	waitUntil(t, "the person's change is inside", func() bool { out, _ := s.sh(t, "git config user.email"); return out == "theirs@example.com\n" })
	if out, _ := s.sh(t, shown+"; git remote add two /srv/two.git; git config user.name inside"); !strings.HasPrefix(out, "evil\n/srv/one.git\n") {
		t.Errorf("inside there is %q", out)
	}
	if notices := s.Settle(); len(notices) != 0 {
		t.Errorf("%+v", notices)
	}
	if got := settingsOf(t, h); !strings.Contains(got, "remote.two.url") || !strings.Contains(got, "user.name=inside") || !strings.Contains(got, "user.email=theirs@example.com") {
		t.Errorf("the host has\n%s", got)
	}
	h.write(work+"/stop", "")
	if out, r, err := busy(); err != nil || r.ExitCode != 0 || out != "went on\n" {
		t.Errorf("what ran meanwhile: %q, %+v, %v", out, r, err)
	}
	s.sh(t, "git config branch.main.description last")
	s.Close()
	if r, err := s.Result(); err != nil || slices.ContainsFunc(r.Notices, func(n Notice) bool { return n.Kind == NoticeGitSetting }) {
		t.Errorf("%+v, %v", r, err)
	}
	if got := settingsOf(t, h); !strings.Contains(got, "branch.main.description=last") || strings.Contains(got, "evil") {
		t.Errorf("the host has at the end\n%s", got)
	}
	if notices := append(s.Settle(), s.News()...); len(notices) != 0 {
		t.Errorf("after its end: %+v", notices)
	}
}

// While settings are carried over, nothing inside can change what has been looked at, and nothing
// comes to be that could.
func TestNothingRunsNorStartsWhileASessionSettles(t *testing.T) {
	h, _ := settingsHost(t)
	s := h.openSession()
	busy, err := s.Start(Command{Argv: []string{"sh", "-c", "while :; do :; done"}})
	if err != nil {
		t.Fatal(err)
	}
	seen := false
	for round := 0; !seen && round < 50; round++ {
		s.sh(t, fmt.Sprintf("git config branch.main.description %d", round))
		settled := make(chan struct{})
		go func() { defer close(settled); s.Settle() }()
		for over := false; !over && !seen; {
			select {
			case <-settled:
				over = true
			default:
				seen = busy.Stopped()
			}
		}
		if seen {
			p, err := s.Start(Command{Argv: []string{"true"}})
			if err != nil {
				t.Fatal(err)
			}
			if busy.Stopped() {
				t.Error("a command was started meanwhile")
			}
			p.Wait()
		}
		<-settled
	}
	if !seen {
		t.Error("what runs is not stopped")
	}
	if busy.Stopped() {
		t.Error("it stays stopped")
	}
}

// What is to end is asked to, and hears it also where it was stopped.
func TestASessionsCommandThatWasStoppedHearsThatItIsToEnd(t *testing.T) {
	for name, end := range map[string]func(*Session, *Process){
		"the command alone": func(_ *Session, p *Process) { p.End(unix.SIGTERM) },
		"the session":       func(s *Session, _ *Process) { s.Close() },
	} {
		h := newHost(t)
		s := h.openSession()
		p, wait := s.capture(t, Command{Argv: []string{"sh", "-c", "trap 'echo heard; exit 3' TERM; kill -STOP $$"}})
		waitUntil(t, "it is stopped", p.Stopped)
		late := time.AfterFunc(10*time.Second, func() { p.End(unix.SIGKILL) })
		end(s, p)
		if out, _, _ := wait(); out != "heard\n" {
			t.Errorf("%s: %q", name, out)
		}
		late.Stop()
	}
}

func TestASessionTellsWhichLimitACommandReached(t *testing.T) {
	h := newHost(t)
	h.limit(profile.LimitFileSize, 1<<16)
	s := h.openSession()
	_, r := s.sh(t, "exec head -c 100000 /dev/zero > large")
	if told := s.LimitsReached(r); len(told) != 1 || told[0].Limit != "fileSize" {
		t.Errorf("%+v, %+v", told, r)
	}
	_, r = s.sh(t, "true")
	if told := s.LimitsReached(r); len(told) != 0 {
		t.Errorf("%+v", told)
	}
}

func TestASessionTellsWhatWasSetAsideWhileItStays(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	s := h.openSession()
	s.sh(t, "echo x > .envrc")
	news := s.News()
	if len(news) != 1 || news[0].Path != h.profile.Workspace+"/.envrc" || !strings.Contains(news[0].Text, "quarantine") || !strings.Contains(news[0].Text, "--unprotect .envrc") {
		t.Errorf("%+v", news)
	}
	if news := s.News(); len(news) != 0 {
		t.Errorf("it is told again: %+v", news)
	}
	s.Close()
	if r, err := s.Result(); err != nil || len(r.Notices) != 1 || !strings.Contains(r.Notices[0].Text, "quarantine restore") {
		t.Errorf("%+v, %v", r, err)
	}
}
