package mounts

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// A directory with something hidden in it is not mounted itself: the sandbox has one of its own in
// its place, with the host's entries mounted in it, each for itself. What comes into being there
// while the command runs is not seen, whatever it is called, and what hides something stands in a
// directory that nobody on the host can rename or replace.

// maxEntries bounds how many entries are shown in one tree.
const maxEntries = 4096

// An entry is something in a directory of the host's.
type entry struct {
	name string
	kind fs.FileMode // its type
	link string      // of a symbolic link: its text
}

// list makes places for the entries of a directory, and remembers them.
func (a *assembly) list(index int, place string) {
	dir := &a.tree[index]
	entries, err := entriesOf(dir.Source)
	if err != nil {
		a.more = append(a.more, LeftOut{dir.Path, err})
		return
	}
	total := 0
	for _, list := range a.entries {
		total += len(list)
	}
	taken := map[string]bool{}
	for i := range a.tree {
		if rel, below := cutPrefix(a.tree[i].Path, dir.Path); below && !strings.Contains(rel, "/") {
			taken[rel] = true
		}
	}
	for _, e := range entries {
		if total++; total > maxEntries {
			a.more = append(a.more, LeftOut{dir.Path, fmt.Errorf("it has more than %d entries; grant what is missing by its own name", maxEntries)})
			break
		}
		if taken[e.name] {
			continue // it is a mount of the tree's
		}
		at := place + "/" + e.name
		a.on("make", dir.Path+"/"+e.name)
		if e.kind == fs.ModeSymlink {
			a.try(unix.SYS_SYMLINKAT, e.link, stageFD, at)
			continue
		}
		a.make(at, e.kind != fs.ModeDir)
		a.entries[index] = append(a.entries[index], e)
	}
}

// entriesOf reads a directory, following no link, in the order of the names.
func entriesOf(dir string) ([]entry, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), dir)
	defer file.Close()
	found, err := file.ReadDir(maxEntries + 1)
	if err != nil && len(found) == 0 && err.Error() != "EOF" {
		return nil, err
	}
	list := make([]entry, 0, len(found))
	for _, f := range found {
		e := entry{name: f.Name(), kind: f.Type()}
		if e.kind == fs.ModeSymlink {
			text := make([]byte, unix.PathMax)
			n, err := unix.Readlinkat(fd, e.name, text)
			if err != nil {
				continue // gone
			}
			e.link = string(text[:n])
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

// fill mounts the entries of a directory, and of those in it, below an open mount of it. One that
// is gone by now, or cannot be opened, is an empty place.
func (a *assembly) fill(index int, at *result, below string) {
	dir := &a.tree[index]
	if len(a.entries[index]) > 0 {
		open := a.on("open", dir.Path).try(unix.SYS_OPENAT2, atCWD, dir.Source, a.how(), howSize)
		a.look(index, open)
		for _, e := range a.entries[index] {
			a.on("mount", dir.Path+"/"+e.name)
			object := a.call(trampoline.MayFail, unix.SYS_OPEN_TREE, open, e.name,
				unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_RECURSIVE)
			a.try(unix.SYS_MOVE_MOUNT, object, "", at, below+e.name, unix.MOVE_MOUNT_F_EMPTY_PATH)
			a.close(object)
		}
		a.close(open)
	}
	for i := index + 1; i < len(a.tree); i++ {
		if a.tree[i].own() && a.above(i) == index {
			rel, _ := cutPrefix(a.tree[i].Path, dir.Path)
			a.fill(i, at, below+rel+"/")
		}
	}
}
