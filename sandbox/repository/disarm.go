package repository

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Taken is something that was taken out of a git directory.
type Taken struct {
	Name  string // the file, below the git directory: "config", "hooks/pre-commit"
	Key   string // of a setting; empty: the file as a whole was set aside
	Value string // of a setting
	Why   Verdict
}

const (
	maxHooks    = 1024      // in one directory; with more, that is set aside as a whole
	maxNew      = 128 << 10 // bytes of settings: more take too long to read each time that a command writes them
	maxReplaced = 8         // times that a file is written again because somebody else wrote it at that moment
)

// Disarm looks at a directory that may be a git directory now, or be made one by a git that finds
// half of it there ("git init" keeps settings and hooks), and takes out what executes or leads
// elsewhere: settings, hooks, and the files commondir and gitdir. One that is called .git is such a
// directory, whatever is in it, and so is one that has two of HEAD, objects and refs.
//
// aside has to rename an entry of an open directory to a name that git does not look for. (A hook's
// name has no dot; so a name with a dot is none.) It is called for each hook, and for a file of
// settings that is not a regular file, too long, or not to be understood.
//
// What git writes for "init", "clone" and "submodule" stays as it is, byte for byte. A file of
// settings that has more is replaced by one that has not. Nothing here takes or heeds a lock of
// git's: a git that is writing renames its file over ours, and a call after that finds the same
// again. So it is to be called whenever one of these names was written, made or renamed.
//
// After an error, something that executes may still be there: the caller sets aside the directory,
// or ends the command.
func Disarm(dir int, aside func(dir int, name string) error) ([]Taken, error) {
	place, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
	if err != nil && !errors.Is(err, unix.ENAMETOOLONG) { // then nothing leads anywhere that is known
		return nil, err
	}
	if !isGitDirectory(dir, place) {
		return nil, nil
	}
	d := disarming{dir: dir, place: place, aside: aside}
	return d.all()
}

// DisarmAt is Disarm for what will be in a git directory at a path, whatever it looks like where it
// is now.
func DisarmAt(dir int, place string, aside func(dir int, name string) error) ([]Taken, error) {
	d := disarming{dir: dir, place: place, aside: aside, apart: true}
	return d.all()
}

func (d *disarming) all() ([]Taken, error) {
	d.settings("config")
	d.settings("config.worktree")
	d.hooks()
	d.leads()
	d.remotes()
	return d.taken, errors.Join(d.failed...)
}

// DisarmSettings is Disarm for one file of settings.
func DisarmSettings(dir int, name string, aside func(dir int, name string) error) ([]Taken, error) {
	place, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
	if err != nil && !errors.Is(err, unix.ENAMETOOLONG) {
		return nil, err
	}
	d := disarming{dir: dir, place: place, aside: aside}
	d.settings(name)
	return d.taken, errors.Join(d.failed...)
}

type disarming struct {
	dir    int
	place  string // its path, to hold relative names against: nothing is opened by it
	aside  func(dir int, name string) error
	apart  bool // what will be around it is not there yet
	taken  []Taken
	failed []error
}

// isGitDirectory reports whether git would take a directory for one of its own, or could once
// somebody adds the rest. What HEAD holds does not matter: that may be written any time; nor what
// there is at all, where the name is one that repositories have. (HEAD and a config alone are none:
// the branches of a remote may be called so.)
func isGitDirectory(dir int, place string) bool {
	has := func(name string) bool {
		var stat unix.Stat_t
		return unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil
	}
	head, objects, refs := has("HEAD"), has("objects"), has("refs")
	return strings.HasSuffix(strings.ToLower(path.Base(place)), ".git") || head && (objects || refs || has("commondir")) || objects && refs
}

// whole sets an entry aside as a whole.
func (d *disarming) whole(dir int, name, told string, why Verdict) {
	switch err := d.aside(dir, name); {
	case err == nil:
		d.taken = append(d.taken, Taken{Name: told, Why: why})
	case !errors.Is(err, unix.ENOENT):
		d.failed = append(d.failed, fmt.Errorf("set %q aside: %w", told, err))
	}
}

// settings takes out of a file what must not stay in it.
func (d *disarming) settings(name string) {
	for range maxReplaced {
		f, err := openSettingsUpTo(d.dir, name, maxNew)
		if errors.Is(err, unix.ENOENT) {
			return
		}
		var document document
		if err == nil {
			document, err = parseDocument(f.text)
		}
		if err != nil {
			d.whole(d.dir, name, name, Unknown)
			return
		}
		kept, out := d.clean(name, document)
		if kept == f.text && f.stat.Nlink == 1 {
			return // by another name, a command would write it unseen
		}
		switch err := f.replace(kept); {
		case err == nil:
			d.taken = append(d.taken, out...)
		case !errors.Is(err, errChanged) && !errors.Is(err, unix.ENOENT):
			d.failed = append(d.failed, fmt.Errorf("replace %q: %w", name, err))
			return
		}
	}
	d.whole(d.dir, name, name, Unknown) // somebody writes it again and again
}

// clean is a file without what must not stay. It stays as it is if there is no such thing, and
// nothing that others than git might read in another way.
func (d *disarming) clean(name string, document document) (string, []Taken) {
	var taken []Taken
	var kept []Setting
	for _, s := range document.settings() {
		v := mayStay(s.Key, s.Value)
		if name == "config.worktree" {
			v = mayStayInWorktree(s.Key, s.Value)
		}
		if s.Key == "core.worktree" && d.isModuleOf(s.Value) {
			v = Harmless
		}
		if v == Harmless {
			kept = append(kept, s)
		} else {
			taken = append(taken, Taken{Name: name, Key: s.Key, Value: s.Value, Why: v})
		}
	}
	if len(taken) == 0 && document.isPlain() {
		return document.text(), nil
	}
	return writeSettings(kept), taken
}

// isPlain reports whether all programs read a file in the same way: each head, variable and comment
// on a line of its own, and values as git writes them.
func (d document) isPlain() bool {
	startsLine := true
	for _, p := range d {
		switch p.kind {
		case between:
			for line := range strings.Lines(p.raw) {
				if trimmed := strings.TrimSpace(line); trimmed != "" && (!startsLine || strings.HasSuffix(trimmed, `\`)) || strings.ContainsAny(line, "\r") ||
					strings.HasPrefix(line, byteOrderMark) {
					return false
				}
				startsLine = startsLine || strings.HasSuffix(line, "\n")
			}
		case head:
			if !startsLine || !strings.EqualFold(p.raw, writeHead(p.section)) || !isPlain(p.section) {
				return false
			}
			startsLine = false
		case variable:
			name, value, _ := strings.Cut(strings.TrimRight(p.raw, "\n"), "=")
			if !startsLine || !strings.EqualFold(strings.TrimSpace(name), p.name) || strings.TrimLeft(value, " ") != writeValue(p.value) {
				return false
			}
			startsLine = strings.HasSuffix(p.raw, "\n")
		}
	}
	return true
}

// writeSettings writes a file as git would.
func writeSettings(list []Setting) string {
	var b strings.Builder
	section := ""
	for _, s := range list {
		if of := sectionOf(s.Key); of != section || b.Len() == 0 {
			section = of
			b.WriteString(writeHead(section) + "\n")
		}
		b.WriteString("\t" + nameOf(s.Key) + " = " + writeValue(s.Value) + "\n")
	}
	return b.String()
}

// isModuleOf reports whether a submodule's working tree is where "git submodule" has it: in the
// working tree of the repository whose .git/modules it is in, and not in a .git.
func (d *disarming) isModuleOf(worktree string) bool {
	at := strings.LastIndex(d.place, "/.git/modules/")
	if at < 0 || path.IsAbs(worktree) || !isPlain(worktree) {
		return false
	}
	below, within := strings.CutPrefix(path.Join(d.place, worktree), d.place[:at]+"/")
	return within && !strings.Contains("/"+below+"/", "/.git/") && d.isWorktree(path.Join(d.place, worktree))
}

// isWorktree reports whether a directory's .git says that it is this one's working tree: git writes
// that first. Else a later "git pull" there would write the module's files into whatever directory
// the setting names.
func (d *disarming) isWorktree(dir string) bool {
	var stat unix.Stat_t
	if d.apart && errors.Is(unix.Lstat(dir, &stat), unix.ENOENT) {
		return true
	}
	back, err := d.back(path.Join(dir, ".git"))
	return err == nil && back == d.place
}

// hooks sets the hooks aside. The examples that git makes have ".sample" behind their names.
func (d *disarming) hooks() {
	fd, err := unix.Openat2(d.dir, "hooks", &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return
	case err != nil: // it is a link
		d.whole(d.dir, "hooks", "hooks", Executes)
		return
	}
	dir := os.NewFile(uintptr(fd), "hooks")
	defer dir.Close()
	names, err := dir.Readdirnames(maxHooks + 1)
	if err != nil && !errors.Is(err, io.EOF) || len(names) > maxHooks {
		d.whole(d.dir, "hooks", "hooks", Executes)
		return
	}
	for _, name := range names {
		if !strings.Contains(name, ".") {
			d.whole(fd, name, "hooks/"+name, Executes)
		}
	}
}

// leads sets commondir and gitdir aside where they lead elsewhere than git makes them lead.
func (d *disarming) leads() {
	isWorktree := path.Base(path.Dir(d.place)) == "worktrees"
	text, err := readSmall(d.dir, "commondir")
	if !errors.Is(err, unix.ENOENT) && (err != nil || text != "" && (!isWorktree || strings.TrimRight(text, "\n") != "../..")) { // git refuses an empty one, which may be about to be written
		d.whole(d.dir, "commondir", "commondir", Leads)
	}
	text, err = readSmall(d.dir, "gitdir")
	if !errors.Is(err, unix.ENOENT) && (err != nil || !isWorktree || !d.comesBack(strings.TrimRight(text, "\n"))) {
		d.whole(d.dir, "gitdir", "gitdir", Leads)
	}
}

// remotes sets aside the files by which git was told of remote repositories before it had settings
// for that. It still reads them.
func (d *disarming) remotes() {
	for _, name := range []string{"remotes", "branches"} { // "git init" makes one that is empty
		fd, err := unix.Openat2(d.dir, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve})
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			dir := os.NewFile(uintptr(fd), name)
			_, err = dir.Readdirnames(1)
			dir.Close()
		}
		if !errors.Is(err, io.EOF) {
			d.whole(d.dir, name, name, Leads)
		}
	}
}

// comesBack reports whether a file .git of a worktree names this directory, or its directory is not
// there. git writes it after this one: who calls Disarm waits for that. But "git worktree repair"
// writes it, too, wherever it would be.
func (d *disarming) comesBack(file string) bool {
	if path.Base(file) != ".git" || !isPlain(file) {
		return false
	}
	if !path.IsAbs(file) {
		file = path.Join(d.place, file)
	}
	back, err := d.back(file)
	if errors.Is(err, unix.ENOENT) && !d.apart {
		var stat unix.Stat_t
		return errors.Is(unix.Lstat(path.Dir(file), &stat), unix.ENOENT)
	}
	return errors.Is(err, unix.ENOENT) || err == nil && back == d.place
}

// back is the git directory that a file .git names; empty: it names none.
func (d *disarming) back(file string) (string, error) {
	text, err := readSmall(unix.AT_FDCWD, file)
	back, found := strings.CutPrefix(strings.TrimRight(text, "\n"), "gitdir: ")
	if err != nil || !found {
		return "", err
	}
	if !path.IsAbs(back) {
		back = path.Join(path.Dir(file), back)
	}
	return path.Clean(back), nil
}

// resolve is how all files here are opened.
const resolve = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openRegular opens a regular file.
func openRegular(dir int, name string, limit int64) (*os.File, unix.Stat_t, error) {
	var stat unix.Stat_t
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: resolve})
	if err != nil {
		return nil, stat, err
	}
	file := os.NewFile(uintptr(fd), name)
	if err = unix.Fstat(fd, &stat); err == nil && stat.Mode&unix.S_IFMT != unix.S_IFREG {
		err = unix.EINVAL
	}
	if err == nil && stat.Size > limit {
		err = unix.EFBIG
	}
	if err != nil {
		file.Close()
		return nil, stat, err
	}
	return file, stat, nil
}

func readAll(file *os.File, limit int64) (string, error) {
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = unix.EFBIG
	}
	return string(text), err
}

func readSmall(dir int, name string) (string, error) {
	file, _, err := openRegular(dir, name, 2*unix.PathMax)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return readAll(file, 2*unix.PathMax)
}

// A settingsFile is what a file of settings held when it was opened.
type settingsFile struct {
	dir  int
	name string
	stat unix.Stat_t
	text string
}

func openSettings(dir int, name string) (*settingsFile, error) {
	return openSettingsUpTo(dir, name, MaxFile)
}

func openSettingsUpTo(dir int, name string, limit int64) (*settingsFile, error) {
	file, stat, err := openRegular(dir, name, limit)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := readAll(file, limit)
	return &settingsFile{dir, name, stat, text}, err
}

// isNow reports whether the name still stands for the file that was read.
func (f *settingsFile) isNow() bool {
	var now unix.Stat_t
	return unix.Fstatat(f.dir, f.name, &now, unix.AT_SYMLINK_NOFOLLOW) == nil && now.Ino == f.stat.Ino && now.Dev == f.stat.Dev &&
		now.Ctim == f.stat.Ctim && now.Size == f.stat.Size
}

// errChanged means that somebody else wrote the file meanwhile.
var errChanged = errors.New("it was changed by somebody else at that moment")

// replace puts another file in the place of one that was read. It takes no lock of git's: a git
// that finds one fails, and a command may write several settings one after another ("git remote
// add" does). So a git that reads the file in the moment between an exchange and the one that
// undoes it loses what another git wrote just before: one setting of some 7,000 while a loop does
// nothing but this on a busy machine.
func (f *settingsFile) replace(text string) error {
	name, fd, err := f.temporary()
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	var mine unix.Stat_t
	if _, err = file.WriteString(text); err == nil {
		err = errors.Join(file.Chmod(os.FileMode(f.stat.Mode&0o777)), unix.Fstat(fd, &mine))
	}
	file.Close() // as git does: whoever looks sees nobody who could still write
	if err == nil {
		// While it is held open, no file that git makes meanwhile can have its number.
		var held int
		if held, err = unix.Openat(f.dir, f.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
			defer unix.Close(held)
		}
	}
	if err == nil && !f.isNow() {
		err = errChanged
	}
	if err == nil {
		// What git renamed there in this very moment comes out by the exchange, and is put back to
		// be looked at.
		err = unix.Renameat2(f.dir, name, f.dir, f.name, unix.RENAME_EXCHANGE)
	}
	if err != nil {
		unix.Unlinkat(f.dir, name, 0)
		return err
	}
	var old unix.Stat_t
	if unix.Fstatat(f.dir, name, &old, unix.AT_SYMLINK_NOFOLLOW) == nil && old.Ino != f.stat.Ino && old.Ino != mine.Ino {
		err = unix.Renameat2(f.dir, name, f.dir, f.name, unix.RENAME_EXCHANGE)
		if err != nil || unix.Fstatat(f.dir, name, &old, unix.AT_SYMLINK_NOFOLLOW) == nil && old.Ino != mine.Ino {
			unix.Renameat(f.dir, name, f.dir, f.name) // and what was renamed there since is the newest of all
			return errChanged
		}
		unix.Unlinkat(f.dir, name, 0)
		return errChanged
	}
	unix.Unlinkat(f.dir, name, 0)
	return nil
}

// temporary makes the file that is to be renamed.
func (f *settingsFile) temporary() (string, int, error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	random := make([]byte, 8)
	rand.Read(random)
	name := f.name + "." + hex.EncodeToString(random)
	fd, err := unix.Openat(f.dir, name, flags, 0o600)
	return name, fd, err
}
