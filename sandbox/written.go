package sandbox

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/written"
)

// Where a symbolic link leads that a command could have made is that command's choice. So a file in
// the state directory has every directory that any command could write, whatever agent's it was,
// and a grant that passes through a link in one of them is refused: see package written.

// maxWritten is how many directories are told apart. With more, those that stand beside each other
// become one: the directory above.
const maxWritten = 1024

// couldBeWritten reports whether a command, of any agent, could have made what is at a path.
func (b *builder) couldBeWritten(where string) bool {
	if b.profile.Written == "" {
		return false
	}
	text, err := b.tree.ReadFile(b.profile.Written, written.MaxSize)
	if errors.Is(err, unix.ENOENT) {
		return false
	}
	list, unreadable := written.Parse(text)
	return err != nil || unreadable != nil || len(text) >= written.MaxSize || list.Holds(parent(where), func(path string) (device, inode uint64) {
		object, err := b.tree.Lstat(path)
		if err != nil {
			return 0, 0
		}
		return object.Device, object.Inode
	})
}

// recordWritten adds to a file the directories that a plan's command may write, or has a layer
// over, which may be applied. It comes before the command begins.
func recordWritten(file string, plan *Plan) error {
	if file == "" {
		return nil
	}
	var roots []string
	for _, s := range plan.Steps {
		if s.Kind == Bind && s.Access != profile.ReadOnly && s.Pinned && !s.file && s.Purpose != Anchors && !within(s.Source, path.Dir(file)) {
			roots = append(roots, s.Source)
		}
	}
	if len(roots) == 0 {
		return nil
	}
	if list, err := written.Read(file); err == nil && len(lacking(list, roots)) == 0 { // most runs are in a directory where others were
		return nil
	}
	if err := addWritten(file, roots); err != nil {
		return &SetupError{Path: file, Why: "record the directories that the command may write: " + reason(err), Hint: "make room, or correct that file"}
	}
	return nil
}

// lacking are the directories that no line names as they are.
func lacking(list written.List, roots []string) written.List {
	var lacks written.List
	for _, root := range roots {
		object, err := Host{}.Lstat(root)
		d := written.Directory{Device: object.Device, Inode: object.Inode, Path: root}
		if err == nil && !slices.Contains(list, d) && !slices.Contains(lacks, d) {
			lacks = append(lacks, d)
		}
	}
	return lacks
}

// addWritten replaces the file by one that has more, while it holds the lock beside it.
func addWritten(file string, roots []string) error {
	if err := os.MkdirAll(path.Dir(file), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(file+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock(int(lock.Fd())); err != nil {
		return err
	}
	list, err := written.Read(file)
	if err != nil {
		return err
	}
	list = fewer(append(list, lacking(list, roots)...))
	if err := os.WriteFile(file+".new", []byte(list.Text()), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// flock waits for a lock, which is held for less than a millisecond at a time.
func flock(fd int) error {
	for {
		if err := unix.Flock(fd, unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}

// fewer puts one directory in the place of those that stand in it, beginning with the one that
// holds the most of them, until few are left, and their text is short.
func fewer(list written.List) written.List {
	for len(list) > maxWritten || len(list.Text()) > written.MaxSize/2 {
		beside := map[string]int{}
		most := ""
		for _, d := range list {
			above := parent(d.Path)
			if beside[above]++; above != "/" && (most == "" || beside[above] > beside[most]) {
				most = above
			}
		}
		if most == "" {
			return list
		}
		list = slices.DeleteFunc(list, func(d written.Directory) bool { return within(d.Path, most) })
		object, _ := Host{}.Lstat(most)
		list = append(list, written.Directory{Device: object.Device, Inode: object.Inode, Path: most})
	}
	return list
}

// own is this program's own directory, in which layers and homes are, that commands write.
func (p *Protection) own() string {
	if p.written == "" {
		return ""
	}
	real, err := filepath.EvalSymlinks(filepath.Dir(p.written))
	if err != nil {
		return ""
	}
	return real
}

// couldWrite reports whether any command could ever write what is at a path.
func (p *Protection) couldWrite(path string) bool {
	if own := p.own(); own != "" && within(path, own) {
		return true
	}
	list, err := written.Read(p.written)
	return err != nil || list.Holds(path, written.OnDisk)
}
