package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/sandbox"
)

// NoticeHome is about a home of the agent's own.
const NoticeHome sandbox.NoticeKind = "home"

// maxHomes is how many sessions of one agent may have a home of its own at a time. Further ones
// have an empty one that is gone with the sandbox. Two sessions share none: it would lead open
// files and connections from one to the other, whatever each may reach by itself.
const maxHomes = 8

// home is the agent's own, as far as the session has one.
type home struct {
	name    string // of its directory
	furnish func(home string) error

	mu   sync.Mutex
	dir  string   // on the host
	lock int      // held from the first command on; 0: not yet
	lead []string // see profile.HomeLeads
	told bool     // why there is none
}

// Names of the homes of one agent: with its commands, and where these run apart, its own and
// theirs. What a command has written in the one is never in the agent's own.
const (
	wholeHome    = "home"
	agentsHome   = "agent"
	commandsHome = "commands"
)

// directory is where the home is that stands inside.
func (h *home) directory() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dir
}

// homesOf is where the homes of one agent are.
func homesOf(state, agent string) string { return filepath.Join(state, "homes", agent) }

// homePath is where a home is, which no path leads to: see package shut.
func homePath(state, agent, name string) string { return shut.In(homesOf(state, agent)) + "/" + name }

// numbered is the name of the home of a number.
func (h *home) numbered(n int) string {
	if n == 1 {
		return h.name
	}
	return fmt.Sprintf("%s-%d", h.name, n)
}

// makeHomeDirectory makes a home of an agent's. One that an earlier version made is moved to where
// no path leads, if no sandbox has it; isOurs says that this session has it.
func makeHomeDirectory(state, agent, name string, isOurs bool) error {
	homes := homesOf(state, agent)
	if err := makeOwn(state, homes); err != nil {
		return err
	}
	in, err := shut.Make(homes)
	if err != nil {
		return reasonOf(err)
	}
	defer in.Close()
	if old, err := os.Lstat(filepath.Join(homes, name)); err == nil && old.IsDir() {
		if !isOurs {
			lock, err := lockAt(homes, name)
			if err == unix.EWOULDBLOCK {
				return nil // whoever takes it next moves it
			}
			if err != nil {
				return err
			}
			defer unix.Close(lock)
		}
		if err := in.MoveIn(homes, name); err != nil && err != unix.EEXIST && err != unix.ENOENT {
			return err
		}
	}
	if err := unix.Mkdirat(in.FD(), name, 0o700); err != nil && err != unix.EEXIST {
		return err
	}
	return unix.Fchmodat(in.FD(), name, 0o700, 0) // a command may have taken the permissions away, which would end all use of it
}

// moveHomes moves the homes that an earlier version made.
func moveHomes(state string) {
	agents, _ := os.ReadDir(filepath.Join(state, "homes"))
	for _, agent := range agents {
		homes := homesOf(state, agent.Name())
		if !agent.IsDir() || shut.Is(homes) {
			continue
		}
		entries, _ := os.ReadDir(homes)
		for _, entry := range entries {
			if entry.IsDir() && strings.HasPrefix(entry.Name(), "home") {
				_ = makeHomeDirectory(state, agent.Name(), entry.Name(), false) // else whoever takes it next
			}
		}
	}
}

// makeHome makes the agent's home, if its sandboxes are to have one. Where that cannot be, they
// have an empty one, and a notice tells.
func (s *Session) makeHome(h *home, p *profile.Profile) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.HomeIs != profile.HomePrivate || h.told {
		return nil
	}
	if h.dir == "" {
		dir := homePath(s.state, p.Agent, h.name)
		if err := makeHomeDirectory(s.state, p.Agent, h.name, false); err != nil {
			return s.withoutHome(h, p, dir, err)
		}
		h.dir = dir
		if h.furnish != nil {
			if _, err := s.chooseHome(h, p); err != nil {
				return err
			}
		}
	}
	p.PrivateHome, p.HomeLeads = h.dir, h.lead
	return nil
}

// withoutHome is for a home that cannot be had: an error where somebody asked for it by name. The
// lock is held.
func (s *Session) withoutHome(h *home, p *profile.Profile, dir string, err error) error {
	text := fmt.Sprintf("the agent's own home (%s) cannot be used: %v", profile.Printable(dir), err)
	if p.HomeOrigin.Kind != profile.OriginDefault {
		return &sandbox.SetupError{Path: p.Home, Why: text, Hint: "--home ephemeral takes an empty one for each run"}
	}
	h.dir, h.told, p.PrivateHome = "", true, ""
	s.notice(sandbox.Notice{Kind: NoticeHome, Path: p.Home, Text: text + "; the command has an empty one"})
	return nil
}

// makeOwn makes a directory below the state's that only its user sees, and all between. What
// belongs to somebody else is not used: a person's state is nothing for root to write.
func makeOwn(state, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return reasonOf(err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		var is unix.Stat_t
		if err := unix.Lstat(at, &is); err != nil {
			return err
		}
		switch {
		case at == state && is.Mode&unix.S_IFMT == unix.S_IFLNK: // a person's own
		case is.Mode&unix.S_IFMT != unix.S_IFDIR:
			return fmt.Errorf("%s is not a directory", profile.Printable(at))
		case int(is.Uid) != os.Geteuid():
			return errors.New("it is in another user's directory")
		}
		if at == state || at == "/" {
			break
		}
	}
	return os.Chmod(dir, 0o700) // a command may have taken the permissions away, which would end all use of it
}

func reasonOf(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return err
}

// takeHome keeps the agent's home for this session, from its first command to its end. Where
// another session of the agent has it, this one takes another.
func (p *Prepared) takeHome() error {
	s := p.session
	if p.Profile.PrivateHome == "" {
		return nil
	}
	changed, err := s.lockHome(p.home, &p.Profile)
	if err != nil || !changed {
		return err
	}
	notices := p.Plan.Notices
	if err := p.build(); err != nil {
		return err
	}
	p.Plan.Notices = notices
	return nil
}

// lockHome reports whether the session has another home now than before.
func (s *Session) lockHome(h *home, p *profile.Profile) (changed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return s.chooseHome(h, p)
}

// chooseHome is lockHome where the lock is held.
func (s *Session) chooseHome(h *home, p *profile.Profile) (changed bool, err error) {
	if h.lock != 0 {
		return p.PrivateHome != h.dir, nil
	}
	for n := 1; n <= maxHomes; n++ {
		dir := homePath(s.state, p.Agent, h.numbered(n))
		lock, err := s.takeHomeDirectory(p.Agent, h.numbered(n))
		if err == unix.EWOULDBLOCK {
			continue
		}
		if err != nil {
			return true, s.withoutHome(h, p, dir, err)
		}
		h.lock, h.dir = lock, dir
		if h.furnish != nil {
			if err := h.furnishAt(dir, p); err != nil {
				return true, &sandbox.SetupError{Path: p.Home, Why: fmt.Sprintf("the agent's own home (%s) cannot be furnished: %v", profile.Printable(dir), err),
					Hint: "--home ephemeral takes an empty one for each run, without what the agent had there"}
			}
		}
		if n > 1 {
			s.notice(sandbox.Notice{Kind: NoticeHome, Path: p.Home,
				Text: fmt.Sprintf("another sandbox of agent %s has its home while it runs; this one had home %d of %d", p.Agent, n, maxHomes)})
		}
		return dir != p.PrivateHome, nil
	}
	h.dir, h.told = "", true
	s.notice(sandbox.Notice{Kind: NoticeHome, Path: p.Home, Text: fmt.Sprintf("%d other sandboxes of agent %s have its homes; this one had an empty one", maxHomes, p.Agent)})
	return true, nil
}

// furnishAt makes ready what the home has before the first command.
func (h *home) furnishAt(dir string, p *profile.Profile) error {
	at, done, err := shut.Reach(dir)
	if err != nil {
		return err
	}
	defer done()
	if err := h.furnish(at); err != nil {
		return err
	}
	h.lead, err = makeLeads(at, p)
	return err
}

// makeLeads makes in a home of the agent's own what a preset's grants below the home are mounted
// on, and returns the directories that lead there. Something else that a command put in the way is
// moved aside.
func makeLeads(own string, p *profile.Profile) (leads []string, err error) {
	root, err := os.OpenRoot(own)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for _, g := range p.Grants {
		below, is := strings.CutPrefix(g.Path, p.Home+"/")
		object, err := os.Lstat(g.Path)
		if g.Origin.Kind != profile.OriginPreset || !is || err != nil || object.Mode()&fs.ModeSymlink != 0 {
			continue
		}
		at := ""
		for _, name := range strings.Split(below, "/") {
			at = filepath.Join(at, name)
			last := at == below
			if err := makePoint(root, at, !last || object.IsDir()); err != nil {
				return nil, err
			}
			if lead := filepath.Join(p.Home, at); !last && !slices.Contains(leads, lead) {
				leads = append(leads, lead)
			}
		}
	}
	return leads, nil
}

// makePoint makes a directory or a file to mount on.
func makePoint(root *os.Root, name string, directory bool) error {
	switch is, err := root.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case is.IsDir() == directory && (directory || is.Mode().IsRegular()):
		return nil
	default:
		if err := root.Rename(name, fmt.Sprintf("%s.set-aside-%d", name, time.Now().UnixNano())); err != nil {
			return err
		}
	}
	if directory {
		return root.Mkdir(name, 0o700)
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// takeHomeDirectory takes a home, and makes it if it is not there.
func (s *Session) takeHomeDirectory(agent, name string) (int, error) {
	if err := makeOwn(s.state, homesOf(s.state, agent)); err != nil {
		return 0, err
	}
	lock, err := lockAt(homesOf(s.state, agent), name)
	if err != nil {
		return 0, err
	}
	if err := makeHomeDirectory(s.state, agent, name, true); err != nil {
		unix.Close(lock)
		return 0, err
	}
	return lock, nil
}

// lockAt takes the lock of a home, which is beside all of an agent's.
func lockAt(homes, name string) (int, error) {
	lock, err := unix.Open(filepath.Join(homes, name)+".lock", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, err
	}
	if err := unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(lock)
		return 0, err
	}
	return lock, nil
}

// close gives the home back.
func (h *home) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lock != 0 {
		unix.Close(h.lock)
		h.lock = 0
	}
}
