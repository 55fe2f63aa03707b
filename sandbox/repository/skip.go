package repository

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// What was set aside is missing in the working tree: "git status" calls it deleted, and "git commit
// -a" commits that. So git is told not to look for it there (skip-worktree in git-update-index(1)),
// until a person has put it back or discarded it.

const (
	hasMore      = 0x4000 // of an entry's flags: there are more behind them
	skipWorktree = 0x4000 // of those
)

// SkipWorktree has git not look into the working tree for files of an index in an open git
// directory, which is at a place, or look again. Of paths, which are absolute, only those that are
// in the index count, and what is below them. It returns them.
func SkipWorktree(dir int, place, name string, paths []string, skip bool) ([]string, error) {
	tree := strings.TrimSuffix(treeOf(dir, place), "/") + "/"
	inside := map[string]string{}
	for _, path := range paths {
		if rel, is := strings.CutPrefix(path, tree); is && rel != "" {
			inside[rel] = path
		}
	}
	if len(inside) == 0 {
		return nil, nil
	}
	file, stat, err := openRegular(dir, name, maxIndex)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := readAll(file, maxIndex)
	if err != nil {
		return nil, err
	}
	formats := formatIn([]int{dir})
	data, found, err := withSkipped([]byte(text), lengthIn(formats), inside, skip)
	if err != nil || data == nil {
		return found, err
	}
	if err := checkIndex(data, formats); err != nil {
		return nil, err
	}
	return found, replaceIndex(dir, name, data, &stat, lockTimeout)
}

// withSkipped is an index with the flag of some entries set, or not set, or nil if that is so.
func withSkipped(data []byte, hash int, inside map[string]string, skip bool) (changed []byte, found []string, err error) {
	p, err := parseIndex(data, hash)
	if err != nil || p == nil || p.split { // the entries of a split one are elsewhere
		return nil, nil, err
	}
	kept, differs := slices.Clone(data[:12]), false
	for i, e := range p.entries {
		raw := data[p.starts[i]:p.starts[i+1]]
		path, is := inside[e.name]
		for at := strings.LastIndexByte(e.name, '/'); !is && at > 0; at = strings.LastIndexByte(e.name[:at], '/') {
			path, is = inside[e.name[:at]]
		}
		if is && e.stage == 0 && e.mode&unix.S_IFMT != unix.S_IFDIR {
			if len(found) == 0 || found[len(found)-1] != path {
				found = append(found, path)
			}
			entry := p.skipping(raw, e.name, skip)
			differs = differs || !bytes.Equal(raw, entry)
			raw = entry
		}
		kept = append(kept, raw...)
	}
	if !differs {
		return nil, found, nil
	}
	binary.BigEndian.PutUint32(kept[4:], max(p.version, 3)) // the first that knows more flags
	return p.with(kept), found, nil
}

// skipping is an entry with the flag, or without it.
func (p *indexParser) skipping(raw []byte, name string, skip bool) []byte {
	fixed := 40 + p.hash + 2
	flags, more, rest := binary.BigEndian.Uint16(raw[fixed-2:]), uint16(0), raw[fixed:]
	if flags&hasMore != 0 {
		more, rest = binary.BigEndian.Uint16(rest), rest[2:]
	}
	if skip {
		more |= skipWorktree
	} else {
		more &^= skipWorktree
	}
	entry := slices.Clone(raw[:fixed])
	binary.BigEndian.PutUint16(entry[fixed-2:], flags&^hasMore)
	if more != 0 {
		binary.BigEndian.PutUint16(entry[fixed-2:], flags|hasMore)
		entry = binary.BigEndian.AppendUint16(entry, more)
	}
	if p.version == 4 {
		return append(entry, rest...)
	}
	entry = append(entry, name...)
	return append(entry, make([]byte, 8-len(entry)%8)...)
}

// maxLevels is how far above a path its working tree may begin.
const maxLevels = 256

// LookAgain has git look into the working tree again for what is at a path, and below it: it was
// put back there, or discarded. Where there is no repository, nothing is done.
func LookAgain(path string) error {
	at := filepath.Dir(path)
	for range maxLevels {
		dir, place, err := openGitOf(at)
		if err == nil {
			defer unix.Close(dir)
			_, err = SkipWorktree(dir, place, "index", []string{path}, false)
			if errors.Is(err, unix.ENOENT) {
				return nil
			}
			return err
		}
		if !errors.Is(err, unix.ENOENT) || at == "/" {
			break
		}
		at = filepath.Dir(at)
	}
	return nil
}

// openGitOf opens the git directory of a working tree, through no symbolic link.
func openGitOf(tree string) (dir int, place string, err error) {
	place = filepath.Join(tree, ".git")
	if dir, err = openPlain(place); err != unix.ENOTDIR {
		return dir, place, err
	}
	above, err := openPlain(tree)
	if err != nil {
		return -1, "", err
	}
	defer unix.Close(above)
	text, err := readSmall(above, ".git")
	to, is := strings.CutPrefix(strings.TrimRight(text, "\r\n"), "gitdir: ")
	if err != nil || !is {
		return -1, "", errors.Join(unix.EINVAL, err)
	}
	if place = to; !filepath.IsAbs(place) {
		place = filepath.Join(tree, to)
	}
	dir, err = openPlain(place)
	return dir, place, err
}

// openPlain opens a directory by its path, through no symbolic link.
func openPlain(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
}
