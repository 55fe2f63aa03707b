package policy

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/clairun/clai-sandbox/profile/whole"
)

// A Store is the approvals file on this host's disk.
type Store struct{ Path string }

// A Snapshot is the file as it was read.
type Snapshot struct {
	Path      string
	Exists    bool
	Hash      string // hex SHA-256 of the text
	Approvals *Approvals
}

// Shown is what get and set answer. The token stays on the host.
type Shown struct {
	Path   string          `json:"path"`
	Exists bool            `json:"exists"`
	Hash   string          `json:"hash"`
	File   json.RawMessage `json:"file"`
}

// Shown leaves out the token.
func (s *Snapshot) Shown() Shown { return Shown{s.Path, s.Exists, s.Hash, s.Approvals.Shown()} }

// ErrBaseHash says that the file is not what the change was made from.
var ErrBaseHash = errors.New("exec approvals changed; reload and retry")

// ErrBaseHashRequired says that a change did not name what it was made from.
var ErrBaseHashRequired = errors.New("exec approvals base hash required; re-run get and retry")

func hashText(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Load reads the file. Where there is none, nothing is allowed. A file that cannot be trusted or
// read is an error: everything is denied then.
func (s Store) Load() (*Snapshot, error) {
	snapshot := &Snapshot{Path: s.Path, Hash: hashText(nil), Approvals: &Approvals{Agents: map[string]*AgentApprovals{}, Absent: true}}
	text, err := s.read()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return snapshot, nil
	case err != nil:
		return nil, err
	}
	snapshot.Exists, snapshot.Hash = true, hashText(text)
	if snapshot.Approvals, err = ParseApprovals(text); err != nil {
		var mistake *FileError
		if errors.As(err, &mistake) {
			mistake.Path = s.Path
		}
		return nil, err
	}
	return snapshot, nil
}

func (s Store) read() ([]byte, error) {
	if err := s.trustParents(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(s.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return nil, &FileError{s.Path, errors.New("is a symbolic link"), "put the file itself there"}
	case err != nil:
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &FileError{s.Path, errors.New("is not a regular file"), ""}
	}
	if err := trustOwner(s.Path, info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxApprovals+1))
	if err != nil {
		return nil, &FileError{s.Path, err, ""}
	}
	return text, nil
}

// trustParents refuses a path through a link, or through a directory that another user may write:
// they would choose the file. What root linked in a directory of root's is the system's layout.
func (s Store) trustParents() error {
	if !filepath.IsAbs(s.Path) {
		return &FileError{s.Path, errors.New("is not an absolute path"), ""}
	}
	sticky := false
	for dir, rootOnly := "/", true; ; {
		info, err := os.Lstat(dir)
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t).Uid
		switch {
		case info.Mode()&os.ModeSymlink != 0 && !(rootOnly && owner == 0):
			return &FileError{s.Path, fmt.Errorf("the parent %s is a symbolic link", dir), "name the directory that it leads to"}
		case info.Mode()&os.ModeSymlink != 0:
		case owner != 0 && owner != uint32(os.Geteuid()):
			return &FileError{s.Path, fmt.Errorf("the parent %s belongs to another user", dir), ""}
		case info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0:
			return &FileError{s.Path, fmt.Errorf("others may write to the parent %s", dir), "chmod go-w " + dir}
		}
		sticky = info.Mode()&os.ModeSticky != 0
		rootOnly = rootOnly && owner == 0 && !sticky
		if dir == filepath.Dir(filepath.Clean(s.Path)) {
			return nil
		}
		rest := strings.TrimPrefix(filepath.Dir(filepath.Clean(s.Path)), dir)
		dir = filepath.Join(dir, strings.SplitN(strings.TrimPrefix(rest, "/"), "/", 2)[0])
	}
}

func trustOwner(path string, info os.FileInfo) error {
	switch owner := info.Sys().(*syscall.Stat_t).Uid; {
	case owner != uint32(os.Geteuid()) && owner != 0:
		return &FileError{path, errors.New("belongs to another user"), ""}
	case info.Mode().Perm()&0o022 != 0:
		return &FileError{path, errors.New("may be written by others"), "chmod 600 " + path}
	}
	return nil
}

// Set puts another file in place of the one whose hash is base. The token and the socket's path
// stay as they are: whoever sends a file never saw them.
func (s Store) Set(file json.RawMessage, base string) (*Snapshot, error) {
	return s.change(func(now *Snapshot) error {
		switch {
		case now.Exists && base == "":
			return ErrBaseHashRequired
		case now.Exists && subtle.ConstantTimeCompare([]byte(strings.ToLower(base)), []byte(now.Hash)) != 1:
			return ErrBaseHash
		}
		a, err := ParseApprovals(file)
		if err != nil {
			return err
		}
		if old := now.Approvals.Socket; a.Socket.Token == "" || a.Socket.Path == "" {
			a.Socket.Token = old.Token
			if a.Socket.Path == "" {
				a.Socket.Path = old.Path
			}
		}
		now.Approvals = a
		return nil
	})
}

// Update changes the file under its lock. Nobody else's change in between is lost.
func (s Store) Update(edit func(*Approvals) error) (*Snapshot, error) {
	return s.change(func(now *Snapshot) error { return edit(now.Approvals) })
}

func (s Store) change(edit func(*Snapshot) error) (*Snapshot, error) {
	if err := os.MkdirAll(filepath.Dir(s.Path), 0o700); err != nil {
		return nil, err
	}
	if err := s.trustParents(); err != nil {
		return nil, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	now, err := s.Load()
	if err != nil {
		return nil, err
	}
	if err := edit(now); err != nil {
		return nil, err
	}
	text := now.Approvals.JSON()
	if len(text) > MaxApprovals {
		return nil, &FileError{s.Path, fmt.Errorf("would be larger than %d bytes", MaxApprovals), ""}
	}
	// What was written must be readable, or everything would be denied from now on.
	problems := now.Approvals.Problems // some are gone with what was dropped
	if now.Approvals, err = ParseApprovals(text); err != nil {
		return nil, err
	}
	now.Approvals.Problems = problems
	now.Exists, now.Hash = true, hashText(text)
	return now, s.write(text)
}

// lock keeps other processes from changing the file. The lock's file stays: removing it would let
// two hold it.
func (s Store) lock() (unlock func(), err error) {
	f, err := os.OpenFile(s.Path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", s.Path, err)
	}
	return func() { f.Close() }, nil
}

const temporaryName = ".exec-approvals-"

// removeLeft removes what a process that was killed left of its change. Whoever calls holds the
// lock: nobody else is writing.
func (s Store) removeLeft() {
	names, _ := filepath.Glob(filepath.Join(globQuoted(filepath.Dir(s.Path)), temporaryName+"[0-9]*"))
	for _, name := range names {
		os.Remove(name)
	}
}

func globQuoted(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// write puts the whole text in place of the file, or nothing.
func (s Store) write(text []byte) error {
	s.removeLeft()
	return whole.Write(s.Path, temporaryName, text)
}

// A Used entry was what let a command run.
type Used struct {
	Agent    string
	Entry    Entry
	At       int64 // milliseconds since 1970
	Command  string
	Resolved string
}

// MarkUsed notes when entries were last used. Only those fields are written, to entries that are
// still there.
func (s Store) MarkUsed(uses []Used) error {
	if len(uses) == 0 {
		return nil
	}
	_, err := s.Update(func(a *Approvals) error {
		for _, u := range uses {
			for _, id := range [...]string{u.Agent, "*"} {
				if agent := a.Agents[id]; agent != nil {
					agent.mark(u)
				}
			}
		}
		return nil
	})
	return err
}

func (g *AgentApprovals) mark(u Used) {
	for i := range g.Allowlist {
		e := &g.Allowlist[i]
		same := e.ID == u.Entry.ID && e.ID != "" || e.Pattern == u.Entry.Pattern && e.ArgPattern == u.Entry.ArgPattern
		if same && u.At >= e.LastUsedAt {
			e.LastUsedAt, e.LastUsedCommand, e.LastResolvedPath = u.At, shorten(u.Command), u.Resolved
		}
	}
}

// shorten keeps what is only for people to read to a line's length.
func shorten(text string) string {
	const limit = 500
	if len(text) <= limit {
		return text
	}
	end := limit
	for end > 0 && text[end]&0xc0 == 0x80 {
		end--
	}
	return text[:end] + "…"
}
