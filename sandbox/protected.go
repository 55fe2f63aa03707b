package sandbox

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/clairun/clai-sandbox/profile"
)

// What something outside the sandbox executes later, or does as it says, is read-only in writable directories: git's hooks
// and settings, editors' tasks, agents' settings, what shells start with. Three things hold it:
//
//   - what there is of it is mounted read-only;
//   - each directory between it and the writable one is a mount of its own, because a mount cannot be renamed: "mv .git x;
//     mkdir -p .git/hooks" would go round the first;
//   - in the place of what the workspace has not, there stands an empty directory while the command runs (see
//     placeholders), so that it cannot be made either.
//
// What is not held, in other writable directories or where its directory did not exist either, is looked for when the
// command has ended.
const (
	// searchDepth and searchWidth bound the look for repositories and protected names below a writable directory.
	searchDepth = 5
	searchWidth = 256 // directories, the shallow ones first; of what is writable besides the workspace, the topmost alone
	// maxGuarded bounds what is protected in one plan: bwrap's time grows with the square of its mounts.
	maxGuarded = 64
)

// unsearched are directories that tools fill, with tens of thousands of others.
var unsearched = []string{"node_modules", ".venv", "venv", "__pycache__", ".tox", ".cache"}

// A Watched directory is looked through again when the command has ended.
type Watched struct {
	Root  string
	names *protectedNames
	known map[string]string // what was there at the start: its path, and the text of a link
	apart map[string]bool   // directories below that have a grant of their own
	width int               // how many directories are looked through
}

// protect makes what is protected read-only wherever the grants make it writable. It comes after all grants: one for a
// protected path itself stands.
func (b *builder) protect() {
	home, err := follow(b.tree, b.profile.Home)
	b.apart = map[string]bool{}
	for path := range b.layers {
		b.apart[path] = true
	}
	for _, root := range b.writableRoots() {
		b.protectIn(root, root == home.Real)
		if err == nil && home.Real != root && within(home.Real, root) && b.writable(home.Real) {
			b.protectIn(home.Real, true)
		}
	}
}

// writableRoots are the directories that grants make writable.
func (b *builder) writableRoots() []string {
	var roots []string
	for path, step := range b.layers {
		if object, err := b.tree.Lstat(path); step.Kind == Bind && step.Access == profile.ReadWrite && err == nil && object.Mode.IsDir() {
			roots = append(roots, path)
		}
	}
	slices.Sort(roots)
	return roots
}

func (b *builder) writable(path string) bool {
	step := b.layers.at(path)
	return step != nil && step.Kind == Bind && step.Access == profile.ReadWrite
}

// missing reports whether there is nothing at path but what another sandbox keeps there.
func (b *builder) missing(path string) bool {
	object, err := b.tree.Lstat(path)
	return errors.Is(err, syscall.ENOENT) || err == nil && isPlaceholder(b.tree, path, object)
}

func (b *builder) protectIn(root string, isHome bool) {
	names := b.protectedNames(isHome)
	width := 1
	workspace := b.layers[root] != nil && b.layers[root].Origin.Kind == profile.OriginWorkspace
	if workspace {
		width = searchWidth
	}
	found := search(b.tree, root, names, b.apart, width)
	watched := Watched{Root: root, names: names, known: map[string]string{}, apart: b.apart, width: width}
	for _, f := range found {
		watched.known[f.path] = f.link
		switch {
		case f.repository:
			b.repository(root, f)
		case f.link != "":
			b.protectTarget(root, f.path, f.origin)
		default:
			b.guard(f.path, f.origin)
		}
	}
	for _, name := range names.all {
		if path := join(root, name.Name); workspace && name.Held && b.missing(path) {
			b.standIn(path, name.Origin)
		}
	}
	b.watched = append(b.watched, watched)
}

// guard makes one path read-only, and holds the directories above it in place.
func (b *builder) guard(path string, origin profile.Origin) {
	if b.layers[path] != nil || !b.writable(path) {
		return // it has a grant of its own, is hidden, or is read-only already
	}
	if b.guarded++; b.guarded > maxGuarded {
		if b.guarded == maxGuarded+1 {
			b.notices = append(b.notices, Notice{Kind: NoticeProtected, Path: path,
				Text: "not protected: " + printable(path) + " and what comes after it; more than the sandbox holds read-only in one run"})
		}
		return
	}
	object, err := b.tree.Lstat(path)
	b.layers.put(Step{Kind: Bind, Path: path, Source: path, Access: profile.ReadOnly, Origin: origin, Purpose: Protects, Pinned: true, file: err == nil && !object.Mode.IsDir()})
	b.anchor(parent(path))
}

// anchor makes a directory and those above it mounts of their own, as far as the command could rename them.
func (b *builder) anchor(dir string) {
	for ; b.writable(dir) && b.writable(parent(dir)); dir = parent(dir) {
		switch step := b.layers[dir]; {
		case step == nil:
			above := b.layers.at(dir)
			b.layers.put(Step{Kind: Bind, Path: dir, Source: dir, Access: above.Access, Origin: above.Origin, Purpose: Anchors, Pinned: true, explicit: above.explicit})
		case step.Purpose == "":
			step.Purpose = Anchors
		}
	}
}

// protectTarget protects what a symbolic link leads to, where that is writable. A link cannot be a mount: whether it was
// replaced is seen when the command has ended.
func (b *builder) protectTarget(root, link string, origin profile.Origin) {
	w, err := follow(b.tree, link)
	if err == nil && within(w.Real, root) && w.Real != root {
		b.guard(w.Real, origin)
	}
	b.anchor(parent(link))
}

// standIn keeps a name from being made.
func (b *builder) standIn(path string, origin profile.Origin) {
	object, err := b.tree.Lstat(parent(path))
	if err != nil || !object.Mode.IsDir() || !b.writable(parent(path)) || b.layers[path] != nil {
		return
	}
	b.absent = append(b.absent, Step{Kind: Absent, Path: path, Mode: 0o555, Origin: origin, Purpose: StandsIn})
	b.anchor(parent(path))
}

// protectedNames are what is protected in one kind of directory, ready to be looked for.
type protectedNames struct {
	all    []profile.ProtectedPath
	byName map[string]profile.Origin // those without a slash
}

// protectedNames are those of a home, or of another directory. There may be hundreds of these.
func (b *builder) protectedNames(isHome bool) *protectedNames {
	if !isHome && b.names != nil {
		return b.names
	}
	names := &protectedNames{b.profile.ProtectedIn(isHome), map[string]profile.Origin{}}
	for _, name := range names.all {
		if !strings.Contains(name.Name, "/") {
			names.byName[name.Name] = name.Origin
		}
	}
	if !isHome {
		b.names = names
	}
	return names
}

// A find is something that must be protected.
type find struct {
	path       string
	link       string // where it is a symbolic link, the link's text
	repository bool   // a .git, or a bare repository
	origin     profile.Origin
}

// search looks for protected names and repositories in a directory and below, without following any link. Directories
// apart have a grant of their own: they are read-only, or looked through for themselves.
func search(tree Tree, root string, names *protectedNames, apart map[string]bool, width int) []find {
	var found []find
	for _, name := range names.all {
		if !strings.Contains(name.Name, "/") {
			continue
		}
		if f, ok := look(tree, join(root, name.Name), name.Origin); ok {
			found = append(found, f)
		}
	}
	type place struct {
		path  string
		depth int
	}
	queue := []place{{root, 0}}
	for seen := 0; len(queue) > 0 && seen < width; seen++ {
		at := queue[0]
		queue = queue[1:]
		entries, _ := tree.ReadDir(at.path)
		if isRepository(entries) {
			found = append(found, find{path: at.path, repository: true})
			continue
		}
		slices.SortFunc(entries, func(x, y Entry) int { return strings.Compare(x.Name, y.Name) })
		for _, entry := range entries {
			origin, protected := names.byName[entry.Name]
			switch {
			case entry.Name == ".git":
				if f, ok := look(tree, join(at.path, entry.Name), gitOrigin); ok {
					f.repository = true
					found = append(found, f)
				}
			case protected:
				if f, ok := look(tree, join(at.path, entry.Name), origin); ok {
					found = append(found, f)
				}
			case entry.Dir && at.depth < searchDepth && len(queue)+seen < width && !slices.Contains(unsearched, entry.Name):
				if path := join(at.path, entry.Name); !apart[path] {
					queue = append(queue, place{path, at.depth + 1})
				}
			}
		}
	}
	return found
}

// look describes one protected path, if it is there.
func look(tree Tree, path string, origin profile.Origin) (find, bool) {
	f := find{path: path, origin: origin}
	object, err := tree.Lstat(path)
	if err != nil || isPlaceholder(tree, path, object) {
		return f, false
	}
	if object.Mode&fs.ModeSymlink != 0 {
		f.link, _ = tree.Readlink(path)
	}
	return f, true
}
