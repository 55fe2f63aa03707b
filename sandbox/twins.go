package sandbox

import (
	"fmt"
	"maps"
	"slices"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/protect"
)

// A file that is read-only under one name is written by another one (a hard link), which an earlier
// command may have made when nobody had named the file yet. So the other names of what is protected
// are read-only, too; and so are those of what programs start with, which people keep in a
// directory of their own: "ln ~/dotfiles/bashrc ~/.bashrc". While a command runs, a copy takes the
// file's place (protect.Watch.Guard).

// maxTwinsAsked is how many files in protected directories are looked at. Past it, the run is
// refused. Agents keep whole working trees in theirs (.claude/worktrees), with all that is
// installed there. A test has less.
var maxTwinsAsked = 1 << 19

var twinOrigin = profile.Origin{Kind: profile.OriginDefault, Source: "protectedPaths"}

// protectTwins protects the other names of what is protected.
func (b *builder) protectTwins() {
	switch b.host().(type) {
	case Host, *Lookout:
	default:
		return
	}
	if b.protection.strict {
		return // to write a file of a layer is to have another one
	}
	files, asked := maps.Clone(b.outside), 0
	if files == nil {
		files = map[[2]uint64]bool{}
	}
	for _, path := range slices.Sorted(maps.Keys(b.protection.known)) {
		if step := b.layers[path]; step != nil && step.Purpose == Protects {
			b.withTwins(path, files, &asked)
			if asked > maxTwinsAsked {
				b.refused = &SetupError{Path: path, Why: fmt.Sprintf("is protected, as others are, and together these hold more than %d files, whose other names cannot all be looked for", maxTwinsAsked),
					Hint: "choose a smaller workspace with --workspace DIR, or leave a name writable with --unprotect NAME"}
				return
			}
		}
	}
	if len(files) == 0 {
		return
	}
	inodes := map[uint64]bool{}
	for object := range files {
		inodes[object[1]] = true
	}
	for _, root := range b.protection.Roots {
		var twins []string
		err := protect.Twins(root, b.isApart, protect.DefaultLimits, func(inode uint64) bool { return inodes[inode] }, func(path string, device, inode uint64) {
			if files[[2]uint64{device, inode}] && b.writable(path) {
				twins = append(twins, path)
			}
		})
		if err != nil {
			b.refused = &SetupError{Path: root, Why: "holds files that are protected and have other names, which could not be looked for: " + reason(err),
				Hint: "choose a smaller workspace with --workspace DIR"}
		}
		for _, path := range twins {
			b.guard(path, twinOrigin)
		}
	}
}

// withTwins collects the files at a path, or below it, that have other names.
func (b *builder) withTwins(path string, files map[[2]uint64]bool, asked *int) {
	if *asked++; *asked > maxTwinsAsked {
		return
	}
	object, err := b.tree.Lstat(path)
	switch {
	case err != nil:
	case object.Mode.IsRegular() && object.Names > 1:
		files[[2]uint64{object.Device, object.Inode}] = true
	case object.Mode.IsDir():
		entries, _ := b.tree.ReadDir(path)
		for _, entry := range entries {
			if !entry.Link {
				b.withTwins(join(path, entry.Name), files, asked)
			}
		}
	}
}

// linkedOutside remembers a file that something outside obeys, or executes, if it has other names:
// the command may write it by one of them.
func (b *builder) linkedOutside(path string, object Object) {
	switch {
	case !object.Mode.IsRegular(), object.Names < 2, b.writable(path):
		return
	case int(object.UID) != b.profile.UID && object.Mode.Perm()&0o022 == 0, slices.ContainsFunc(systemTrees, func(dir string) bool { return within(path, dir) }):
		return // nobody can write it
	case b.outside == nil:
		b.outside = map[[2]uint64]bool{}
	}
	b.outside[[2]uint64{object.Device, object.Inode}] = true
}

func (b *builder) linkedOutsideAt(path string) {
	if w, err := follow(b.tree, path); err == nil {
		b.linkedOutside(w.Real, w.Object)
	}
}

// linkedOutsideIn is linkedOutside for each file in a directory.
func (b *builder) linkedOutsideIn(dir string) {
	entries, _ := b.tree.ReadDir(dir)
	for _, entry := range entries {
		if !entry.Dir {
			b.linkedOutsideAt(join(dir, entry.Name))
		}
	}
}
