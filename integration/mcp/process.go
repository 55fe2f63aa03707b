package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

const (
	maxJobs   = 16
	jobBuffer = 1 << 20 // of a background process's output that is kept
	maxPoll   = 100_000 // bytes in one answer
	maxWait   = 60      // seconds
	maxInput  = 1 << 20
)

// Process are the arguments of process.
type Process struct {
	Action      string `json:"action" jsonschema:"start, poll, write, close, signal or list"`
	ID          string `json:"id,omitempty" jsonschema:"of all but start and list: the process"`
	Command     string `json:"command,omitempty" jsonschema:"of start: a shell line"`
	Cwd         string `json:"cwd,omitempty" jsonschema:"of start: where it starts"`
	Input       string `json:"input,omitempty" jsonschema:"of write: what is written to its standard input"`
	Signal      string `json:"signal,omitempty" jsonschema:"of signal: TERM, INT, KILL and so on; TERM if absent"`
	Cursor      int64  `json:"cursor,omitempty" jsonschema:"of poll: where to read on, as the last poll said"`
	WaitSeconds int    `json:"waitSeconds,omitempty" jsonschema:"of poll: wait so long for more output or the end, at most 60"`
}

// ProcessResult says how background processes do.
type ProcessResult struct {
	Processes []ProcessState `json:"processes"`
	Output    string         `json:"output,omitempty" jsonschema:"of poll: what was written since the cursor, at most 100,000 bytes"`
	Cursor    int64          `json:"cursor" jsonschema:"of poll: where the next one reads on"`
	Lost      int64          `json:"lost,omitempty" jsonschema:"of poll: bytes before this output that are not kept any more"`
}

// ProcessState is one background process.
type ProcessState struct {
	ID        string  `json:"id"`
	Command   string  `json:"command"`
	Running   bool    `json:"running"`
	StartedMs int64   `json:"startedMs" jsonschema:"how long ago it was started"`
	Result    *Result `json:"result,omitempty" jsonschema:"how it ended; its output is left out"`
}

// A job is a background process in a sandbox of its own. It can be found by its id when it has been
// launched, not before.
type job struct {
	id      string
	command string
	started time.Time
	cancel  context.CancelFunc
	send    func(syscall.Signal) error // set by the launch
	done    chan struct{}
	result  Result // when done

	mu      sync.Mutex
	input   *os.File // nil: closed
	buffer  []byte   // the last of the output
	size    int64    // of all of it
	changed chan struct{}
}

// Write takes output.
func (j *job) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.buffer = append(j.buffer, p...)
	if extra := len(j.buffer) - jobBuffer; extra > 0 {
		j.buffer = slices.Clone(j.buffer[extra:])
	}
	j.size += int64(len(p))
	close(j.changed)
	j.changed = make(chan struct{})
	return len(p), nil
}

func (s *clientSession) addProcess(server *sdk.Server) {
	add(s, server, "process", "Background processes", "Starts a shell line in the background, reads its output piece by piece, writes to its standard input, sends it a signal. "+
		"All of them end with the session.", runs,
		func(ctx context.Context, _ *sdk.CallToolRequest, in Process) (ProcessResult, string, bool, error) {
			r, err := s.process(ctx, in)
			if err != nil {
				return ProcessResult{Processes: []ProcessState{}}, "", false, err
			}
			var text strings.Builder
			for _, p := range r.Processes {
				fmt.Fprintf(&text, "[%s %s: ", p.ID, profile.Printable(p.Command))
				if p.Running {
					text.WriteString("running]\n")
				} else {
					fmt.Fprintf(&text, "%s, exit status %d]\n", p.Result.Outcome, p.Result.ExitCode)
				}
			}
			text.WriteString(r.Output)
			return r, text.String(), false, nil
		})
}

func (s *clientSession) process(ctx context.Context, in Process) (ProcessResult, error) {
	r := ProcessResult{Processes: []ProcessState{}}
	switch in.Action {
	case "start":
		j, err := s.startJob(in)
		if err != nil {
			return r, err
		}
		r.Processes = append(r.Processes, j.state())
		return r, nil
	case "list":
		s.mu.Lock()
		for _, j := range s.jobs {
			r.Processes = append(r.Processes, j.state())
		}
		s.mu.Unlock()
		slices.SortFunc(r.Processes, func(a, b ProcessState) int { return int(b.StartedMs - a.StartedMs) })
		if sh := s.theShell(); sh != nil {
			for _, job := range sh.process.Jobs() {
				r.Processes = append(r.Processes, ProcessState{ID: shellJob + strconv.Itoa(job.PID), Command: job.Command, Running: true})
			}
		}
		return r, nil
	case "poll", "write", "close", "signal":
	default:
		return r, fmt.Errorf("action %q is not start, poll, write, close, signal or list", in.Action)
	}
	if number, is := strings.CutPrefix(in.ID, shellJob); is && in.Action == "signal" {
		return r, s.signalShellJob(number, in.Signal)
	}
	s.mu.Lock()
	j := s.jobs[in.ID]
	s.mu.Unlock()
	if j == nil {
		return r, fmt.Errorf("there is no process %q", in.ID)
	}
	var err error
	switch in.Action {
	case "poll":
		if in.WaitSeconds < 0 || in.WaitSeconds > maxWait || in.Cursor < 0 {
			return r, fmt.Errorf("waitSeconds must be from 0 to %d, and the cursor not below 0", maxWait)
		}
		r.Output, r.Cursor, r.Lost = j.poll(ctx, in.Cursor, time.Duration(in.WaitSeconds)*time.Second)
	case "write":
		err = j.write(in.Input)
	case "close":
		err = j.closeInput()
	case "signal":
		err = j.signal(in.Signal)
	}
	r.Processes = append(r.Processes, j.state())
	return r, err
}

// shellJob begins the ids of what lines of the session's shell left in the background. Behind it is
// the process id that they see.
const shellJob = "shell-"

// theShell is the room's shell, if there is one.
func (s *clientSession) theShell() *shell {
	s.opening.Lock()
	rm := s.room
	s.opening.Unlock()
	if rm == nil {
		return nil
	}
	rm.mu.Lock()
	defer rm.mu.Unlock()
	return rm.shell
}

func (s *clientSession) signalShellJob(number, name string) error {
	signal, err := signalNamed(name)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(number)
	if sh := s.theShell(); err != nil || sh == nil || !sh.process.SignalJob(pid, signal) {
		return fmt.Errorf("there is no process %q", shellJob+number)
	}
	return nil
}

// signalNamed is a signal as a client names it.
func signalNamed(name string) (syscall.Signal, error) {
	if name == "" {
		name = "TERM"
	}
	number := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
	if number == 0 {
		return 0, fmt.Errorf("there is no signal %q", name)
	}
	return number, nil
}

func (j *job) state() ProcessState {
	state := ProcessState{ID: j.id, Command: j.command, Running: true, StartedMs: time.Since(j.started).Milliseconds()}
	select {
	case <-j.done:
		result := j.result
		state.Running, state.Result = false, &result
	default:
	}
	return state
}

func (s *clientSession) startJob(in Process) (*job, error) {
	if err := s.cannot(); err != nil {
		return nil, errors.New(explained(err))
	}
	c := command{line: in.Command, dir: in.Cwd}
	if in.Command == "" {
		return nil, errors.New("start wants a command")
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	id, err := s.reserveJob()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(s.ctx)
	j := &job{id: id, command: in.Command, started: time.Now(), cancel: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	err = s.launchJob(ctx, j, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launching--
	if err != nil {
		cancel()
		j.closeInput()
		return nil, err
	}
	s.jobs[id] = j
	return j, nil
}

// reserveJob counts one more job, and gives its id.
func (s *clientSession) reserveJob() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, j := range s.jobs { // those that have ended make room
		select {
		case <-j.done:
			if len(s.jobs)+s.launching >= maxJobs {
				delete(s.jobs, id)
			}
		default:
		}
	}
	if len(s.jobs)+s.launching >= maxJobs {
		return "", fmt.Errorf("%d processes are running already", maxJobs)
	}
	s.launching++
	s.nextJob++
	return fmt.Sprintf("p%d", s.nextJob), nil
}

// launchJob starts a job in the room, or without one in a sandbox of its own.
func (s *clientSession) launchJob(ctx context.Context, j *job, c command) error {
	stdin, input, err := os.Pipe()
	if err != nil {
		return err
	}
	j.input = input
	rm, _, err := s.theRoom()
	switch {
	case err != nil:
		stdin.Close()
		return err
	case rm != nil:
		return s.launchThere(ctx, rm, j, c, stdin)
	}
	return s.launch(ctx, j, c, stdin)
}

// launchThere starts a job in the room.
func (s *clientSession) launchThere(ctx context.Context, rm *room, j *job, c command, stdin *os.File) error {
	defer stdin.Close()
	c.argv = s.words(c, &rm.prepared.Plan)
	if !s.begin() {
		return errors.New("the session has ended")
	}
	st, write, err := newStream(j)
	if err != nil {
		s.running.Done()
		return err
	}
	dir := rm.directory(c.dir)
	p, err := rm.sandbox.Start(sandbox.Command{Argv: c.argv, Dir: dir, In: stdin, Out: write, Err: write})
	write.Close()
	if err != nil {
		st.close()
		s.running.Done()
		return err
	}
	j.send = func(number syscall.Signal) error {
		if !p.Signal(number) {
			return errors.New("it has ended")
		}
		return nil
	}
	go func() {
		defer s.running.Done()
		defer j.cancel()
		select {
		case <-p.Ended():
		case <-ctx.Done():
			endProcess(p)
		}
		r, err := p.Wait()
		st.turn(nil)
		rm.left.add(st)
		j.mu.Lock()
		captured := captured{size: j.size, tail: slices.Clone(j.buffer[max(0, len(j.buffer)-64<<10):])}
		j.mu.Unlock()
		switch {
		case errors.Is(err, sandbox.ErrSessionEnded):
			j.result = resultOf(sandbox.Result{Outcome: sandbox.Signalled, ExitCode: 128 + int(unix.SIGKILL), Signal: unix.SIGKILL}, captured)
		case err != nil:
			j.result = s.notRun(err)
		default:
			if ctx.Err() != nil {
				r.Outcome = sandbox.Cancelled
			}
			j.result = s.result(rm, c, r, captured, dir)
		}
		j.closeInput()
		close(j.done)
		j.Write(nil) // wakes who waits
	}()
	return nil
}

func (s *clientSession) launch(ctx context.Context, j *job, c command, stdin *os.File) error {
	group := &sandbox.Control{}
	j.send = group.Signal
	write, read, err := pipeTo(j)
	if err != nil {
		stdin.Close()
		return err
	}
	if !s.begin() {
		write.Close()
		stdin.Close()
		return errors.New("the session has ended")
	}
	go func() {
		defer s.running.Done()
		defer j.cancel()
		r := s.runWith(ctx, c, sandbox.Launcher{Control: group}, sandbox.Stdio{In: stdin, Out: write, Err: write}, func() captured {
			write.Close()
			stdin.Close()
			<-read
			j.mu.Lock()
			defer j.mu.Unlock()
			return captured{size: j.size, tail: slices.Clone(j.buffer[max(0, len(j.buffer)-64<<10):])}
		})
		j.closeInput()
		j.result = r
		close(j.done)
		j.Write(nil) // wakes who waits
	}()
	return nil
}

// poll reads on from a cursor. It waits until there is something to read, or the process has ended.
func (j *job) poll(ctx context.Context, cursor int64, wait time.Duration) (text string, next, lost int64) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		j.mu.Lock()
		begin := j.size - int64(len(j.buffer))
		from := min(max(cursor, begin), j.size)
		piece := slices.Clone(j.buffer[from-begin:][:min(int64(maxPoll), j.size-from)])
		changed := j.changed
		j.mu.Unlock()
		ended := false
		select {
		case <-j.done:
			ended = true
		default:
		}
		if len(piece) > 0 || ended || wait == 0 {
			return strings.ToValidUTF8(string(piece), "\uFFFD"), from + int64(len(piece)), max(from-cursor, 0)
		}
		select {
		case <-changed:
		case <-j.done:
		case <-timer.C:
			wait = 0
		case <-ctx.Done():
			wait = 0
		}
	}
}

func (j *job) write(text string) error {
	if len(text) > maxInput {
		return fmt.Errorf("input is longer than %d bytes", maxInput)
	}
	j.mu.Lock()
	input := j.input
	j.mu.Unlock()
	if input == nil {
		return errors.New("its standard input is closed")
	}
	input.SetWriteDeadline(time.Now().Add(10 * time.Second)) // it may not be reading
	n, err := io.WriteString(input, text)
	if err != nil {
		return fmt.Errorf("%d bytes were written: %w", n, err)
	}
	return nil
}

func (j *job) closeInput() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.input == nil {
		return nil
	}
	err := j.input.Close()
	j.input = nil
	return err
}

// signal sends a signal to the process that the shell line became. KILL ends all of it.
func (j *job) signal(name string) error {
	number, err := signalNamed(name)
	if err != nil {
		return err
	}
	select {
	case <-j.done:
		return errors.New("it has ended")
	default:
	}
	if number == unix.SIGKILL {
		j.cancel()
		return nil
	}
	return j.send(number)
}
