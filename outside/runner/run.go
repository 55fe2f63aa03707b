package runner

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/profile/variables"
)

// drainTimeout is how long output is still taken when a command has ended, and something that it
// started holds its outputs open.
const drainTimeout = 500 * time.Millisecond

// run runs what was decided. Right before, everything that the decision is bound to is looked at
// again. Its directory is the one that was looked at: the name may lead elsewhere a moment later.
func (r *Runner) run(ctx context.Context, q Request, d policy.Decision, m *policy.Machine) Answer {
	dir, err := holdDirectory(q.Cwd)
	if err != nil {
		return failed(ReasonChanged, err.Error())
	}
	defer unix.Close(dir)
	argv := d.Argv
	if argv == nil {
		argv = []string{m.Shell, "-c", d.Command}
	}
	program, err := m.Find(argv[0], q.Cwd)
	if err != nil {
		return failed(ReasonNotFound, err.Error())
	}
	command := &exec.Cmd{Path: program.Real, Args: argv, Dir: fmt.Sprintf("/proc/self/fd/%d", dir), Env: environment(r.Caller.Environ, m, q.Env, d.Shell),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	output, err := collect(command)
	if err != nil {
		return failed(ReasonRunner, err.Error())
	}
	defer output.close()
	if err := m.StillBound(d.BoundTo); err != nil {
		return failed(ReasonChanged, err.Error())
	}
	timeout := DefaultTimeout
	if q.TimeoutMs > 0 {
		timeout = time.Duration(q.TimeoutMs) * time.Millisecond
	}
	begin := time.Now()
	late, err := r.runs.run(ctx, command, timeout)
	if err != nil {
		return failed(ReasonRunner, err.Error())
	}
	answer := Answer{Status: Completed, ExitCode: exitCode(command.ProcessState), TookMs: time.Since(begin).Milliseconds()}
	if late {
		answer.Status = TimedOut
	}
	output.into(&answer)
	return answer
}

// holdDirectory opens a directory that is where its path says, and behind no link.
func holdDirectory(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil || at != path {
		unix.Close(fd)
		return -1, &policy.ChangedError{What: "the working directory"}
	}
	return fd, nil
}

func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// environment is what the command starts with, as a list. It looks for programs where the policy
// does, and no variable that tells it what to trust or to log in with (KUBECONFIG, AWS_CONFIG_FILE)
// leads to a file that a command in a sandbox could have made.
func environment(inherited []string, m *policy.Machine, overrides map[string]string, shell bool) []string {
	have := map[string]string{}
	for _, pair := range inherited {
		if name, value, _ := strings.Cut(pair, "="); !ledAstray(name, value, m.Planted) {
			have[name] = value
		}
	}
	have["PATH"] = strings.Join(m.Path, string(os.PathListSeparator))
	env := policy.Environment(have, overrides, shell)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// ledAstray reports whether a variable that chooses files for programs names one that a command in
// a sandbox could have made.
func ledAstray(name, value string, planted func(string) bool) bool {
	switch name {
	case "HOME", "PWD", "OLDPWD": // who and where this is
		return false
	}
	if planted == nil || !variables.Is(strings.ToUpper(name), variables.Kept) {
		return false
	}
	// Lists of paths, and addresses such as unix:///x and unix:path=/x,guid=y.
	for _, path := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(":;,=", r) }) {
		if filepath.IsAbs(path) && planted(filepath.Clean(path)) {
			return true
		}
	}
	return false
}

// An output takes what a command writes.
type output struct {
	mu      sync.Mutex
	have    policy.Output
	ours    []*os.File // the ends that are read
	theirs  []*os.File
	reading sync.WaitGroup
}

// collect gives a command pipes for its outputs.
func collect(c *exec.Cmd) (*output, error) {
	o := &output{}
	for i := range 2 {
		read, write, err := os.Pipe()
		if err != nil {
			o.close()
			return nil, err
		}
		o.ours, o.theirs = append(o.ours, read), append(o.theirs, write)
		o.reading.Go(func() {
			buffer := make([]byte, 32<<10)
			for {
				n, err := read.Read(buffer)
				o.mu.Lock()
				o.have.Add(i == 1, buffer[:n])
				o.mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	c.Stdout, c.Stderr = o.theirs[0], o.theirs[1]
	return o, nil
}

// into waits for the end of the outputs, for a moment: a process in the background may hold them
// open for good.
func (o *output) into(a *Answer) {
	for _, f := range o.theirs {
		f.Close()
	}
	over := make(chan struct{})
	go func() { o.reading.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(drainTimeout):
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	a.Stdout, a.Stderr, a.Truncated = slices.Clone(o.have.Stdout), slices.Clone(o.have.Stderr), o.have.Truncated
}

func (o *output) close() {
	for _, f := range append(o.ours, o.theirs...) {
		f.Close()
	}
}
