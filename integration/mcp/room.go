package mcp

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/integration/rooms"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/diagnosis"
)

// A room is the one sandbox of a client session. All that the client calls runs there. Grants come
// into it live.
type room struct {
	sandbox  *sandbox.Session
	prepared *session.Prepared
	left     lingering
	files    filePrograms

	mu       sync.Mutex
	shell    *shell // nil: none yet, or any more
	settling bool
}

// The steps by which a command is ended.
const (
	killAfter  = sandbox.DefaultGrace
	abandonned = 10 * time.Second // it hangs in the kernel
)

// stays reports whether the client session is to have a room.
func (s *clientSession) stays() bool {
	return s.options.Stay == StayAlways || s.options.Stay == StayMostly && !s.copies()
}

// theRoom is the client session's, begun if there is none, or it has ended; again says that there
// was one. Nil: each command has a sandbox of its own.
func (s *clientSession) theRoom() (rm *room, again bool, err error) {
	if !s.stays() {
		return nil, false, nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.room != nil {
		select {
		case <-s.room.sandbox.Ended():
			again = true
		default:
			return s.room, false, nil
		}
	}
	if s.alone {
		return nil, false, nil
	}
	if !s.begin() {
		return nil, false, errors.New("the session has ended")
	}
	prepared, err := s.session.PrepareRun(nil)
	if err == nil {
		rm = &room{prepared: prepared}
		prepared.ShowProgram("files")
		rm.sandbox, err = prepared.Open(s.ctx, sandbox.Launcher{Bwrap: s.bwrap, State: s.options.Session.Caller.Directories().State})
	}
	if err != nil {
		s.running.Done()
		if errors.Is(err, sandbox.ErrNoSession) {
			s.alone = true
			s.tell(sandbox.Notice{Kind: noticeAlone, Text: explained(err) + ": each command has a sandbox of its own"})
			return nil, false, nil
		}
		return nil, false, err
	}
	for _, n := range prepared.Plan.Notices {
		s.tell(n)
	}
	caller := s.options.Session.Caller
	_, unreached, err := rooms.Serve(filepath.Join(grants.SocketDirectory(caller.Directories()), rooms.Directory), rooms.About{Agent: prepared.Profile.Agent,
		Workspace: prepared.Profile.Workspace, Command: s.options.Session.Command, Shell: s.shellOf(&prepared.Plan)}, rm.sandbox, nil)
	if err != nil {
		s.tell(sandbox.Notice{Kind: noticeNotReached, Text: "a person cannot reach the session by clai-sandbox sessions: " + err.Error()})
	}
	go func() {
		defer s.running.Done()
		select {
		case <-s.ctx.Done(): // a shell does not heed SIGTERM
			rm.endPrograms()
		case <-rm.sandbox.Ended():
		}
		<-rm.sandbox.Ended()
		if unreached != nil {
			unreached()
		}
		rm.left.close()
		if r, err := rm.sandbox.Result(); err == nil {
			for _, n := range r.Notices {
				s.tell(n)
			}
		}
	}()
	s.room = rm
	return rm, again, nil
}

// endRoom ends the room, with all that runs in it. The next call begins another one.
func (s *clientSession) endRoom() {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.room != nil {
		s.room.endPrograms()
		s.room.sandbox.Close()
	}
}

// Notices of sessions.
const (
	noticeAlone       sandbox.NoticeKind = "sandbox_per_call"
	noticeRestarted   sandbox.NoticeKind = "sandbox_restarted"
	noticeShellBegun  sandbox.NoticeKind = "shell_restarted"
	noticeShellIsBusy sandbox.NoticeKind = "shell_busy"
	noticeNotReached  sandbox.NoticeKind = "session_not_reached"
)

// restarted tells that what was in the session's sandbox is gone.
var restarted = sandbox.Notice{Kind: noticeRestarted, Text: "the session's sandbox had ended, and this is a new one: what the shell kept is gone"}

// tell keeps a notice for the next result.
func (s *clientSession) tell(n sandbox.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.later) < maxLater {
		s.later = append(s.later, n)
	}
}

// maxLater bounds what is kept for the next result.
const maxLater = 100

// endPrograms ends what this program has in the room for its own use.
func (rm *room) endPrograms() {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	if rm.shell != nil {
		rm.shell.process.Signal(unix.SIGHUP)
	}
	rm.files.end()
}

// directory is a command's working directory as a client gives it; empty: the session's.
func (rm *room) directory(dir string) string {
	p := rm.prepared.Profile
	switch {
	case dir == "" || filepath.IsAbs(dir):
		return dir
	case dir == "~":
		return p.Home
	case strings.HasPrefix(dir, "~/"):
		return filepath.Join(p.Home, dir[2:])
	}
	return filepath.Join(p.Workspace, dir)
}

// runThere runs a command in the room to its end. What it leaves in the background goes on.
func (s *clientSession) runThere(ctx context.Context, rm *room, c command) Result {
	c.argv = s.words(c, &rm.prepared.Plan)
	out := s.output()
	st, write, err := newStream(out)
	if err != nil {
		return refused(outcomeSetup, err.Error())
	}
	p, err := rm.sandbox.Start(sandbox.Command{Argv: c.argv, Dir: rm.directory(c.dir), Out: write, Err: write})
	write.Close()
	if err != nil {
		st.close()
		return s.notRun(err)
	}
	outcome := awaitEnd(ctx, p, c.timeout)
	r, err := p.Wait()
	st.turn(nil)
	rm.left.add(st)
	captured := out.finish()
	if err != nil && !errors.Is(err, sandbox.ErrSessionEnded) {
		return s.notRun(err)
	}
	if err != nil {
		r.Outcome, r.ExitCode, r.Signal = sandbox.Signalled, 128+int(unix.SIGKILL), unix.SIGKILL
	}
	if outcome != "" {
		r.Outcome = outcome
	}
	return s.result(rm, c, r, captured, rm.directory(c.dir))
}

// awaitEnd waits until a command has ended, and ends it if it must.
func awaitEnd(ctx context.Context, p *sandbox.Process, timeout time.Duration) (outcome sandbox.Outcome) {
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case <-p.Ended():
		return ""
	case <-late.C:
		outcome = sandbox.TimedOut
	case <-ctx.Done():
		outcome = sandbox.Cancelled
	}
	endProcess(p)
	return outcome
}

// endProcess ends a command with what it started, and returns when it has ended.
func endProcess(p *sandbox.Process) {
	for began, signal := time.Now(), syscall.Signal(unix.SIGTERM); time.Since(began) < abandonned; {
		p.End(signal)
		wait := killAfter
		if signal == unix.SIGKILL {
			wait = 50 * time.Millisecond // until nothing of it comes into being any more
		}
		select {
		case <-p.Ended():
			return
		case <-time.After(wait):
			signal = unix.SIGKILL
		}
	}
}

// result is what became of a command in the room.
func (s *clientSession) result(rm *room, c command, result sandbox.Result, captured captured, dir string) Result {
	r := resultOf(result, captured)
	if result.Outcome == sandbox.Exited && result.ExitCode != 0 {
		if now, err := s.session.Prepare(nil); err == nil {
			if dir != "" {
				now.Plan.WorkingDirectory = dir
			}
			r.Missing = missing(diagnosis.Of(diagnosis.Failure{Plan: &now.Plan, Command: c.argv, ExitCode: result.ExitCode, Stderr: captured.tail, Own: now.Profile.OwnDirectories}))
		}
	}
	s.settleSoon(rm)
	r.Notices = noticesOf(slices.Concat(rm.sandbox.LimitsReached(result), rm.sandbox.News(), s.sessionNotices()))
	return r
}

// settleAfter is how long after a command what it changed of repositories' settings is carried over
// to the host.
const settleAfter = 200 * time.Millisecond

// settleSoon has that done. What is left out is told with the next result.
func (s *clientSession) settleSoon(rm *room) {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	if rm.settling {
		return
	}
	rm.settling = true
	time.AfterFunc(settleAfter, func() {
		if !s.begin() {
			return
		}
		defer s.running.Done()
		rm.mu.Lock()
		rm.settling = false
		rm.mu.Unlock()
		for _, n := range rm.sandbox.Settle() {
			s.tell(n)
		}
	})
}

// lingering are streams of commands that have ended, which something that they left may still write
// to.
type lingering struct {
	mu   sync.Mutex
	list []*stream
	over bool
}

// maxLingering bounds them: who writes to one more is told that nobody reads.
const maxLingering = 64

func (l *lingering) add(st *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.list[:0]
	for _, other := range l.list {
		select {
		case <-other.done:
		default:
			kept = append(kept, other)
		}
	}
	l.list = append(kept, st)
	if l.over {
		st.close()
	}
	for len(l.list) > maxLingering {
		l.list[0].close()
		l.list = l.list[1:]
	}
}

func (l *lingering) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for _, st := range l.list {
		st.close()
	}
	l.list = nil
}
