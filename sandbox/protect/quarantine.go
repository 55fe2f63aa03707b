package protect

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// A Quarantine is the directory that holds what was set aside, an entry each: entry.json says what
// it is, content is it (a setting has none). Nobody but its owner can enter it, and no sandbox
// shows it.
type Quarantine struct {
	Dir       string
	Agent     string // for new entries
	Workspace string

	settings map[settingOf]string // what waits of the agent's, and its entry; nil: not read yet
}

// settingOf is a change of a file.
type settingOf struct {
	path string
	Setting
}

// QuarantineIn is the one below a state directory.
func QuarantineIn(state string) *Quarantine {
	if state == "" {
		return nil
	}
	return &Quarantine{Dir: filepath.Join(state, "quarantine")}
}

// An Entry is one thing in the quarantine.
type Entry struct {
	ID        string    `json:"id" jsonschema:"its name in the quarantine"`
	Path      string    `json:"path" jsonschema:"where it came into being"`
	Rule      string    `json:"rule" jsonschema:"the protected name: --unprotect allows it; none for a setting"`
	Kind      string    `json:"kind" jsonschema:"file, directory, link, setting or other"`
	Size      int64     `json:"size" jsonschema:"of a file: in bytes"`
	When      time.Time `json:"when" jsonschema:"when it came into the quarantine"`
	Agent     string    `json:"agent,omitempty" jsonschema:"whose command made it"`
	Workspace string    `json:"workspace,omitempty" jsonschema:"in which workspace"`
	At        string    `json:"at,omitempty" jsonschema:"where it still lies, if it was too large to be moved"`
	// JSON has no text that is not UTF-8.
	PathBytes []byte `json:"pathBytes,omitempty" jsonschema:"path, if it is not UTF-8: base64"`
	AtBytes   []byte `json:"atBytes,omitempty" jsonschema:"at, if it is not UTF-8: base64"`
	// Setting is set where nothing was moved: a command changed one of git's settings, and that did
	// not reach the file.
	Setting *Setting `json:"setting,omitempty" jsonschema:"of kind setting: what path, a file of git's settings, does not have"`
}

// A Setting is a change of git's settings that waits for a person.
type Setting struct {
	Key     string `json:"key" jsonschema:"section.name or section.subsection.name"`
	Value   string `json:"value,omitempty" jsonschema:"what the command set"`
	Removed bool   `json:"removed,omitempty" jsonschema:"the command took the key away"`
}

const (
	settingKind  = "setting"
	maxSetting   = 4096 // bytes of key and value
	maxOfSetting = 200  // entries of one agent
)

const (
	contentName = "content"
	entryName   = "entry.json"
	maxEntries  = 10_000
	maxEntry    = 64 << 10 // bytes of entry.json
)

// What is copied to another file system, at most.
const (
	maxCopyBytes = 64 << 20
	maxCopyNames = 10_000
	maxCopyDepth = 64
)

// Put moves what is called name in an open directory into the quarantine.
func (q *Quarantine) Put(dir int, name, path, rule string) (string, error) {
	defer usable(dir)()
	var stat unix.Stat_t
	if err := unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", err
	}
	if q == nil {
		return "", errors.New("there is no state directory")
	}
	id, in, err := q.make()
	if err != nil {
		return "", err
	}
	defer unix.Close(in)
	e := Entry{ID: id, Path: path, Rule: rule, Kind: kindOf(stat.Mode).String(), Size: stat.Size, When: time.Now().UTC(), Agent: q.Agent, Workspace: q.Workspace}
	if err = writeEntry(in, e); err == nil { // first: without it nobody finds again what was moved
		err = unix.Renameat2(dir, name, in, contentName, unix.RENAME_NOREPLACE)
	}
	if err == unix.EXDEV || err == unix.EACCES { // a directory that may not be written cannot be moved to another one
		c := copying{bytes: maxCopyBytes, names: maxCopyNames}
		if err = c.copy(dir, name, in, contentName, 0); err == nil {
			err = remove(dir, name)
		} else if at, failed := readlink(dir); failed == nil && errors.Is(err, errTooLarge) {
			remove(in, contentName)
			e.At = join(at, name)
			if failed := writeEntry(in, e); failed != nil {
				e.At, err = "", failed
			}
		}
	}
	if err != nil && e.At == "" {
		q.discard(id)
		return "", err
	}
	if err == nil {
		detach(in, contentName, &copying{bytes: maxCopyBytes, names: maxCopyNames}, 0) // if there is too much, Restore says so
	}
	return id, err
}

// PutSetting keeps a change of a file of git's settings. The same change is one entry, however
// often a command makes it.
func (q *Quarantine) PutSetting(path string, s Setting) (string, error) {
	if q == nil {
		return "", errors.New("there is no state directory")
	}
	if !utf8.ValidString(s.Key+s.Value) || len(s.Key)+len(s.Value) > maxSetting {
		return "", errTooLarge
	}
	if q.settings == nil { // read once for all of a run
		list, err := q.List()
		if err != nil {
			return "", err
		}
		q.settings = map[settingOf]string{}
		for _, e := range list {
			if e.Setting != nil && e.Agent == q.Agent {
				q.settings[settingOf{e.Path, *e.Setting}] = e.ID
			}
		}
	}
	if id, is := q.settings[settingOf{path, s}]; is {
		return id, nil
	}
	if len(q.settings) >= maxOfSetting {
		return "", errTooLarge
	}
	id, in, err := q.make()
	if err != nil {
		return "", err
	}
	defer unix.Close(in)
	e := Entry{ID: id, Path: path, Kind: settingKind, When: time.Now().UTC(), Agent: q.Agent, Workspace: q.Workspace, Setting: &s}
	if err := writeEntry(in, e); err != nil {
		q.discard(id)
		return "", err
	}
	q.settings[settingOf{path, s}] = id
	return id, nil
}

// make makes an empty entry.
func (q *Quarantine) make() (string, int, error) {
	if err := os.Mkdir(q.Dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", -1, err
	}
	dir, err := q.open()
	if err != nil {
		return "", -1, err
	}
	defer unix.Close(dir)
	id := strings.ToLower(rand.Text()[:8])
	if err := unix.Mkdirat(dir, id, 0o700); err != nil {
		return "", -1, err
	}
	fd, err := unix.Openat(dir, id, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return id, fd, err
}

func (q *Quarantine) open() (int, error) {
	return unix.Open(q.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// openEntry opens an entry's directory.
func (q *Quarantine) openEntry(id string) (int, error) {
	if id == "" || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return -1, unix.ENOENT
	}
	dir, err := q.open()
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat(dir, id, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

func writeEntry(in int, e Entry) error {
	e.PathBytes, e.AtBytes = notText(e.Path), notText(e.At)
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	fd, err := unix.Openat(in, entryName+".new", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), entryName)
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return unix.Renameat(in, entryName+".new", in, entryName)
}

// Load reads what is said of an entry.
func (q *Quarantine) Load(id string) (Entry, error) {
	var e Entry
	in, err := q.openEntry(id)
	if err != nil {
		return e, err
	}
	defer unix.Close(in)
	text, err := readFile(in, entryName, maxEntry)
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return e, err
	}
	e.ID = id
	if len(e.PathBytes) > 0 {
		e.Path = string(e.PathBytes)
	}
	if len(e.AtBytes) > 0 {
		e.At = string(e.AtBytes)
	}
	return e, nil
}

func notText(path string) []byte {
	if utf8.ValidString(path) {
		return nil
	}
	return []byte(path)
}

// readFile reads a regular file in an open directory, or its beginning.
func readFile(dir int, name string, limit int64) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.Join(unix.EINVAL, err)
	}
	return io.ReadAll(io.LimitReader(file, limit))
}

// List lists the entries, the latest first.
func (q *Quarantine) List() ([]Entry, error) {
	dir, err := os.Open(q.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxEntries)
	if err != nil && err != io.EOF {
		return nil, err
	}
	var list []Entry
	for _, id := range names {
		e, err := q.Load(id)
		if err == nil && e.Setting == nil && e.At == "" {
			var stat unix.Stat_t
			err = unix.Fstatat(int(dir.Fd()), id+"/"+contentName, &stat, unix.AT_SYMLINK_NOFOLLOW) // its mover was killed, and another one has it
		}
		if err == nil {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b Entry) int {
		if c := b.When.Compare(a.When); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list, nil
}

// Head is the beginning of a file in the quarantine, or the text of a link, or the names in a
// directory, a line each.
func (q *Quarantine) Head(id string, limit int) (string, error) {
	in, err := q.openEntry(id)
	if err != nil {
		return "", err
	}
	defer unix.Close(in)
	var stat unix.Stat_t
	if err := unix.Fstatat(in, contentName, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", err
	}
	switch kindOf(stat.Mode) {
	case File:
		text, err := readFile(in, contentName, int64(limit))
		return string(text), err
	case Link:
		buffer := make([]byte, limit)
		n, err := unix.Readlinkat(in, contentName, buffer)
		return string(buffer[:max(n, 0)]), err
	case Directory:
		fd, err := unix.Openat(in, contentName, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		defer unix.Close(fd)
		var names strings.Builder
		err = readDirectory(fd, func(name []byte, _ Kind) bool {
			fmt.Fprintf(&names, "%q\n", name)
			return names.Len() < limit
		})
		return names.String(), err
	}
	return "", nil
}
