package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
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

// inSessions is a variable with which all tests run what they run in a session's sandbox, one for each command: to see that it holds what
// any other holds.
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
	s.Close()
	<-done
	<-done
	whole, _ := s.Result()
	r.Notices = whole.Notices
	return ran{r, texts[0], texts[1], err}
}

func TestASessionsCommandsHaveWhatTheOnlyCommandOfASandboxHas(t *testing.T) {
	h := newHost(t)
	h.write(h.profile.Workspace+"/file", "content")
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
