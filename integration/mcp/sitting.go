package mcp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/integration/instructions"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/sandbox"
)

// A sitting is one client's.
type sitting struct {
	options Options
	session *session.Session
	tmp     string // /tmp, on the host
	lock    *os.File
	bwrap   sandbox.Bwrap
	ctx     context.Context // ends with the sitting
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu          sync.Mutex
	unavailable error // why nothing can be run
	jobs        map[string]*job
	nextJob     int
	asks        map[askKey]*ask
	denied      map[string]bool // paths of which the agent has been told that they were denied
	shell       *sessionShell   // with Options.SessionSandbox
	closed      bool
}

// sitting is one that has not begun.
func (o Options) sitting(ctx context.Context) *sitting {
	s := &sitting{options: o, jobs: map[string]*job{}, asks: map[askKey]*ask{}, denied: map[string]bool{}}
	s.ctx, s.cancel = context.WithCancel(ctx)
	var err error
	if s.bwrap, err = sandbox.FindBwrap(o.Bwrap, o.Session.Caller.Directories().State); err != nil {
		s.unavailable = err
	}
	return s
}

// open begins a sitting.
func (o Options) open(ctx context.Context) (*sitting, error) {
	s := o.sitting(ctx)
	return s, s.begun()
}

// begun begins the sitting, if that has not been done.
func (s *sitting) begun() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("the session has ended")
	case s.session != nil:
		return nil
	}
	options := s.options.Session
	tmp, lock, err := newTmp(options.Caller.Directories().State)
	if err != nil {
		return fmt.Errorf("a private /tmp: %w", err)
	}
	options.PrivateTmp = tmp
	opened, err := session.Open(s.ctx, options)
	if err != nil {
		removeTmp(tmp)
		lock.Close()
		os.Remove(tmp + ".lock")
		return err
	}
	s.tmp, s.lock, s.session = tmp, lock, opened
	return nil
}

// unused reports whether nothing has been done in it.
func (s *sitting) unused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session == nil
}

// close ends everything of the sitting.
func (s *sitting) close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return
	}
	s.cancel()
	s.running.Wait()
	if s.session != nil {
		s.session.Close()
		removeTmp(s.tmp)
		s.lock.Close()
		os.Remove(s.tmp + ".lock")
	}
}

// cannot says why nothing can be run, if nothing can.
func (s *sitting) cannot() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unavailable
}

// about describes the sandbox to the agent.
func (s *sitting) about() string {
	if err := s.cannot(); err != nil {
		return instructions.Text(instructions.About{Unavailable: explained(err)})
	}
	options := s.options.Session
	options.Broker = nil
	now, err := session.Open(s.ctx, options)
	if err != nil {
		return instructions.Text(instructions.About{Unavailable: explained(err)})
	}
	defer now.Close()
	prepared, err := now.Prepare(nil)
	if err != nil {
		return instructions.Text(instructions.About{Unavailable: explained(err)})
	}
	// That bwrap is there does not say that the kernel lets it work.
	if err := sandbox.Works(s.ctx, prepared.Plan, sandbox.Launcher{Bwrap: s.bwrap}); err != nil {
		return instructions.Text(instructions.About{Unavailable: explained(err)})
	}
	return instructions.Text(instructions.About{Profile: prepared.Profile, Plan: &prepared.Plan, CanAsk: s.options.Session.Broker != nil})
}

// explained is an error with what mends it.
func explained(err error) string {
	var unavailable *sandbox.UnavailableError
	var setup *sandbox.SetupError
	var command *sandbox.CommandError
	text, hint := err.Error(), ""
	switch {
	case errors.As(err, &unavailable):
		hint = unavailable.Hint
	case errors.As(err, &setup):
		hint = setup.Hint
	case errors.As(err, &command):
		hint = command.Hint
	}
	if hint != "" {
		text += "; " + hint
	}
	return text
}

// sittingsName is the directory of the sittings' private files, in the state directory.
const sittingsName = "sittings"

// newTmp makes a directory to stand at /tmp, and clears those that a killed server left: nobody holds their locks.
func newTmp(state string) (string, *os.File, error) {
	base := filepath.Join(state, sittingsName)
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", nil, err
	}
	// One at a time, so that none is taken for left before it is locked.
	turn, err := os.Open(base)
	if err != nil {
		return "", nil, err
	}
	defer turn.Close()
	if err := unix.Flock(int(turn.Fd()), unix.LOCK_EX); err != nil {
		return "", nil, err
	}
	sweep(base)
	dir, err := os.MkdirTemp(base, "s-")
	if err != nil {
		return "", nil, err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = os.Chmod(dir, 0o700|os.ModeSticky)
	}
	if err != nil {
		os.Remove(dir)
		return "", nil, err
	}
	return dir, lock, nil
}

func sweep(base string) {
	entries, _ := os.ReadDir(base)
	for _, entry := range entries {
		dir, isLock := strings.CutSuffix(filepath.Join(base, entry.Name()), ".lock")
		if !isLock {
			continue
		}
		lock, err := os.OpenFile(dir+".lock", os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			removeTmp(dir)
			os.Remove(dir + ".lock")
		}
		lock.Close()
	}
}

// removeTmp takes a directory away that commands have filled, also where they made one that cannot be listed.
func removeTmp(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() {
			root.Chmod(path, 0o700)
		}
		return nil
	})
	root.Close()
	os.RemoveAll(dir)
}
