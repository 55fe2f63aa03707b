package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/aside"
)

// A Starter starts the broker's program where nothing else, such as systemd, does so on demand.
type Starter struct {
	Program string
	Args    []string
	Socket  string
	Log     string // takes what the program says
}

// startTimeout is how long a broker may take until it listens.
const startTimeout = 10 * time.Second

// daemonName is the program with the long-running modes. It is installed beside the command.
const daemonName = "clai-sandboxd"

// Default is the caller's broker, started if it does not run.
func Default(d profile.Directories) *Client {
	socket := filepath.Join(grants.SocketDirectory(d), grants.SocketName)
	return &Client{Socket: socket, Start: func(ctx context.Context) error {
		program, err := Beside(daemonName)
		if err != nil {
			return err
		}
		return Starter{Program: program, Args: []string{"gateway"}, Socket: socket, Log: filepath.Join(d.State, "gateway.log")}.Start(ctx)
	}}
}

// Beside finds a program of ours in the directory of this one.
func Beside(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	program := filepath.Join(filepath.Dir(self), name)
	if info, err := os.Stat(program); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return "", &grants.UnavailableError{Why: program + " is not there", Hint: "install it beside clai-sandbox"}
	}
	return program, nil
}

// Start starts the program in a session of its own, so that it outlives the terminal, and returns
// when it listens. Of two that are started at once, one ends, and either may be the one that
// answers.
func (s Starter) Start(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(s.Log), 0o700); err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	said, begin, err := openLog(s.Log)
	if err != nil { // to start it, and revoke with it, matters more than what it says
		if said, err = unnamedLog(); err != nil {
			return fmt.Errorf("start the broker: %w", err)
		}
	}
	defer said.Close()
	for deadline := time.Now().Add(startTimeout); ; {
		err := s.once(ctx, null, said, begin, deadline)
		if err != errCameAndWent {
			return err
		}
	}
}

// errCameAndWent means that what was started has ended well, and nobody listens: it, or the one
// that ran already, was needed by nobody for too long.
var errCameAndWent = errors.New("the gateway was started and has ended again")

// againPause is how long to wait for another one that may be about to listen.
const againPause = 100 * time.Millisecond

func (s Starter) once(ctx context.Context, null, said *os.File, begin int64, deadline time.Time) error {
	process, err := os.StartProcess(s.Program, append([]string{s.Program}, s.Args...), &os.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []*os.File{null, null, said}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	ended := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := process.Wait()
		ended <- state
	}()
	return s.wait(ctx, ended, func() string { return tail(said, begin) }, deadline)
}

// wait returns when somebody listens, or nobody will.
func (s Starter) wait(ctx context.Context, ended <-chan *os.ProcessState, said func() string, deadline time.Time) error {
	var again <-chan time.Time
	for {
		if conn, err := dial(ctx, s.Socket); err == nil {
			conn.Close()
			return nil
		}
		select {
		case state := <-ended:
			if state == nil || !state.Success() { // else another one runs
				return &grants.UnavailableError{Why: "the broker did not start: " + said(), Hint: "try it in a terminal: clai-sandbox gateway"}
			}
			ended, again = nil, time.After(againPause)
		case <-again:
			return errCameAndWent
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return &grants.UnavailableError{Why: fmt.Sprintf("the broker did not listen within %v: %s", startTimeout, said()), Hint: "try it in a terminal: clai-sandbox gateway"}
		}
	}
}

// openLog opens the log, and says where in it what is said from now on begins.
func openLog(path string) (log *os.File, begin int64, err error) {
	if err := aside.UnlessFile(path); err != nil {
		return nil, 0, err
	}
	if log, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600); err != nil {
		return nil, 0, err
	}
	if begin, err = trim(log); err == nil {
		err = haveRoom(log, begin)
	}
	if err != nil {
		log.Close()
	}
	return log, begin, err
}

// logRoom is what a broker may need to say why it does not start.
const logRoom = 4 << 10

// haveRoom makes sure that the log can take something: on a full disk nobody would hear why the
// broker does not start.
func haveRoom(log *os.File, begin int64) error {
	err := unix.Fallocate(int(log.Fd()), unix.FALLOC_FL_KEEP_SIZE, begin, logRoom)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return err
	}
	return nil // some file systems keep no room
}

// unnamedLog takes what a broker says where there can be no log: in memory, for who starts it.
func unnamedLog() (*os.File, error) {
	fd, err := unix.MemfdCreate("gateway.log", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "gateway.log"), nil
}

// maxLog bounds what is kept of what brokers said.
const maxLog = 1 << 20

func trim(log *os.File) (size int64, err error) {
	info, err := log.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, &fs.PathError{Op: "log", Path: log.Name(), Err: errors.New("not a regular file")}
	}
	if info.Size() > maxLog {
		return 0, log.Truncate(0)
	}
	return info.Size(), nil
}

// tail is the beginning of what was said since, in one line.
func tail(log *os.File, begin int64) string {
	text, _ := io.ReadAll(io.NewSectionReader(log, begin, 500))
	if len(text) == 0 {
		return "it said nothing"
	}
	return profile.Printable(string(text[:len(text)-1]))
}
