package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/integration/rooms"
	"github.com/clairun/clai-sandbox/integration/shell"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// shellName is this program as what an agent has in place of its shell.
const shellName = "clai-shell"

const shellUsage = `usage: clai-shell [--agent NAME] LINE
       clai-shell [--agent NAME] -c LINE [NAME [ARGUMENT…]]     or as any other shell is started
       clai-shell [--agent NAME] --hook                         answers the hook of an agent before it runs a command

An agent's shell: what it is given runs in the agent's sandbox, which is that of clai-sandbox run in the agent's working directory. It begins
with the agent's first line and ends with the agent. Where that cannot be, it says why, exits with 125, and runs nothing.
`

// shellProgram runs a line of an agent's. It returns the exit status. Under its own name it takes
// what other shells do not.
func shellProgram(name string, args []string) int {
	agent, hook := "", false
	for name == shellName && len(args) > 0 && !hook {
		value, is := strings.CutPrefix(args[0], "--agent=")
		switch {
		case is:
			agent, args = value, args[1:]
			continue
		case args[0] == "--agent" && len(args) > 1:
			agent, args = args[1], args[2:]
			continue
		case args[0] == "--hook":
			hook, args = true, args[1:]
			continue
		case args[0] == "--help":
			fmt.Print(shellUsage)
			return 0
		}
		break
	}
	if hook {
		return hookProgram(agent, args)
	}
	line := shell.Line(args)
	if name != shellName && len(args) == 1 { // a file, as for any shell
		line = -1
	} else if line == 0 {
		args, line = []string{"-c", args[0]}, 1
	}
	// Where there is a door, nothing runs on this side of it.
	if _, err := os.Lstat(sandbox.CommandSocket); err == nil || !errors.Is(err, os.ErrNotExist) {
		status, err := throughDoor(args, line)
		if err != nil {
			return shellFailed(err)
		}
		return status
	}
	if shown, err := insideAlready(); shown || err != nil {
		for _, path := range []string{"/bin/bash", "/bin/sh"} {
			if err == nil || errors.Is(err, os.ErrNotExist) {
				err = unix.Exec(path, append([]string{path}, args...), os.Environ())
			}
		}
		return shellFailed(err)
	}
	status, err := inAgentsSandbox(agent, args, line)
	if err != nil {
		return shellFailed(err)
	}
	return status
}

// shellFailed says why nothing was run.
func shellFailed(err error) int {
	fmt.Fprintln(os.Stderr, shellName+": "+explainError(err))
	return statusFor(err)
}

// insideAlready reports whether this process is in a sandbox of ours that shows it a shell, so that
// there is none to begin. It is believed by what only who may mount can make: the program's own
// file, mounted where a sandbox has it.
func insideAlready() (bool, error) {
	var there unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, insideShell, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &there); err != nil {
		return false, nil
	}
	if there.Attributes_mask&there.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, nil
	}
	return true, nil
}

// insideShell is where a sandbox that an agent works in has this program.
const insideShell = "/run/clai-sandbox/" + shellName

// aCommand is what an agent gave its shell, as a command of a sandbox. Where its line ends by
// noting the directory, note is the agent's file for that, and the command tells the directory by a
// pipe.
func aCommand(given []string, line int) (c rooms.Command, note string, err error) {
	if c.Dir, err = os.Getwd(); err != nil {
		return c, "", &sandbox.SetupError{Why: "the working directory: " + err.Error(), Hint: "change to one that exists"}
	}
	given = slices.Clone(given)
	if line >= 0 {
		given[line], note = shell.TakeNote(given[line], []string{os.TempDir(), os.Getenv("CLAUDE_CODE_TMPDIR"), "/tmp"})
		if note != "" {
			given[line] = shell.Noting(given[line], fmt.Sprint(rooms.ExtraFD))
		}
	}
	c.Argv = append([]string{""}, given...)
	return c, note, nil
}

// runNoted runs a command, and writes the agent's note of the directory in which it ended.
func runNoted(c rooms.Command, note string, run func(rooms.Command) (int, error)) (int, error) {
	status, said, err := noted(note != "", func(extra *os.File) (int, error) {
		c.Extra = extra
		return run(c)
	})
	if err == nil && note != "" {
		if to, is := shell.Directory(said, filepath.EvalSymlinks, isDirectory); is {
			err = shell.WriteNote(note, to)
		}
	}
	return status, err
}

// throughDoor runs what an agent in a sandbox gave its shell in the sandbox of its commands.
func throughDoor(given []string, line int) (int, error) {
	c, note, err := aCommand(given, line)
	if err != nil {
		return 0, err
	}
	// It stands where the agent looked for a shell: the commands' sandbox has that one there.
	if self, err := os.Executable(); err == nil && shell.Is(self) {
		c.Argv[0] = self
	}
	if line >= 0 {
		c.Argv[line+1] = shell.WithoutJobs(c.Argv[line+1])
	}
	start := func(c rooms.Command) (*rooms.Started, error) { return rooms.StartThrough(sandbox.CommandSocket, c) }
	status := 0
	for attempt := 0; ; attempt++ {
		status, err = runNoted(c, note, func(c rooms.Command) (int, error) { return joinPipes(start, c) })
		if attempt < 2 && errors.Is(err, rooms.ErrUnknown) { // it has ended; the next begins
			continue
		}
		break
	}
	return notStarted(status, err)
}

// notStarted tells why a command was not run, and returns the status for that.
func notStarted(status int, err error) (int, error) {
	var start *rooms.StartError
	if errors.As(err, &start) {
		fmt.Fprintln(os.Stderr, shellName+": "+oneLine(err.Error()))
		return max(start.Status, 1), nil
	}
	return status, err
}

// inAgentsSandbox runs what an agent gave its shell, in the agent's sandbox.
func inAgentsSandbox(agent string, given []string, line int) (int, error) {
	owner, err := shell.OwnerOf(os.Getpid())
	if err != nil {
		return 0, &sandbox.SetupError{Why: "find the agent that this line is from: " + err.Error(), Hint: "let an agent start " + shellName + ", or use clai-sandbox run"}
	}
	c, note, err := aCommand(given, line)
	if err != nil {
		return 0, err
	}
	if err := asStarted(owner); err != nil {
		return 0, err
	}
	dir, err := roomsDirectory()
	if err != nil {
		return 0, err
	}
	join := joinPipes
	if isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		join = joinTerminal
	}
	ended := ""
	for attempt := 0; ; attempt++ {
		id := shell.Found(dir, owner)
		if id == "" || id == ended {
			if id, err = beginAgentsSandbox(dir, agent, owner, ended); err != nil {
				return 0, err
			}
		}
		status, err := runNoted(c, note, func(c rooms.Command) (int, error) {
			return join(func(c rooms.Command) (*rooms.Started, error) { return rooms.Start(dir, id, c) }, c)
		})
		if attempt < 2 && errors.Is(err, rooms.ErrUnknown) { // it has ended
			ended = id
			continue
		}
		return notStarted(status, err)
	}
}

// asStarted gives this process the environment in which the agent was started. By what the agent
// has read since, a project would choose which configuration is believed, where bwrap is, and what
// a gateway that is started has for commands outside.
func asStarted(owner shell.Owner) error {
	environ, err := owner.Environment()
	if err != nil {
		return &sandbox.SetupError{Why: err.Error(), Hint: "start the agent anew"}
	}
	if environ == nil {
		return nil
	}
	os.Clearenv()
	for _, entry := range environ {
		if name, value, is := strings.Cut(entry, "="); is && name != "" {
			os.Setenv(name, value)
		}
	}
	return nil
}

func isDirectory(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// noted runs something that has a pipe to tell something by, and returns what it told, which is
// little.
func noted(does bool, run func(extra *os.File) (int, error)) (status int, said []byte, err error) {
	if !does {
		status, err = run(nil)
		return status, nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer read.Close()
	tells := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(read, 1<<13))
		tells <- text
	}()
	status, err = run(write)
	write.Close()
	read.SetReadDeadline(time.Now().Add(lastWords)) // something that it left may have the other end
	return status, <-tells, err
}

// beginTimeout bounds the wait for a sandbox, and for the gateway that may have to be started for
// it.
const beginTimeout = 60 * time.Second

// maxBegun bounds what is said of a sandbox that begins.
const maxBegun = 16 << 10

// beginAgentsSandbox has another process begin the owner's sandbox, unless there is one but that
// which has ended, and returns its name.
func beginAgentsSandbox(dir, agent string, owner shell.Owner, ended string) (string, error) {
	unlock, err := shell.Lock(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	if id := shell.Found(dir, owner); id != "" && id != ended {
		if _, err := rooms.Show(dir, id); err == nil {
			return id, nil
		}
	}
	// What the agent has open is nobody else's.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return "", err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer null.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer read.Close()
	process, err := os.StartProcess("/proc/self/exe", []string{holderName, agent, fmt.Sprint(owner.PID), fmt.Sprint(owner.Began), owner.Directory, owner.Program},
		&os.ProcAttr{Dir: "/", Env: os.Environ(), Files: []*os.File{null, null, null, write}, Sys: &unix.SysProcAttr{Setsid: true}})
	write.Close()
	if err != nil {
		return "", err
	}
	read.SetReadDeadline(time.Now().Add(beginTimeout))
	text, err := io.ReadAll(io.LimitReader(read, maxBegun))
	id, rest, _ := strings.Cut(string(text), "\n")
	switch {
	case err != nil:
		process.Kill()
		return "", &sandbox.SetupError{Why: "the agent's sandbox does not begin: " + err.Error(), Hint: "try again"}
	case id == "":
		return "", errors.New(strings.TrimSpace(rest)) // with what mends it
	}
	fmt.Fprintln(os.Stderr, "clai-sandbox: "+oneLine(strings.TrimSpace(rest)))
	process.Release()
	return id, nil
}

// told tells what there is to tell after a command in a sandbox that stays.
func told(notices []string) {
	for _, n := range notices {
		fmt.Fprintln(os.Stderr, "clai-sandbox: "+oneLine(n))
	}
}

// shellIn is the shell of a sandbox that stays: the person's, if lines for a usual shell mean in it
// what they say.
func (j job) shellIn() string {
	for _, path := range []string{os.Getenv("SHELL"), "/bin/bash", "/usr/bin/bash"} {
		switch filepath.Base(path) {
		case "bash", "zsh", "sh":
			if filepath.IsAbs(path) && j.plan.Find(sandbox.Host{}, path) == nil && profile.Printable(path) == path {
				return path
			}
		}
	}
	return "/bin/sh"
}
