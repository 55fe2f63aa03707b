// Package cow keeps what commands change in directories that they see copy on write. A layer is a
// directory in this program's state, which no sandbox sees but merged with what lies below it.
package cow

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
)

// A Layer is one that is open: nobody else mounts it meanwhile.
type Layer struct {
	Dir   string
	Cache bool // of tools
	lock  int
	in    *shut.Inside
}

// About says what a layer is of. It is in the file layer.json.
type About struct {
	Path  string `json:"path"` // the directory that is seen copy on write
	Made  int64  `json:"madeAtUnixMs"`
	Cache bool   `json:"cache,omitempty"` // it is a cache of tools, whose changes nobody needs to look at
	// Object is the directory itself, as it was when the layer was last empty. Changes are brought
	// to that one only.
	Object Object `json:"object"`
}

// An Object is one of a file system. A later one may have its inode, but not its time of birth.
type Object struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Born   int64  `json:"bornAtUnixNs,omitempty"` // 0 where the file system does not say
}

// ObjectOf is the object that is open, or at a path if name is one. A link is not followed.
func ObjectOf(fd int, name string) (Object, error) {
	var s unix.Statx_t
	if err := unix.Statx(fd, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &s); err != nil {
		return Object{}, err
	}
	o := Object{Device: unix.Mkdev(s.Dev_major, s.Dev_minor), Inode: s.Ino}
	if s.Mask&unix.STATX_BTIME != 0 {
		o.Born = s.Btime.Sec*1e9 + int64(s.Btime.Nsec)
	}
	return o, nil
}

// Is reports whether two are the same. A device may have another number after the host was started
// anew.
func (o Object) Is(other Object) bool {
	return o.Inode == other.Inode && o.Inode != 0 && o.Born == other.Born && (o.Born != 0 || o.Device == other.Device)
}

const (
	aboutName = "layer.json"
	lockName  = "lock"
	upperName = "upper"
	workName  = "work"
	// Originals is the directory in a layer's where package changes keeps what files were before
	// commands changed them.
	Originals = "originals"
)

// ErrInUse means that another sandbox has a layer.
var ErrInUse = errors.New("another sandbox uses the layer")

// Name is the name of the layer of a directory, among those of one agent: the end of the path, to
// be read by people, and a hash of it.
func Name(path string) string {
	sum := sha256.Sum256([]byte(path))
	base := filepath.Base(path)
	if len(base) > 100 || base == "/" {
		base = "layer"
	}
	return fmt.Sprintf("%s-%x", base, sum[:8])
}

// Open opens the layer at dir, which is of the directory at path, and makes it if it is not there.
// The directory is not looked at for more than its mode, and which object it is. Since tells
// afterwards when a layer was last opened empty.
func Open(dir string, about About, mode fs.FileMode) (*Layer, error) {
	l, err := open(dir, about, mode)
	if err == nil && !about.Cache {
		err = l.begin(about)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	l.Cache = about.Cache
	return l, nil
}

// Take opens a layer that is there, to look at what it holds while no sandbox has it.
func Take(dir string) (*Layer, error) {
	if err := isOurs(dir); err != nil {
		return nil, err
	}
	lock, err := unix.Open(filepath.Join(dir, lockName), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open the layer %s: %w", dir, err)
	}
	return locked(dir, lock)
}

// Read says what a layer is of.
func Read(dir string) (About, error) {
	var about About
	text, err := os.ReadFile(filepath.Join(dir, aboutName))
	if err == nil {
		err = json.Unmarshal(text, &about)
	}
	if err == nil && !filepath.IsAbs(about.Path) {
		err = fmt.Errorf("%s: it names no path", filepath.Join(dir, aboutName))
	}
	return about, err
}

// Since is when a layer was last opened while it was empty, in nanoseconds of the clock by which
// the kernel stamps files: what the host changed after that has no earlier time of change. It is
// the lock's time of modification.
func Since(dir string) (int64, error) {
	var s unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, lockName), &s); err != nil {
		return 0, err
	}
	return s.Mtim.Nano(), nil
}

// begin notes the time, if nothing was changed yet, and which object lies below.
func (l *Layer) begin(about About) error {
	upper, err := os.Open(l.Upper())
	if err != nil {
		return err
	}
	defer upper.Close()
	if names, err := upper.Readdirnames(1); len(names) > 0 || err != io.EOF {
		return nil
	}
	if err := unix.UtimesNanoAt(l.lock, "", nil, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("note when the layer began: %w", err)
	}
	object, err := ObjectOf(unix.AT_FDCWD, about.Path)
	if err != nil {
		return err
	}
	if was, err := Read(l.Dir); err == nil && was.Object.Is(object) {
		return nil
	}
	about.Object = object
	return about.write(l.Dir, os.Rename)
}

func open(dir string, about About, mode fs.FileMode) (*Layer, error) {
	if err := isOurs(dir); err != nil {
		return nil, err
	}
	lock, err := unix.Open(filepath.Join(dir, lockName), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err == unix.ENOENT {
		lock, err = create(dir, about, mode)
	}
	if err != nil {
		return nil, fmt.Errorf("open the layer %s: %w", dir, err)
	}
	return locked(dir, lock)
}

func locked(dir string, lock int) (*Layer, error) {
	if err := unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(lock)
		if err == unix.EWOULDBLOCK {
			err = ErrInUse
		}
		return nil, err
	}
	l := &Layer{Dir: dir, lock: lock}
	if err := l.enter(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// enter opens what is shut.
func (l *Layer) enter() (err error) {
	if l.in, err = shut.Make(l.Dir); err != nil {
		return err
	}
	if err = unix.Faccessat(l.in.FD(), upperName, unix.F_OK, 0); err != unix.ENOENT {
		return err
	}
	for _, name := range []string{"trash", workName, upperName} { // where earlier versions had them
		if err := l.in.MoveIn(l.Dir, name); err != nil && err != unix.ENOENT {
			return fmt.Errorf("move %s to %s: %w", filepath.Join(l.Dir, name), shut.In(l.Dir), err)
		}
	}
	return nil
}

// In leads to what is shut of the layer, in this process alone and until the layer is given back.
func (l *Layer) In() string { return l.in.Path() }

// Upper leads to what commands have changed, as In does.
func (l *Layer) Upper() string { return l.in.Path() + "/" + upperName }

// OpenUpper opens what commands have changed in a layer that others may have in use.
func OpenUpper(dir string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	in, err := shut.Open(dir)
	if errors.Is(err, fs.ErrNotExist) { // it was made by an earlier version
		return os.OpenFile(filepath.Join(dir, upperName), flags, 0)
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	fd, err := unix.Openat(in.FD(), upperName, flags, 0)
	if err == unix.ENOENT {
		return os.OpenFile(filepath.Join(dir, upperName), flags, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open the layer %s: %w", dir, err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir, mounts.LayerUpper)), nil
}

// IsEmpty reports whether commands have changed nothing in a layer.
func IsEmpty(dir string) (bool, error) {
	upper, err := OpenUpper(dir)
	if err != nil {
		return false, err
	}
	defer upper.Close()
	_, err = upper.Readdirnames(1)
	return err == io.EOF, nil
}

// ErrForeign means that layers are in another user's directory, as where root runs with a person's
// home: what root makes there would be in the person's way, and the sandbox could not reach it.
var ErrForeign = errors.New("it is in another user's directory")

// isOurs looks at a layer, its agent's directory, that of all layers, and the one above, as far as
// they are there.
func isOurs(dir string) error {
	for range 4 {
		var is unix.Stat_t
		switch err := unix.Lstat(dir, &is); {
		case err == nil && int(is.Uid) != os.Geteuid():
			return ErrForeign
		case err != nil && err != unix.ENOENT:
			return err
		}
		dir = filepath.Dir(dir)
	}
	return nil
}

// create makes a layer. Its lock comes last: a layer that has one is whole.
func create(dir string, about About, mode fs.FileMode) (int, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return -1, err
	}
	if err := about.write(dir, os.Link); err != nil && !errors.Is(err, fs.ErrExist) { // another may make the layer, too, and have it by now
		return -1, err
	}
	in, err := shut.Make(dir)
	if err != nil {
		return -1, err
	}
	defer in.Close()
	for _, name := range []string{upperName, workName} {
		if err := unix.Mkdirat(in.FD(), name, 0o700); err != nil && err != unix.EEXIST {
			return -1, err
		}
	}
	if err := unix.Fchmodat(in.FD(), upperName, uint32(mode.Perm()), 0); err != nil { // what is seen at the path has the mode of the upper directory
		return -1, err
	}
	return unix.Open(filepath.Join(dir, lockName), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
}

// write puts the file in its place, whole, by os.Rename, or os.Link for none to be replaced.
func (a About) write(dir string, put func(old, new string) error) error {
	a.Made = time.Now().UnixMilli()
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, aboutName+".") // several may make the layer at a time
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Close()); err == nil {
		err = put(file.Name(), filepath.Join(dir, aboutName))
	}
	os.Remove(file.Name())
	return err
}

// Close gives a layer back.
func (l *Layer) Close() {
	if l != nil && l.lock >= 0 {
		l.in.Close()
		unix.Close(l.lock)
		l.lock = -1
	}
}

// Veil hides names below the directory that a layer is of, each in directories that the host has,
// and nothing else: neither now nor when the host makes it while the layer is mounted. A command
// can make something of its own there.
func (l *Layer) Veil(names []string) error {
	veil := filepath.Join(l.Dir, mounts.LayerVeil)
	if len(names) == 0 && holdsNothing(veil) {
		return nil // as most are; to make it anew is two writes to the disk at each start
	}
	if err := os.RemoveAll(veil); err != nil {
		return err
	}
	if err := os.Mkdir(veil, 0o700); err != nil {
		return err
	}
	for _, name := range names {
		name = filepath.Join(veil, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		// What stands for a removed file in an overlay file system. Anybody may make that one
		// device.
		if err := unix.Mknod(name, unix.S_IFCHR, 0); err != nil && err != unix.EEXIST {
			return err
		}
	}
	return nil
}

func holdsNothing(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}

// Clear takes out of a layer what a command put, or removed, where a directory of the host's is to
// be mounted at name, or a file, or on the way there. What it changed beside that stays.
func (l *Layer) Clear(name string, isDir bool) error {
	os.RemoveAll(filepath.Join(l.Dir, Originals, name)) // the host's may be seen there next
	dir, err := openDirectory(l.in.FD(), upperName)
	apart := false // whether the command made the directory anew, so that nothing of the host's is seen in it
	for parts := strings.Split(name, "/"); err == nil && len(parts) > 0; parts = parts[1:] {
		var found unix.Stat_t
		missing := unix.Fstatat(dir, parts[0], &found, unix.AT_SYMLINK_NOFOLLOW) != nil
		want := uint32(unix.S_IFDIR)
		if len(parts) == 1 && !isDir {
			want = unix.S_IFREG
		}
		if !missing && found.Mode&unix.S_IFMT != want {
			if err = unix.Unlinkat(dir, parts[0], 0); err == unix.EISDIR {
				err = unix.Renameat(dir, parts[0], dir, parts[0]+".aside") // it may be large, and nobody waits for that
			}
			missing = true
		}
		switch {
		case err != nil || missing && !apart:
			unix.Close(dir)
			return err // the host's is seen
		case missing && want == unix.S_IFREG:
			err = unix.Mknodat(dir, parts[0], unix.S_IFREG|0o600, 0)
		case missing:
			err = unix.Mkdirat(dir, parts[0], 0o700)
		}
		if err != nil || want == unix.S_IFREG {
			break
		}
		next, failed := openDirectory(dir, parts[0])
		unix.Close(dir)
		dir, err = next, failed
		if n, _ := unix.Fgetxattr(dir, "user.overlay.opaque", make([]byte, 8)); n > 0 {
			apart = true
		}
	}
	if dir >= 0 {
		unix.Close(dir)
	}
	return err
}

func openDirectory(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// Make makes a directory in a layer, if it is not there.
func (l *Layer) Make(name string) {
	unix.Mkdirat(l.in.FD(), upperName+"/"+name, 0o700)
}
