package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// maxWalked bounds how many names a walk looks at.
	maxWalked = 1_000_000
	// maxDepth bounds how deep it goes.
	maxDepth = 100
)

// A walk goes through a directory and what is below it, in the order of names. It follows no
// symbolic links below the root, and stays out of .git unless it is told otherwise.
type walk struct {
	tools
	root  string
	inGit bool
	stop  bool // set by the visitor

	seen int
	cut  bool // it did not see all
}

// found is a name that a walk came to.
type found struct {
	path  string // absolute
	below string // the path below the root
	entry fs.DirEntry
}

func (w *walk) each(visit func(found)) error {
	info, err := os.Stat(w.root)
	if err != nil {
		return failure(w.root, err)
	}
	if !info.IsDir() {
		return &Error{Code: NotFound, Path: w.root, Message: "is not a directory"}
	}
	entries, err := os.ReadDir(w.root)
	if err != nil && len(entries) == 0 {
		return failure(w.root, err)
	}
	w.entries("", 0, entries, visit)
	return nil
}

// entries visits what is in one directory. What cannot be read is passed over.
func (w *walk) entries(below string, depth int, entries []fs.DirEntry, visit func(found)) {
	for _, entry := range entries {
		if w.seen++; w.stop || w.seen > maxWalked || w.seen%64 == 0 && w.late() {
			w.cut = true
			return
		}
		f := found{path: filepath.Join(w.root, below, entry.Name()), below: strings.TrimPrefix(below+"/"+entry.Name(), "/"), entry: entry}
		visit(f)
		if !entry.IsDir() || entry.Name() == ".git" && !w.inGit {
			continue
		}
		if depth == maxDepth {
			w.cut = true
			continue
		}
		inner, _ := os.ReadDir(f.path)
		w.entries(f.below, depth+1, slices.Clip(inner), visit)
	}
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeSymlink != 0:
		return "symlink"
	}
	return "other"
}
