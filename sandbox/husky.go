package sandbox

import (
	"errors"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/mounts"
)

// husky makes the hooks in .husky/_ anew at each "npm install", and has that fail where it cannot.
// What a person keeps in .husky is protected; .husky/_ is in no commit. So the command has a
// directory of its own there, in memory, which begins with what the host has in it. What it makes
// of it the host never sees.
const (
	huskyDirectory = ".husky"
	huskyMade      = "_"
	maxHuskyFiles  = 64
	maxHuskyFile   = 64 << 10
	huskySize      = 8 << 20 // of all that is there
)

// privateHooks puts that directory into the trees. Where the host has something else there than a
// few files, it stays read-only.
func (a *attempt) privateHooks() {
	for i := range a.requests {
		tree := a.requests[i].Tree
		for k, m := range tree {
			step := a.plan.at(m.Path)
			if path.Base(m.Path) != huskyDirectory || step == nil || step.Purpose != Protects || m.Kind != mounts.Bind || m.File || m.Writable {
				continue
			}
			made := join(m.Path, huskyMade)
			files, ok := huskyFiles(join(m.Source, huskyMade))
			if a.plan.at(made) != nil || !ok {
				continue
			}
			tree[k].Kind, tree[k].Mode = mounts.Entries, 0o755 // for there to be a place
			tree = append(tree, mounts.Mount{Kind: mounts.Private, Path: made, Mode: 0o755, Size: huskySize, Files: files})
		}
		a.requests[i].Tree = tree
		a.requests[i] = inOrder(a.requests[i])
	}
}

// huskyFiles reads the files of a directory, which need not be there, following no link.
func huskyFiles(dir string) (files []mounts.File, ok bool) {
	at, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err == unix.ENOENT {
		return nil, true
	}
	if err != nil {
		return nil, false
	}
	open := os.NewFile(uintptr(at), dir)
	defer open.Close()
	names, err := open.Readdirnames(maxHuskyFiles + 1)
	if err != nil && err != io.EOF || len(names) > maxHuskyFiles {
		return nil, false
	}
	for _, name := range names {
		file, err := huskyFile(at, name)
		if err != nil {
			return nil, false
		}
		files = append(files, file)
	}
	return files, true
}

func huskyFile(at int, name string) (mounts.File, error) {
	fd, err := unix.Openat2(at, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH})
	if err != nil {
		return mounts.File{}, err
	}
	open := os.NewFile(uintptr(fd), name)
	defer open.Close()
	info, err := open.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return mounts.File{}, errors.Join(err, unix.EINVAL)
	}
	text, err := io.ReadAll(io.LimitReader(open, maxHuskyFile+1))
	if err == nil && len(text) > maxHuskyFile {
		err = unix.EFBIG
	}
	return mounts.File{Path: name, Text: string(text), Mode: info.Mode().Perm()}, err
}
