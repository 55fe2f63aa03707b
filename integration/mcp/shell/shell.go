// Package shell is a shell that stays: a program inside the sandbox of a session that runs one line after the other, and keeps the
// working directory and the exported variables from one to the next. It imports the standard library alone.
package shell

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Place is where a sandbox has the program.
const Place = "/run/clai-sandbox/shell"

// A Request is a line to run, or the end of one that runs.
type Request struct {
	ID      int    `json:"id"`
	Command string `json:"command,omitempty"`
	Dir     string `json:"dir,omitempty"` // empty: where the last one ended
	Cancel  bool   `json:"cancel,omitempty"`
}

// An Event is output of a line, or its end.
type Event struct {
	ID       int    `json:"id"`
	Output   []byte `json:"output,omitempty"`
	Done     bool   `json:"done,omitempty"`
	ExitCode int    `json:"exitCode,omitempty"` // 128+N if signal N ended it
	Error    string `json:"error,omitempty"`    // why it was not run
}

// grace is the time between SIGTERM and SIGKILL.
const grace = 2 * time.Second

// script runs a line with what the last one left, and leaves what there is then. A line that executes another program in the shell's
// place, or is killed, leaves nothing.
const script = `__clai_state=$1 __clai_line=$2; shift 2
[ -r "$__clai_state" ] && . "$__clai_state"
trap '__clai_code=$?; trap - EXIT; export -p >"$__clai_state.new" && printf "%s" "$PWD" >"$__clai_state.dir" && mv "$__clai_state.new" "$__clai_state"; exit $__clai_code' EXIT
eval "$__clai_line"`

// Program is the shell. It ends with its input.
func Program(in io.Reader, out io.Writer) int {
	dir, err := os.MkdirTemp("", ".shell-")
	if err != nil {
		return 1
	}
	defer os.RemoveAll(dir)
	p := &program{out: json.NewEncoder(out), state: filepath.Join(dir, "state")}
	requests := json.NewDecoder(in)
	for {
		var r Request
		if err := requests.Decode(&r); err != nil {
			p.cancelAll()
			return 0
		}
		if r.Cancel {
			p.cancel(r.ID)
			continue
		}
		p.begin(r.ID)
		go p.run(r)
	}
}

type program struct {
	state string
	turn  sync.Mutex // one line at a time: it is one shell

	mu      sync.Mutex
	out     *json.Encoder
	running map[int]func() // how to end each
}

func (p *program) say(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Encode(e)
}

func (p *program) begin(id int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		p.running = map[int]func(){}
	}
	p.running[id] = func() {}
}

func (p *program) cancel(id int) {
	p.mu.Lock()
	end, known := p.running[id]
	delete(p.running, id) // one that has not begun does not
	p.mu.Unlock()
	if known {
		end()
	}
}

func (p *program) cancelAll() {
	p.mu.Lock()
	list := p.running
	p.running = nil
	p.mu.Unlock()
	for _, end := range list {
		end()
	}
}

func (p *program) run(r Request) {
	p.turn.Lock()
	defer p.turn.Unlock()
	dir := r.Dir
	if dir == "" {
		if text, err := os.ReadFile(p.state + ".dir"); err == nil {
			dir = string(text)
		}
	}
	if info, err := os.Stat(dir); dir != "" && (err != nil || !info.IsDir()) {
		if r.Dir != "" {
			p.say(Event{ID: r.ID, Done: true, ExitCode: -1, Error: "cwd: no such directory"})
			return
		}
		dir = "" // it is gone meanwhile
	}
	cmd := exec.Command("/bin/sh", "-lc", script, "sh", p.state, r.Command)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	writer := eventWriter{p, r.ID}
	cmd.Stdout, cmd.Stderr = writer, writer
	cmd.WaitDelay = 500 * time.Millisecond // for what was left in the background and holds the output
	p.mu.Lock()
	_, wanted := p.running[r.ID]
	var err error
	if wanted {
		if err = cmd.Start(); err == nil {
			group := cmd.Process.Pid
			p.running[r.ID] = func() {
				syscall.Kill(-group, syscall.SIGTERM)
				syscall.Kill(-group, syscall.SIGCONT)
				time.AfterFunc(grace, func() { syscall.Kill(-group, syscall.SIGKILL) })
			}
		}
	}
	p.mu.Unlock()
	switch {
	case !wanted:
		p.say(Event{ID: r.ID, Done: true, ExitCode: -1, Error: "cancelled"})
		return
	case err != nil:
		p.say(Event{ID: r.ID, Done: true, ExitCode: -1, Error: err.Error()})
		return
	}
	err = cmd.Wait()
	p.mu.Lock()
	delete(p.running, r.ID)
	p.mu.Unlock()
	p.say(Event{ID: r.ID, Done: true, ExitCode: exitCode(cmd, err)})
}

func exitCode(cmd *exec.Cmd, err error) int {
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) && !errors.Is(err, exec.ErrWaitDelay) {
		return -1
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// eventWriter turns output into events, piece by piece.
type eventWriter struct {
	p  *program
	id int
}

func (w eventWriter) Write(piece []byte) (int, error) {
	w.p.say(Event{ID: w.id, Output: piece})
	return len(piece), nil
}
