package sandbox

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/protect"
	"github.com/clairun/clai-sandbox/sandbox/repository"
)

// What something outside the sandbox executes later, or does as it says, is read-only in writable
// directories: git's hooks and settings, editors' tasks, agents' settings, what shells start with.
// Three things hold it:
//
//   - what there is of it, at any depth, is mounted read-only;
//   - each directory between it and the writable one is a mount of its own, because a mount cannot be renamed: "mv .git x;
//     mkdir -p .git/hooks" would go round the first;
//   - what comes into being while the command runs is set aside (package protect).
//
// Where there is too much to look through, or to hold, the directory is read-only as a whole.

// maxGuarded bounds what is protected in one plan, each for itself.
const maxGuarded = 1024

// maxClosed bounds how many directories are read-only as a whole, because there is too much in
// them.
const maxClosed = 64

// repositoryWeight is how many mounts a repository takes, about.
const repositoryWeight = 4

// A Protection is what a watch of the command's directories has to know. It is nil where the
// command writes nothing.
type Protection struct {
	Roots  []string // the directories that the command may write, and all below them
	names  *protect.Names
	known  map[string]bool   // what is protected already
	git    map[string]bool   // the git directories among it
	strays map[string]string // links and the like in git directories, by path
	apart  map[string]bool   // directories below that the command may not write, or that are roots themselves

	persons          []repository.Setting // of git's, those that count in all repositories
	strict           bool                 // nothing that the command writes there is on the host before it has ended: see strict.go
	agent, workspace string
	written          string          // the file with the directories that commands could write; this program's directory holds it
	lookout          *Lookout        // what watches the roots already, if something does
	builder          builder         // as it was before anything was protected, to look again: see leads_again.go
	made             map[string]bool // git directories of commands before: see made.go
	seen             map[string]protect.Result
	guards           map[string]bool       // what is read-only because it is protected
	late             map[protect.Name]bool // that were looked for again
	unseen           []string              // directories of the home, in which not all links were looked for
}

// A Lookout is the host, for a plan that is run next: the directories that its command may write
// are watched from before Build looks through them, so that Run need not look through them again.
// Whatever comes into being under a protected name from then on is set aside.
type Lookout struct {
	Host
	watch atomic.Pointer[protect.Watch]
}

// NewLookout returns a Lookout for one plan. Where nothing more can be watched, Run returns the
// error.
func NewLookout() *Lookout {
	l := &Lookout{}
	if watch, err := protect.NewWatch(); err == nil {
		l.watch.Store(watch)
	}
	return l
}

// Close ends the watch of a plan that was not run.
func (l *Lookout) Close() {
	if l != nil {
		l.watch.Swap(nil).Close()
	}
}

// take is the watch for one run, or a new one.
func (l *Lookout) take() (*protect.Watch, error) {
	if l != nil {
		if watch := l.watch.Swap(nil); watch != nil {
			return watch, nil
		}
	}
	return protect.NewWatch()
}

// protect makes what is protected read-only wherever the grants make it writable. It comes after
// all grants: one for a protected path itself stands.
func (b *builder) protect() {
	before := *b
	before.layers = b.layers.clone()
	before.tree, before.notices, before.links, before.hidden = nil, nil, nil, nil
	if b.protectAll(); b.protection != nil {
		b.protection.builder = before
		b.protection.guards, b.protection.unseen = b.layers.guards(before.layers), b.unseen
	}
}

func (b *builder) protectAll() {
	b.protection = &Protection{names: b.protectedNames(), seen: map[string]protect.Result{}, late: map[protect.Name]bool{}, known: map[string]bool{}, git: map[string]bool{}, made: map[string]bool{}, apart: map[string]bool{}, strays: map[string]string{},
		strict: b.profile.ProtectMode == profile.ProtectStrict, agent: b.profile.Agent, workspace: b.profile.Workspace, written: b.profile.Written}
	for path, step := range b.layers {
		b.protection.apart[path] = step.Purpose != Anchors || step.Kind != Bind // an anchor is a part of the directory above it
	}
	var shared []string
	for _, root := range b.writableRoots() {
		b.protectIn(root)
	}
	for _, step := range b.layers { // what git needs of a repository elsewhere
		if step.Purpose == Worktree && step.Access == profile.ReadWrite && !slices.Contains(b.protection.Roots, step.Path) {
			shared = append(shared, step.Path)
		}
	}
	slices.Sort(shared)
	for _, root := range shared {
		b.protectIn(root)
	}
	b.protection.lookout = b.lookout()
	if len(b.protection.Roots) == 0 {
		b.protection = nil
		return
	}
	b.protection.persons = b.readGit(b.personsGit()).settings
	b.personsOwn()
	b.guardLate()
	b.protectTwins()
}

// writableRoots are the directories that grants make writable.
func (b *builder) writableRoots() []string {
	var roots []string
	for path, step := range b.layers {
		if object, err := b.tree.Lstat(path); step.Kind == Bind && step.Access == profile.ReadWrite && step.Purpose != Anchors && err == nil && object.Mode.IsDir() {
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

// protectedNames compiles what is protected by its name.
func (b *builder) protectedNames() *protect.Names {
	home, err := follow(b.tree, b.profile.Home)
	list := b.profile.ProtectedIn(err == nil)
	names := make([]protect.Name, 0, len(list))
	for _, name := range list {
		n := protect.Name{Path: name.Name, Anywhere: name.Name == "refs/replace" || name.Name == "info/grafts" || name.Name == "info/attributes"} // git's own
		if name.Home {
			n.In = home.Real
		}
		names = append(names, n)
	}
	for _, name := range profile.RewrittenFiles() {
		if b.profile.Protects(name) {
			names = append(names, protect.Name{Path: name, Link: true})
		}
	}
	names = append(append(names, b.personsRelative()...), b.shadows()...)
	compiled := protect.NewNames(names, profile.PackageDirectories())
	for _, name := range b.profile.Unprotected {
		compiled.Unprotected[strings.TrimPrefix(name, ".git/")] = true
	}
	return compiled
}

// scan looks through a directory, and has it watched if the plan is run next.
func (b *builder) scan(root string) protect.Result {
	if l := b.lookout(); l != nil && !b.protection.strict {
		if watch := l.watch.Load(); watch != nil {
			return watch.Survey(root, b.protection.names, b.isApart)
		}
	}
	return b.look(root, b.protection.names)
}

// look looks through a directory: of the host, as quickly as can be; of another tree, through it.
func (b *builder) look(root string, names *protect.Names) protect.Result {
	switch tree := b.host().(type) {
	case Host, *Lookout, *sources:
		return names.Scan(root, b.isApart, protect.DefaultLimits, nil)
	default:
		return names.Scan(root, b.isApart, protect.DefaultLimits, readerOf(tree))
	}
}

func (b *builder) isApart(path string) bool { return b.protection.apart[path] }

// host is what the builder looks at, but for its memory.
func (b *builder) host() Tree {
	if m, is := b.tree.(*memory); is {
		return m.tree
	}
	return b.tree
}

// lookout is the one that the plan is built with, if it is.
func (b *builder) lookout() *Lookout {
	l, _ := b.host().(*Lookout)
	return l
}

// readerOf reads the directories of a tree for a scan.
func readerOf(tree Tree) protect.Reader {
	return func(path string, each func(name []byte, kind protect.Kind) bool) error {
		entries, err := tree.ReadDir(path)
		for _, entry := range entries {
			kind := protect.File
			switch {
			case entry.Dir:
				kind = protect.Directory
			case entry.Link:
				kind = protect.Link
			}
			if !each([]byte(entry.Name), kind) {
				return nil
			}
		}
		return err
	}
}

func (b *builder) protectIn(root string) {
	var result protect.Result
	if b.again != nil {
		result = b.again.seen[root]
	} else {
		result = b.scan(root)
	}
	b.protection.seen[root] = result
	for _, closed := range append(result.Closed, tooMany(result.Found, root)...) {
		b.close(root, closed)
	}
	if !b.writable(root) {
		return
	}
	b.protection.Roots = append(b.protection.Roots, root)
	for _, found := range result.Links { // the person's own
		b.protection.known[found.Path] = true
	}
	for _, dir := range result.Objects {
		if name := join(dir, "alternates"); baseName(dir) == "info" {
			if text, err := b.tree.ReadFile(name, protect.MaxAlternates); err == nil {
				b.protection.strays[name] = protect.AlternatesText(text)
			}
		}
	}
	for _, found := range result.Found {
		if found.Stray {
			b.stray(found.Path)
		}
		if found.Index && protect.IsState(found.Path) {
			text, _ := b.tree.ReadFile(found.Path, protect.MaxState)
			protect.KeepState(b.protection.strays, found.Path, text)
		}
		if !b.writable(found.Path) {
			continue
		}
		if found.Rule == "" && !found.Repository || found.Repository && b.isMade(found.Path) {
			continue
		}
		f, ok := look(b.tree, found.Path, profile.Origin{Kind: profile.OriginDefault, Source: "protectedPaths"})
		if !ok {
			continue
		}
		b.protection.known[f.path] = true
		switch f.repository = found.Repository; {
		case f.repository:
			b.repository(root, f)
		case f.link != "":
			b.protectTarget(f.path, f.origin)
		default:
			b.guard(f.path, b.originOf(found.Rule))
		}
	}
}

// stray is about a symbolic link, or the like, that a person has in a git directory, where git
// makes none.
func (b *builder) stray(name string) {
	object, err := b.tree.Lstat(name)
	switch {
	case err != nil:
	case object.Mode.IsRegular():
		text, _ := b.tree.ReadFile(name, protect.MaxStash)
		if protect.IsStash(name) {
			b.protection.strays[name] = protect.StrayStash(text)
		} else if is := protect.KeptRef(name, text); is != "" {
			b.protection.strays[name] = is
		}
	case object.Mode&fs.ModeSymlink == 0:
		b.protection.strays[name] = "no file"
	default:
		target, err := b.tree.Readlink(name)
		if err != nil {
			return
		}
		b.protection.strays[name] = protect.StrayLink(baseName(name), target)
		dir := parent(name)
		if i := strings.LastIndex(dir+"/", "/.git/"); i >= 0 {
			dir = dir[:i] + "/.git"
		}
		if w, err := follow(b.tree, name); !b.toldStray && b.writable(name) && (err != nil || !within(w.Real, dir)) {
			b.toldStray = true
			b.notices = append(b.notices, Notice{Kind: NoticeProtected, Path: name,
				Text: "a link leads out of a git directory: " + printable(name) + ": git outside the sandbox writes what the command chooses to where it leads; remove it if it is not yours"})
		}
	}
}

// originOf is why a name is protected.
func (b *builder) originOf(rule string) profile.Origin {
	for _, name := range b.profile.Protected {
		if name.Name == rule {
			return name.Origin
		}
	}
	return profile.Origin{Kind: profile.OriginDefault, Source: "protectedPaths"}
}

// tooMany names directories that hold what is more than can be protected each for itself. The
// shallow ones are.
func tooMany(found []protect.Found, root string) []protect.Closed {
	weight := 0
	byDepth := slices.Clone(found)
	slices.SortStableFunc(byDepth, func(x, y protect.Found) int { return cmp.Compare(depth(x.Path), depth(y.Path)) })
	var rest []protect.Closed
	for _, f := range byDepth {
		weight++
		if f.Repository {
			weight += repositoryWeight - 1
		}
		if weight > maxGuarded {
			rest = append(rest, protect.Closed{Path: parent(f.Path), Why: "there is more in it than can be protected each for itself"})
		}
	}
	return protect.RollUp(rest, root, maxClosed)
}

// close makes a directory read-only as a whole, because what is in it cannot be protected each for
// itself.
func (b *builder) close(root string, closed protect.Closed) {
	if !b.writable(closed.Path) {
		return
	}
	step := b.layers.at(closed.Path)
	object, err := b.tree.Lstat(closed.Path)
	if err != nil {
		return // it is gone
	}
	b.protection.apart[closed.Path] = true
	b.layers.put(Step{Kind: Bind, Path: closed.Path, Source: closed.Path, Access: profile.ReadOnly, Origin: step.Origin, Purpose: Protects, Pinned: true,
		file: !object.Mode.IsDir(), expected: step.expected, inLayer: step.Layer != ""})
	if closed.Path != root {
		b.anchor(parent(closed.Path))
	}
	if int(object.UID) == os.Getuid() || !strings.Contains(closed.Why, syscall.EACCES.Error()) { // another user's: not the command's to write anyway
		b.notices = append(b.notices, Notice{Kind: NoticeProtected, Path: closed.Path,
			Text: "read-only in this run: " + printable(closed.Path) + ": " + printable(closed.Why) + ", so that nothing in it could be protected by itself"})
	}
}

// guard makes one path read-only, and holds the directories above it in place.
func (b *builder) guard(path string, origin profile.Origin) {
	b.protection.known[path] = true
	if step := b.layers[path]; step != nil && step.Purpose != Anchors || !b.writable(path) {
		return // it has a grant of its own, is hidden, or is read-only already
	}
	if b.guarded++; b.guarded > 4*maxGuarded {
		b.refused = &SetupError{Path: path, Why: "is one of more protected paths than one sandbox holds", Hint: "choose a smaller workspace with --workspace DIR"}
		return
	}
	object, err := b.tree.Lstat(path)
	if b.layers[path] != nil { // an anchor; those below it stand on it
		for below, step := range b.layers {
			if step.Purpose == Anchors && within(below, path) {
				step.Access = profile.ReadOnly
			}
		}
	}
	b.layers.put(Step{Kind: Bind, Path: path, Source: path, Access: profile.ReadOnly, Origin: origin, Purpose: Protects, Pinned: true, file: err == nil && !object.Mode.IsDir(),
		inLayer: b.layers.at(path).Layer != ""})
	b.anchor(parent(path))
	if err == nil && object.Mode.IsDir() {
		b.leadAll(path, origin, linkedLevels, false)
	}
}

// anchor makes a directory and those above it mounts of their own, as far as the command could
// rename them.
func (b *builder) anchor(dir string) {
	for ; b.writable(dir) && b.writable(parent(dir)); dir = parent(dir) {
		switch step := b.layers[dir]; {
		case step == nil:
			above := b.layers.at(dir)
			if above.Layer != "" {
				return // what the host has there cannot be renamed, but in the layer
			}
			b.layers.put(Step{Kind: Bind, Path: dir, Source: dir, Access: above.Access, Origin: above.Origin, Purpose: Anchors, Pinned: true, explicit: above.explicit})
		case step.Purpose == "":
			step.Purpose = Anchors
		}
	}
}

// protectTarget protects what a symbolic link leads to, where that is writable. A link cannot be a
// mount: another one in its place is set aside.
func (b *builder) protectTarget(link string, origin profile.Origin) {
	b.lead(link, origin)
	b.anchor(parent(link))
}

// await protects a path that does not exist: it is set aside when it comes into being.
func (b *builder) await(path string) {
	b.protection.names.Add(protect.Name{Path: baseName(path), In: parent(path), Rule: baseName(path)})
}

// awaitLinks protects the symbolic links on the way to what is protected: another thing in the
// place of one leads elsewhere, and is set aside.
func (b *builder) awaitLinks(w walk) {
	for _, link := range w.Links {
		if b.writable(link.Path) {
			b.protection.known[link.Path] = true
			b.await(link.Path)
			b.anchor(parent(link.Path))
		}
	}
}

// SetsAside reports whether what a command would make at a path would be set aside, and what leaves
// the path writable.
func (p *Plan) SetsAside(host Tree, path string) (rule string, is bool) {
	w, err := follow(inside{p, host}, path)
	if err != nil {
		if !errors.Is(err, syscall.ENOENT) {
			return "", false
		}
		w.Real = join(w.Real, strings.Join(w.Rest, "/"))
	} else if !w.Object.Mode.IsDir() && p.Protection != nil && p.Protection.known[w.Real] {
		return "", false // read-only
	}
	if step := p.decides(w.Real); step == nil || step.Kind != Bind || step.Access != profile.ReadWrite {
		return "", false
	}
	if p.Protection != nil {
		if rule, is := p.Protection.names.MatchLeaf(parent(w.Real), baseName(w.Real), strings.Contains(w.Real, ".git/")); is {
			return rule, true
		}
	}
	return p.Protection.awaits(w.Real)
}

// awaits reports whether a path is set aside when it comes into being, and what leaves it writable.
func (p *Protection) awaits(path string) (rule string, protected bool) {
	if p == nil {
		return "", false
	}
	inPackages := func(path string) bool {
		for _, root := range p.Roots {
			if within(path, root) {
				return p.names.InPackages(path[len(root):])
			}
		}
		return false
	}
	for ; path != "/"; path = parent(path) {
		if rule, protected = p.names.Match(parent(path), baseName(path), inPackages(parent(path))); protected {
			return rule, true
		}
	}
	return "", false
}

// A find is something that must be protected.
type find struct {
	path       string
	link       string // where it is a symbolic link, the link's text
	repository bool   // a .git, or a bare repository
	origin     profile.Origin
}

// look describes one protected path, if it is there.
func look(tree Tree, path string, origin profile.Origin) (find, bool) {
	f := find{path: path, origin: origin}
	object, err := tree.Lstat(path)
	if err != nil {
		return f, false
	}
	if object.Mode&fs.ModeSymlink != 0 {
		f.link, _ = tree.Readlink(path)
	}
	return f, true
}
