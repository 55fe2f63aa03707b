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

// hide covers the profile's hidden paths, as far as a grant above them shows them. It comes after all grants: one for a
// hidden path itself, or below it, or an explicit one above it, stands.
//
// A path that does not exist cannot be covered: there is nothing to mount on, and nothing is made on the host for it. The
// second lock keeps it from being read when it comes into being (see landlock_files.go).
func (b *builder) hide() {
	hidden := slices.Clone(b.profile.Hidden)
	slices.SortStableFunc(hidden, func(x, y profile.HiddenPath) int { return depth(x.Path) - depth(y.Path) })
	for _, h := range hidden {
		w, err := follow(b.tree, h.Path)
		if errors.Is(err, syscall.ENOENT) && len(w.Rest) > 0 {
			if above := b.layers.at(w.Real); above != nil && above.Kind == Bind && !above.explicit {
				b.hidden = append(b.hidden, path.Join(w.Real, path.Join(w.Rest...)))
			}
			continue
		}
		if err != nil {
			continue
		}
		above := b.layers.at(w.Real)
		if above == nil || above.Kind != Bind || above.Path == w.Real || above.explicit {
			continue
		}
		b.hidden = append(b.hidden, w.Real)
		b.anchor(parent(w.Real)) // or the command moves it to where the next one finds it
		if w.Object.Mode.IsDir() {
			b.cover(w, 0o555, h.Keep, h.Origin)
			b.layers[w.Real].Purpose = Hides
		} else {
			b.layers.put(Step{Kind: Empty, Path: w.Real, Mode: 0o444, Origin: h.Origin, Purpose: Hides})
		}
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

// matching lists the names in dir that a pattern means, in order. The pattern may have one directory before it.
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
