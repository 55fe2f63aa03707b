package sandbox

import (
	"errors"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/clairun/clai-sandbox/profile"
)

// maxKept bounds how many files of one covered directory are shown again.
const maxKept = 64

// hide covers the profile's hidden paths, as far as a grant above them shows them. It comes after
// all grants: one for a hidden path itself, or below it, or an explicit one above it, stands.
//
// What is only read is shown entry by entry where something in it is hidden: so what hides cannot
// be taken away by anybody, and what does not exist yet does not appear. What is seen copy on write
// has a veil between the host's and the command's for that. In what the command may write,
// something that does not exist cannot be covered: there is nothing to mount on, and nothing is
// made on the host for it.
func (b *builder) hide() {
	hidden := slices.Clone(b.profile.Hidden)
	slices.SortStableFunc(hidden, func(x, y profile.HiddenPath) int { return depth(x.Path) - depth(y.Path) })
	for _, h := range hidden {
		w, err := follow(b.tree, h.Path)
		if errors.Is(err, syscall.ENOENT) && len(w.Rest) > 0 {
			if above := b.layers.at(w.Real); above != nil && above.Kind == Bind && (h.Enforced || !above.explicit) && !above.Image {
				b.hideAt(path.Join(w.Real, path.Join(w.Rest...)), h)
				b.enumerate(w.Real)
				if above.Layer != "" {
					above.veiled += strings.TrimPrefix(join(w.Real, w.Rest[0]), above.Path+"/") + "\x00"
				}
			}
			continue
		}
		if err != nil {
			continue
		}
		above := b.layers.at(w.Real)
		if above == nil || above.Kind != Bind || above.Image || !h.Enforced && (above.Path == w.Real || above.explicit) {
			continue
		}
		b.hideAt(w.Real, h)
		b.enumerate(parent(w.Real))
		b.anchor(parent(w.Real)) // or the command moves it to where the next one finds it
		if w.Object.Mode.IsDir() {
			b.cover(w, 0o555, h.Keep, h.Origin)
			b.layers[w.Real].Purpose = Hides
		} else {
			b.layers.put(Step{Kind: Empty, Path: w.Real, Mode: 0o444, Origin: h.Origin, Purpose: Hides})
		}
		b.layers[w.Real].inLayer = above.Layer != ""
	}
	for _, own := range b.own {
		if _, err := b.tree.Lstat(own); err == nil && b.layers.shows(own) {
			b.enumerate(parent(own))
		}
	}
}

// hideAt notes that a path is not to be seen.
func (b *builder) hideAt(path string, h profile.HiddenPath) {
	b.hidden = append(b.hidden, path)
	if h.Enforced {
		b.forGood = append(b.forGood, path)
	}
}

// enumerate shows a directory, and those above it, entry by entry, as far as they are a grant's and
// only read.
func (b *builder) enumerate(dir string) {
	for {
		above := b.layers.at(dir)
		if above == nil || above.Kind != Bind || !above.Pinned || above.Access != profile.ReadOnly || above.Purpose != "" && above.Purpose != Leads || above.file {
			return
		}
		if above.Path != dir {
			b.layers.put(Step{Kind: Bind, Path: dir, Source: dir, Access: profile.ReadOnly, Origin: above.Origin, Purpose: Leads, Pinned: true, explicit: above.explicit})
		}
		b.layers[dir].Entries = true
		if dir == "/" {
			return
		}
		dir = parent(dir)
	}
}

// cover puts an empty directory over one of the host's, and copies of some of its files into it.
func (b *builder) cover(w walk, mode uint32, keep []string, origin profile.Origin) {
	b.add(w, Step{Kind: Mask, Path: w.Real, Mode: fileMode(mode), Origin: origin})
	for _, pattern := range keep {
		for _, name := range b.matching(w.Real, pattern) {
			file, err := follow(b.tree, join(w.Real, name))
			if err == nil && file.Object.Mode.IsRegular() {
				b.kept = append(b.kept, Step{Kind: Copy, Path: join(w.Real, name), Source: file.Real, Mode: 0o644, Origin: origin})
			}
		}
	}
}

// matching lists the names in dir that a pattern means, in order. The pattern may have one
// directory before it.
func (b *builder) matching(dir, pattern string) []string {
	if !strings.Contains(pattern, "*") {
		return []string{pattern}
	}
	below, pattern := path.Split(pattern)
	entries, _ := b.tree.ReadDir(path.Join(dir, below))
	var list []string
	for _, entry := range entries {
		if ok, _ := path.Match(pattern, entry.Name); ok {
			list = append(list, below+entry.Name)
		}
	}
	slices.Sort(list)
	return list[:min(len(list), maxKept)]
}
