package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/sandbox"
)

// A sandbox workspace is what sessions work in that may not write their agent's. It lies in the
// state, in a directory with what it is of and a lock: whoever uses it holds the lock, shared, and
// who removes it wants it alone.
//
//	sandboxes/NAME/lock           its time is that of the last use
//	sandboxes/NAME/sandbox.json   see aboutWorkspace
//	sandboxes/NAME/workspace      what stands at /workspace

type workspace struct {
	mu   sync.Mutex
	dir  string // what stands at /workspace
	lock int
}

// aboutWorkspace says what a sandbox workspace is of.
type aboutWorkspace struct {
	ScopeKey string `json:"scopeKey"`
	Agent    string `json:"agent,omitempty"` // none if all share it
	Made     int64  `json:"madeAtUnixMs"`
}

const (
	sandboxesName = "sandboxes"
	aboutName     = "sandbox.json"
	workspaceName = "workspace"
	lockName      = "lock"
)

func (w *workspace) directory() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dir
}

// openWorkspace makes the sandbox workspace of the session that commands are for, if they are to
// have one, and keeps it until the end.
func (s *Session) openWorkspace(p *profile.Profile) error {
	s.work.mu.Lock()
	defer s.work.mu.Unlock()
	if !p.OwnsWorkspace() {
		return nil
	}
	if s.work.dir == "" {
		dir := filepath.Join(s.state, sandboxesName, p.Session.SandboxName())
		about := aboutWorkspace{ScopeKey: p.Session.ScopeKey, Agent: p.Agent, Made: time.Now().UnixMilli()}
		if p.Session.Scope == profile.ScopeShared {
			about.Agent = ""
		}
		lock, err := takeWorkspace(s.state, dir, about)
		if err != nil {
			return &sandbox.SetupError{Path: profile.SandboxWorkspace, Why: fmt.Sprintf("the session's own workspace (%s) cannot be used: %v", profile.Printable(dir), err),
				Hint: "make room or mend its directory, or let the command write the workspace: --workspace-access rw or cow"}
		}
		s.work.lock, s.work.dir = lock, filepath.Join(dir, workspaceName)
		if s.options.Config.Bootstraps(p.Agent) {
			for _, problem := range seed(p, s.work.dir) {
				s.notice(sandbox.Notice{Kind: sandbox.NoticePathLeftOut, Path: problem.path, Text: "not copied into the session's own workspace: " + profile.Printable(problem.path) + ": " + problem.why})
			}
		}
	}
	p.SandboxWorkspace = s.work.dir
	return nil
}

// takeWorkspace takes a sandbox workspace, and makes it if it is not there.
func takeWorkspace(state, dir string, about aboutWorkspace) (int, error) {
	for range 100 { // it may be removed between two steps
		err := makeOwn(state, filepath.Join(dir, workspaceName))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		name := filepath.Join(dir, lockName)
		lock, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return 0, err
		}
		if err := unix.Flock(lock, unix.LOCK_SH); err != nil {
			unix.Close(lock)
			return 0, err
		}
		if !isAt(lock, name) || os.MkdirAll(filepath.Join(dir, workspaceName), 0o700) != nil {
			unix.Close(lock)
			continue
		}
		if err := about.hold(dir); err != nil {
			unix.Close(lock)
			return 0, err
		}
		_ = unix.UtimesNanoAt(lock, "", nil, unix.AT_EMPTY_PATH)
		return lock, nil
	}
	return 0, errors.New("it is removed again and again")
}

// isAt reports whether an open file still is the one with a name.
func isAt(fd int, name string) bool {
	var open, there unix.Stat_t
	return unix.Fstat(fd, &open) == nil && unix.Lstat(name, &there) == nil && open.Ino == there.Ino && open.Dev == there.Dev
}

// hold writes down what a sandbox workspace is of, or makes sure that it is of the same.
func (a aboutWorkspace) hold(dir string) error {
	was, err := readAbout(dir)
	if err == nil && was.ScopeKey != a.ScopeKey {
		return fmt.Errorf("it is of %s", profile.Printable(was.ScopeKey))
	}
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, aboutName+".*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), filepath.Join(dir, aboutName)) // of several at once, each writes the same but for the time
}

func readAbout(dir string) (about aboutWorkspace, err error) {
	text, err := os.ReadFile(filepath.Join(dir, aboutName))
	if err == nil {
		err = json.Unmarshal(text, &about)
	}
	return about, err
}

// bootstrapNames are the files of an agent's workspace that tell it who it is and how to work: a
// sandbox workspace gets a copy of each that it has not.
var bootstrapNames = []string{"AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "BOOTSTRAP.md", "HEARTBEAT.md"}

// maxBootstrap bounds one of them, in bytes.
const maxBootstrap = 1 << 20

type unseeded struct{ path, why string }

// seed copies what is missing. Both directories may be ones that commands have written: no link is
// followed in either, and nothing that hides is copied.
func seed(p *profile.Profile, dir string) (problems []unseeded) {
	from, err := unix.Open(p.Workspace, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // the plan tells
	}
	defer unix.Close(from)
	to, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return []unseeded{{dir, reasonOf(err).Error()}}
	}
	defer unix.Close(to)
	var hidden []string
	for _, h := range p.Hidden {
		hidden = append(hidden, h.Path)
		if real, err := filepath.EvalSymlinks(h.Path); err == nil {
			hidden = append(hidden, real)
		}
	}
	real, _ := filepath.EvalSymlinks(p.Workspace)
	for _, name := range bootstrapNames {
		path := filepath.Join(p.Workspace, name)
		var there unix.Stat_t
		if unix.Fstatat(to, name, &there, unix.AT_SYMLINK_NOFOLLOW) == nil ||
			slices.ContainsFunc(hidden, func(h string) bool { return profile.Within(path, h) || profile.Within(filepath.Join(real, name), h) }) {
			continue
		}
		if err := copyMissing(from, to, name); err != nil && err != unix.ENOENT && err != unix.EEXIST {
			problems = append(problems, unseeded{path, reasonOf(err).Error()})
		}
	}
	return problems
}

// copyMissing copies a regular file between two directories, whole, where none of its name is.
func copyMissing(from, to int, name string) error {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH}
	source, err := unix.Openat2(from, name, &how)
	if err == unix.ELOOP {
		return errors.New("a symbolic link")
	}
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(source), name)
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, errors.New("not a regular file"))
	}
	text, err := io.ReadAll(io.LimitReader(file, maxBootstrap+1))
	if err == nil && len(text) > maxBootstrap {
		err = fmt.Errorf("larger than %d bytes", maxBootstrap)
	}
	if err != nil {
		return err
	}
	fresh := fmt.Sprintf(".%s.%d", name, os.Getpid())
	fd, err := unix.Openat(to, fresh, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	copied := os.NewFile(uintptr(fd), fresh)
	_, err = copied.Write(text)
	if err = errors.Join(err, copied.Close()); err == nil {
		err = unix.Renameat2(to, fresh, to, name, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		unix.Unlinkat(to, fresh, 0)
	}
	return err
}

// closeWorkspace gives the sandbox workspace back, and removes those whose time is over.
func (s *Session) closeWorkspace() {
	s.work.mu.Lock()
	lock := s.work.lock
	s.work.lock, s.work.dir = 0, ""
	s.work.mu.Unlock()
	if lock == 0 {
		return
	}
	_ = unix.UtimesNanoAt(lock, "", nil, unix.AT_EMPTY_PATH)
	unix.Close(lock)
	prune(s.state, s.options.Config, time.Now(), pruneEvery)
}

const (
	pruneEvery = 5 * time.Minute
	// maxPruned bounds how many one session removes: the person waits for it.
	maxPruned = 16
)

// prune removes sandbox workspaces that nobody uses and whose time is over, if that has not been
// done for a while.
func prune(state string, config *profile.Config, now time.Time, every time.Duration) {
	all := filepath.Join(state, sandboxesName)
	stamp := filepath.Join(all, ".pruned")
	if info, err := os.Lstat(stamp); err == nil && now.Sub(info.ModTime()) < every && now.After(info.ModTime()) {
		return
	}
	if err := os.WriteFile(stamp, nil, 0o600); err != nil || os.Chtimes(stamp, now, now) != nil {
		return
	}
	entries, err := os.ReadDir(all)
	if err != nil {
		return
	}
	removed := 0
	for _, entry := range entries {
		dir := filepath.Join(all, entry.Name())
		if entry.Name()[0] == '.' && entry.IsDir() { // what an earlier one began to remove
			removeTree(dir)
			continue
		}
		if removed < maxPruned && entry.IsDir() && pruneOne(dir, config, now) {
			removed++
		}
	}
}

// pruneOne removes one, if its time is over and nobody has it.
func pruneOne(dir string, config *profile.Config, now time.Time) bool {
	lock, err := unix.Open(filepath.Join(dir, lockName), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer unix.Close(lock)
	about, err := readAbout(dir)
	var used unix.Stat_t
	if err != nil || unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB) != nil || unix.Fstat(lock, &used) != nil {
		return false
	}
	limits := config.Prune(about.Agent)
	idle, age := now.Sub(time.Unix(used.Mtim.Unix())), now.Sub(time.UnixMilli(about.Made))
	if (limits.Idle == 0 || idle <= limits.Idle) && (limits.Age == 0 || age <= limits.Age) {
		return false
	}
	gone := filepath.Join(filepath.Dir(dir), fmt.Sprintf(".gone-%s-%d", filepath.Base(dir), os.Getpid()))
	if !isAt(lock, filepath.Join(dir, lockName)) || os.Rename(dir, gone) != nil {
		return false
	}
	removeTree(gone)
	return true
}

// removeTree removes a directory of which a command may have taken permissions away, with what is
// shut in it.
func removeTree(dir string) {
	_ = shut.Remove(dir, removeWritten)
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		_ = shut.Remove(filepath.Join(dir, entry.Name()), removeWritten)
	}
	removeWritten(dir)
}

func removeWritten(dir string) {
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
