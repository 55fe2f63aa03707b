package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox"
)

// A shell is one that stays: a real one, which reads a line of the client's after the other. What a
// line changes in it is there for the next: directory, variables, functions, options, jobs.
//
// It is interactive without a terminal: so a mistake in a line does not end it. After each line it
// says on a pipe of its own, which what it starts does not have, a word that nobody could know
// before, and the status. What it starts shares its output, as at a terminal.
type shell struct {
	kind     shellKind
	process  *sandbox.Process
	input    *os.File
	output   *stream
	marks    chan mark
	expected atomic.Pointer[string] // the word that is waited for
	status   int                    // of the last line
	between  between                // what came when no line ran
	taken    chan struct{}
}

// A shellKind is how one kind of shell is spoken to.
type shellKind struct {
	argv   []string // behind its path
	fd     int      // where it says that a line has ended
	invoke string   // begins a command that no function or alias of the person's stands for
	first  string   // what it reads first
}

// shellKinds are the shells that are spoken to, by the last part of their path. Of descriptors most
// shells can name those below 10 alone.
var shellKinds = map[string]shellKind{
	"bash": {[]string{"--norc", "--noprofile", "--noediting", "-i"}, 250, `\builtin `, "PS1= PS2= PS0= PROMPT_COMMAND=; unset HISTFILE; set +o history +o histexpand"},
	"zsh":  {[]string{"-f", "-i", "+o", "promptsp", "+o", "promptcr", "+o", "zle", "+o", "banghist"}, 9, `\builtin `, "PS1= PS2= RPS1= PROMPT_EOL_MARK="},
	"sh":   {[]string{"-i"}, 9, `\command `, "PS1= PS2="},
	"dash": {[]string{"-i"}, 9, `\command `, "PS1= PS2="},
}

// shellOf is the person's own shell if it is one of those and is there inside, or else one that is.
func (s *clientSession) shellOf(plan *sandbox.Plan) string {
	for _, path := range []string{s.options.Session.Caller.Shell, "/bin/bash", "/bin/sh"} {
		if _, known := shellKinds[filepath.Base(path)]; known && filepath.IsAbs(path) && plan.Find(sandbox.Host{}, path) == nil {
			return path
		}
	}
	return "/bin/sh"
}

// A mark is what a shell said at the end of a line.
type mark struct {
	word   string
	status string
}

const (
	shellBegins = 10 * time.Second // and how long it may take to take a line
	stoppedPoll = 500 * time.Millisecond
	maxMarks    = 64 << 10
)

// newShell starts a shell, and waits until it takes lines.
func newShell(rm *room, path string) (*shell, error) {
	sh := &shell{kind: shellKinds[filepath.Base(path)], marks: make(chan mark, 16), taken: make(chan struct{}, 1)}
	stdin, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	sh.input = input
	marks, said, err := os.Pipe()
	if err != nil {
		input.Close()
		return nil, err
	}
	defer said.Close()
	output, write, err := newStream(nil)
	if err != nil {
		input.Close()
		marks.Close()
		return nil, err
	}
	defer write.Close()
	sh.output = output
	sh.process, err = rm.sandbox.Start(sandbox.Command{Argv: append([]string{path}, sh.kind.argv...), In: stdin, Out: write, Err: write, Extra: said, ExtraFD: sh.kind.fd})
	if err != nil {
		input.Close()
		marks.Close()
		output.close()
		return nil, err
	}
	go sh.readMarks(marks)
	word := sh.newWord()
	err = sh.say(sh.kind.first + "; __clai_status() { return \"$1\"; }\n" + sh.marker(word))
	timer := time.NewTimer(shellBegins)
	defer timer.Stop()
	for err == nil {
		select {
		case m := <-sh.marks:
			if m.word == word {
				return sh, nil
			}
		case <-sh.process.Ended():
			_, err = sh.process.Wait()
			err = errors.Join(errors.New("the shell has ended at once"), err)
		case <-timer.C:
			err = errors.New("the shell does not begin")
		}
	}
	sh.end()
	return nil, err
}

// end ends the shell and what shares its process group.
func (sh *shell) end() {
	sh.process.Signal(unix.SIGKILL)
	sh.input.Close()
}

// readMarks reads what the shell says at the end of lines: \0WORD STATUS\0. It comes from inside,
// and may be anything: the first of the zeros ends whatever came before, and what does not have the
// word is dropped here, where it is in nobody's way.
func (sh *shell) readMarks(from *os.File) {
	defer from.Close()
	var said []byte
	buffer := make([]byte, 4<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		said = append(said, buffer[:n]...)
		for {
			text, next, whole := bytes.Cut(said, []byte{0})
			if !whole {
				break
			}
			said = next
			word, status, _ := strings.Cut(string(text), " ")
			if expected := sh.expected.Load(); expected == nil || *expected != word {
				continue
			}
			select {
			case sh.marks <- mark{word, status}:
			default: // nobody waits for so many
			}
		}
		if len(said) > maxMarks {
			said = nil
		}
	}
}

func (sh *shell) say(text string) error {
	sh.input.SetWriteDeadline(time.Now().Add(shellBegins))
	_, err := io.WriteString(sh.input, text)
	return err
}

// marker makes the shell say that it has come so far.
func (sh *shell) marker(word string) string {
	return sh.kind.invoke + `printf '\0` + word + ` %d\0' "$?" >&` + strconv.Itoa(sh.kind.fd) + "\n"
}

// newWord is a word that nobody knows, and that is waited for from now on. It begins with a letter:
// what follows \0 must be no digit.
func (sh *shell) newWord() string {
	word := "N" + rand.Text()
	sh.expected.Store(&word)
	return word
}

// statusNoDirectory is said instead of a status where a line did not begin.
const statusNoDirectory = "cd"

// script is what the shell reads for a line.
func (sh *shell) script(line, dir, word string) string {
	var b strings.Builder
	if sh.status != 0 { // the marker's own status is in the way of the last line's; with errexit it would end the shell
		fmt.Fprintf(&b, "case $- in *e*) ;; *) __clai_status %d;; esac\n", sh.status)
	}
	hidden := fmt.Sprintf("</dev/null %d>&-", sh.kind.fd)
	eval := "eval " + quoted(line) + " " + hidden
	if sh.kind.invoke == `\command ` {
		eval = `\command ` + eval // or a mistake in the line would end it
	}
	if dir != "" {
		eval = fmt.Sprintf("if %scd -- %s %s 2>/dev/null; then\n%s\nelse %sprintf '\\0%s %s\\0' >&%d; fi", sh.kind.invoke, quoted(dir), hidden, eval, sh.kind.invoke, word,
			statusNoDirectory, sh.kind.fd)
	}
	return b.String() + eval + "\n" + sh.marker(word)
}

// quoted is a word that a shell reads as what it is.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// A lineEnd is how a line ended.
type lineEnd struct {
	outcome sandbox.Outcome // empty: by itself
	status  int
	noDir   bool
	over    bool // the shell has ended, or had to be
	stopped bool
	result  sandbox.Result // of the shell
}

// line has the shell carry out a line, and waits for its end.
func (sh *shell) line(ctx context.Context, line, dir string, timeout time.Duration) (e lineEnd) {
	word := sh.newWord()
	before := sh.process.Descendants()
	said := make(chan error, 1)
	go func() { said <- sh.say(sh.script(line, dir, word)) }()
	late := time.NewTimer(timeout)
	defer late.Stop()
	look := time.NewTicker(stoppedPoll)
	defer look.Stop()
	var step <-chan time.Time
	stop, over := ctx.Done(), late.C
	steps := 0
	end := func(why sandbox.Outcome) {
		e.outcome, stop, over = why, nil, nil
		step = time.After(0)
	}
	stopped := 0
	for {
		select {
		case m := <-sh.marks:
			if m.word != word {
				continue
			}
			e.noDir = m.status == statusNoDirectory
			e.status, _ = strconv.Atoi(m.status)
			if steps > 1 { // what did not end with the line is ended
				sh.process.EndDescendants(unix.SIGKILL, before)
			}
			sh.status = e.status
			return e
		case <-sh.process.Ended():
			e.over = true
			e.result, _ = sh.process.Wait()
			e.status = e.result.ExitCode
			return e
		case err := <-said:
			said = nil
			if err != nil { // it does not read
				end(sandbox.TimedOut)
				steps = 3
			}
		case <-over:
			end(sandbox.TimedOut)
		case <-stop:
			end(sandbox.Cancelled)
		case <-look.C:
			if stopped++; !sh.process.Stopped() {
				stopped = 0
			}
			if stopped >= 2 { // it would stay so
				e.stopped, e.over = true, true
				sh.end()
			}
		case <-step:
			steps++
			switch {
			case steps == 1: // as Ctrl-C: background jobs do not heed it. It may have lost what it has read.
				sh.process.Signal(unix.SIGINT)
				sh.process.EndDescendants(unix.SIGINT, before)
				go sh.say(sh.marker(word))
				step = time.After(interruptTimeout)
			case steps == 2:
				sh.process.EndDescendants(unix.SIGTERM, before)
				step = time.After(killAfter)
			case steps == 3:
				sh.process.EndDescendants(unix.SIGKILL, before)
				step = time.After(interruptTimeout)
			default:
				sh.process.End(unix.SIGKILL)
				step = time.After(interruptTimeout)
			}
			if steps > maxSteps {
				e.over = true
				return e
			}
		}
	}
}

const (
	interruptTimeout = 500 * time.Millisecond
	maxSteps         = 20
)

// runInShell runs a line in the session's shell, or in one of its own while that one is busy.
func (s *clientSession) runInShell(ctx context.Context, line, dir string, timeout time.Duration) Result {
	if err := s.cannot(); err != nil {
		return refused(outcomeUnavailable, explained(err))
	}
	c := command{line: line, dir: dir, timeout: timeout}
	if err := c.check(); err != nil {
		return refused(outcomeSetup, err.Error())
	}
	rm, again, err := s.theRoom()
	if err != nil {
		return s.notRun(err)
	}
	if rm == nil {
		return s.run(ctx, c)
	}
	if !s.begin() {
		return refused(outcomeUnavailable, "the session has ended")
	}
	defer s.running.Done()
	ctx, stop := joined(ctx, s.ctx)
	defer stop()
	var notices []sandbox.Notice
	if again {
		notices = append(notices, restarted)
	}
	path := s.shellOf(&rm.prepared.Plan)
	sh, err := rm.takeShell(path)
	if err != nil {
		return s.notRun(err)
	}
	if sh == nil {
		r := s.runThere(ctx, rm, c)
		r.Notices = append(noticesOf(append(notices, sandbox.Notice{Kind: noticeShellIsBusy, Text: "the session's shell is busy with another command: this one ran in a shell of its own, and what it set there is gone"})), r.Notices...)
		return r
	}
	out := s.output()
	said := &withoutTerminal{to: out}
	sh.output.turn(said)
	out.Write(sh.between.take())
	began := time.Now()
	e := sh.line(ctx, line, rm.directory(dir), timeout)
	sh.output.turn(&sh.between)
	said.flush()
	where := sh.process.Directory()
	rm.giveBack(sh, e.over)
	rm.sandbox.Keep()
	captured := out.finish()
	if e.noDir {
		return refused(outcomeSetup, "cwd: no such directory")
	}
	result := e.result
	if !e.over {
		result = sandbox.Result{Outcome: sandbox.Exited, ExitCode: e.status}
		if n := e.status - 128; n > 0 && n <= 64 {
			result.Outcome, result.Signal = sandbox.Signalled, unix.Signal(n)
		}
	}
	result.Duration = time.Since(began)
	if e.outcome != "" {
		result.Outcome = e.outcome
	}
	switch {
	case e.stopped:
		notices = append(notices, sandbox.Notice{Kind: noticeShellBegun, Text: "the session's shell was stopped, and was ended; the next command begins a new one, and what it kept is gone"})
	case e.over:
		notices = append(notices, sandbox.Notice{Kind: noticeShellBegun, Text: "the session's shell ended with this command; the next one begins a new one, and what it kept is gone"})
	}
	c.argv = []string{path, "-c", line}
	r := s.result(rm, c, result, captured, where)
	r.Notices = append(noticesOf(notices), r.Notices...)
	return r
}

// takeShell is the room's shell for one line, or nil if it is busy.
func (rm *room) takeShell(path string) (*shell, error) {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	if rm.shell != nil {
		select {
		case <-rm.shell.process.Ended(): // it was ended by something else than a line
			rm.shell.input.Close()
			rm.shell = nil
		default:
		}
	}
	if rm.shell == nil {
		sh, err := newShell(rm, path)
		if err != nil {
			return nil, err
		}
		rm.shell = sh
	}
	select {
	case rm.shell.taken <- struct{}{}:
		return rm.shell, nil
	default:
		return nil, nil
	}
}

func (rm *room) giveBack(sh *shell, over bool) {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	<-sh.taken
	if over {
		sh.input.Close()
		rm.left.add(sh.output) // what it left in the background may still write
		if rm.shell == sh {
			rm.shell = nil
		}
	}
}
