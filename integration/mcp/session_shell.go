package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/integration/mcp/shell"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/lack"
)

// A sessionShell is the one sandbox of a session (--session-sandbox), with a shell in it that stays. Grants come into it live.
type sessionShell struct {
	prepared *session.Prepared
	input    *os.File
	ended    chan struct{}
	failure  error // why it never began, or ended

	mu    sync.Mutex
	next  int
	lines map[int]*shellLine
}

// A shellLine is one that runs.
type shellLine struct {
	output *output
	done   chan shell.Event
}

// shellPatience is how long a line that was cancelled may take to end before the sandbox does.
const shellPatience = 10 * time.Second

// theShell is the session's, begun if there is none, or it has ended.
func (s *sitting) theShell() (sh *sessionShell, isNew bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, errors.New("the session has ended")
	}
	if s.shell != nil {
		select {
		case <-s.shell.ended:
		default:
			return s.shell, false, nil
		}
	}
	prepared, err := s.session.PrepareRun(nil)
	if err != nil {
		return nil, false, err
	}
	prepared.ShowProgram("shell")
	sh = &sessionShell{prepared: prepared, ended: make(chan struct{}), lines: map[int]*shellLine{}}
	stdin, input, err := os.Pipe()
	if err != nil {
		return nil, false, err
	}
	events, stdout, err := os.Pipe()
	if err != nil {
		stdin.Close()
		input.Close()
		return nil, false, err
	}
	sh.input = input
	read := make(chan struct{})
	go func() { defer close(read); sh.read(events) }()
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		_, err := prepared.Run(s.ctx, sandbox.Launcher{Bwrap: s.bwrap, State: s.options.Session.Caller.Directories().State}, []string{shell.Place},
			sandbox.Stdio{In: stdin, Out: stdout})
		stdin.Close()
		stdout.Close()
		<-read
		input.Close()
		sh.failure = err
		close(sh.ended)
	}()
	again := s.shell != nil
	s.shell = sh
	return sh, again, nil
}

// read hands out what the shell says. It comes from inside, and may be anything.
func (sh *sessionShell) read(events *os.File) {
	defer events.Close()
	decoder := json.NewDecoder(events)
	for {
		var e shell.Event
		if err := decoder.Decode(&e); err != nil {
			io.Copy(io.Discard, events)
			return
		}
		sh.mu.Lock()
		line := sh.lines[e.ID]
		if e.Done {
			delete(sh.lines, e.ID)
		}
		sh.mu.Unlock()
		if line == nil {
			continue
		}
		line.output.Write(e.Output)
		if e.Done {
			line.done <- e
		}
	}
}

func (sh *sessionShell) send(r shell.Request) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	sh.input.SetWriteDeadline(time.Now().Add(shellPatience))
	_, err = sh.input.Write(append(text, '\n'))
	return err
}

// runInShell runs a line in the session's shell.
func (s *sitting) runInShell(ctx context.Context, line, dir string, timeout time.Duration) Result {
	if err := s.cannot(); err != nil {
		return refused(outcomeUnavailable, explained(err))
	}
	c := command{argv: bash(line), dir: dir}
	if err := c.check(); err != nil {
		return refused(outcomeSetup, err.Error())
	}
	sh, again, err := s.theShell()
	if err != nil {
		return s.notRun(err)
	}
	l := &shellLine{output: &output{dir: s.tmp}, done: make(chan shell.Event, 1)}
	sh.mu.Lock()
	sh.next++
	id := sh.next
	sh.lines[id] = l
	sh.mu.Unlock()
	began := time.Now()
	if err := sh.send(shell.Request{ID: id, Command: line, Dir: dir}); err != nil {
		<-sh.ended
	}
	e, outcome := s.awaitLine(ctx, sh, l, id, timeout)
	captured := l.output.finish()
	if outcome == "" && e.Error != "" {
		return refused(outcomeSetup, e.Error)
	}
	r := Result{Outcome: outcome, ExitCode: e.ExitCode, TimedOut: outcome == string(sandbox.TimedOut), DurationMs: time.Since(began).Milliseconds(),
		Output: captured.text, Truncated: captured.truncated, OutputBytes: captured.size, OutputFile: captured.file}
	if n := e.ExitCode - 128; n > 0 && n <= 64 {
		r.Signal = unix.SignalName(unix.Signal(n))
	}
	switch {
	case outcome != "":
	case r.Signal != "":
		r.Outcome = string(sandbox.Signalled)
	default:
		r.Outcome = string(sandbox.Exited)
		if now, err := s.session.Prepare(nil); err == nil {
			r.Missing = missing(lack.Of(lack.Failure{Plan: &now.Plan, Command: c.argv, ExitCode: e.ExitCode, Stderr: captured.tail, Own: now.Profile.OwnDirectories}))
		}
	}
	r.Notices = noticesOf(s.sessionNotices())
	if again {
		r.Notices = append(r.Notices, Notice{Kind: "sandbox_restarted", Text: "the session's sandbox had ended, and this is a new one: what the shell kept is gone"})
	}
	return r
}

// awaitLine waits for a line's end, and ends it if it must. What does not end takes the sandbox with it.
func (s *sitting) awaitLine(ctx context.Context, sh *sessionShell, l *shellLine, id int, timeout time.Duration) (e shell.Event, outcome string) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var patience <-chan time.Time
	stop, late := ctx.Done(), timer.C
	end := func(why sandbox.Outcome) {
		outcome, stop, late = string(why), nil, nil
		patience = time.After(shellPatience)
		sh.send(shell.Request{ID: id, Cancel: true})
	}
	for {
		select {
		case e = <-l.done:
			return e, outcome
		case <-late:
			end(sandbox.TimedOut)
		case <-stop:
			end(sandbox.Cancelled)
		case <-patience:
			sh.input.Close() // the shell ends with its input, and with it the sandbox
			patience = nil
		case <-sh.ended:
			if outcome == "" {
				outcome = string(sandbox.Signalled)
			}
			return shell.Event{ExitCode: 128 + int(unix.SIGKILL)}, outcome
		}
	}
}
