package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/cow"
	"github.com/clairun/clai-sandbox/sandbox/cow/changes"
	"github.com/clairun/clai-sandbox/sandbox/protect"
	"github.com/clairun/clai-sandbox/sandbox/repository"
)

// With --protect-mode strict, the command sees each directory that it may write through a layer of
// this one run. Nothing that it makes is on the host while it runs. When every process of it has
// ended, what stands under a protected name goes from the layer into the quarantine, repositories
// that it made lose what git executes, and only then is the rest brought to the host, as package
// changes does it: what the host changed meanwhile stays as it is, and the command's change of it
// stays in the layer.

const (
	// maxStrictLayers is how many runs of one agent may have, or have left, changes of one
	// directory.
	maxStrictLayers = 16
	strictSuffix    = "-run"
)

// strict reports whether what is written there is brought to the host when the command has ended.
func (s *Step) strict() bool {
	return s.Kind == Bind && s.Layer != "" && s.Access == profile.ReadWrite
}

// keepBack has what the command writes in directories kept in layers, if that is asked for. It
// comes after all grants.
func (b *builder) keepBack() {
	for _, path := range b.writableRoots() {
		b.keepBackAt(path)
	}
}

func (b *builder) keepBackAt(path string) {
	if step := b.layers[path]; b.profile.ProtectMode == profile.ProtectStrict && step.Access == profile.ReadWrite {
		step.Layer = join(b.profile.Layers, cow.Name(path)+strictSuffix)
	}
}

// isEmpty reports whether a layer holds no change, and no apply of it was interrupted.
func isEmpty(dir string) bool {
	if _, err := os.Lstat(join(dir, "journal")); err == nil {
		return false
	}
	empty, err := cow.IsEmpty(dir)
	return err == nil && empty
}

// bringHome brings what the command wrote to the host. All processes of the command have ended.
func (a *attempt) bringHome(l Launcher, began time.Time) []Notice {
	p := a.plan.Protection
	if p == nil || !p.strict {
		return nil
	}
	texts := a.settings.texts()
	if a.mounter != nil { // it has the layers mounted
		a.mounter.Close()
		a.mounter = nil
	}
	q := l.quarantine(p)
	var notices []Notice
	var looked error
	for i, layer := range a.layers.takeStrict() {
		about, err := cow.Read(layer.Dir)
		if i == 0 {
			p, looked = p.withAgain()
		}
		if err = errors.Join(err, looked); err == nil && !isEmpty(layer.Dir) {
			h := homecoming{path: about.Path, began: began, layer: layer, p: p, guarded: a.plan.guarded(), texts: texts, q: q, report: protect.Report{Taken: map[string][]protect.Taken{}}}
			err = h.bring()
			notices = append(notices, reported(q, h.report)...)
			notices = append(notices, h.notices...)
		}
		layer.Close()
		if err != nil {
			notices = append(notices, Notice{Kind: NoticeProtected, Path: about.Path,
				Text: "what the command wrote was not brought to " + printable(about.Path) + ": " + printable(reason(err)) + "; " + lookAt(layer.Dir)})
		}
	}
	return notices
}

// guarded are the paths that are protected each for itself.
func (p *Plan) guarded() map[string]bool {
	list := map[string]bool{}
	for i := range p.Steps {
		if p.Steps[i].Purpose == Protects {
			list[p.Steps[i].Path] = true
		}
	}
	return list
}

// takeStrict takes the layers that are to be brought home out of those that are open.
func (o *openLayers) takeStrict() []*cow.Layer {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []*cow.Layer
	for _, path := range slices.Sorted(maps.Keys(o.byPath)) {
		if layer := o.byPath[path]; isStrict(layer.Dir) {
			list = append(list, layer)
			delete(o.byPath, path)
		}
	}
	return list
}

// isStrict reports whether a layer is of one run, by its name.
func isStrict(dir string) bool {
	name := filepath.Base(dir)
	if i := strings.LastIndexByte(name, '-'); i >= 0 && strings.Trim(name[i+1:], "0123456789") == "" {
		name = name[:i]
	}
	return strings.HasSuffix(name, strictSuffix)
}

// lookAt is how a person looks at a layer that was left.
func lookAt(dir string) string {
	return "it is kept: clai-sandbox changes show " + Quote(filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir)) + " shows it, and changes apply or discard ends it"
}

// leftBehind tells of what commands wrote whose launcher was killed before it was brought to the
// host.
func leftBehind(state string) []Notice {
	layers := filepath.Join(state, "layers")
	agents, _ := os.ReadDir(layers)
	var dirs []string
	for _, agent := range agents {
		names, _ := os.ReadDir(filepath.Join(layers, agent.Name()))
		for _, name := range names {
			if dir := filepath.Join(layers, agent.Name(), name.Name()); isStrict(dir) && !isEmpty(dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	var notices []Notice
	for _, dir := range dirs[:min(len(dirs), maxSetAside)] {
		layer, err := cow.Take(dir)
		if err != nil {
			continue // it is in use
		}
		about, err := cow.Read(dir)
		if err == nil && !isEmpty(dir) {
			notices = append(notices, Notice{Kind: NoticeProtected, Path: about.Path,
				Text: "what an earlier command wrote in " + printable(about.Path) + " is not on the host, or not all of it: " + lookAt(dir)})
		}
		layer.Close()
	}
	return notices
}

// A homecoming is one layer on its way to the host.
type homecoming struct {
	path    string // of the host's directory
	layer   *cow.Layer
	p       *Protection
	guarded map[string]bool   // what was read-only inside
	texts   map[string]string // what links to copies of git's settings lead to
	q       *protect.Quarantine
	upper   *os.Root
	host    *os.Root
	closed  []protect.Closed // not looked through: nothing there is brought
	began   time.Time
	missing []string // what was set aside
	useless []string // sockets and the like, of processes that are gone
	report  protect.Report
	notices []Notice
}

func (h *homecoming) bring() (err error) {
	if h.upper, err = os.OpenRoot(h.layer.Upper()); err != nil {
		return err
	}
	defer h.upper.Close()
	if h.host, err = os.OpenRoot(h.path); err != nil {
		return err
	}
	defer h.host.Close()
	names := *h.p.names
	names.Inward = func(path string) bool {
		text, err := h.upper.Readlink(h.relative(path))
		return err == nil && protect.LeadsInward(path, text, h.p.own())
	}
	found := names.Scan(h.path, nil, protect.DefaultLimits, h.read)
	h.closed = found.Closed
	for _, name := range h.useless {
		h.upper.Remove(name)
	}
	for _, f := range append(found.Links, found.Found...) {
		if f.Rule == "" && f.Stray && h.isStray(f.Path) && !h.putInstead(f.Path) {
			h.setAside(f.Path, ".git")
		}
		if f.Index && h.badIndex(f.Path) {
			h.setAside(f.Path, ".git")
		}
		if f.Rule != "" || f.Inward {
			h.setAside(f.Path, f.Rule)
		}
	}
	if !h.p.names.Unprotected[".git"] {
		h.objects(found.Objects)
		h.packedRefs(found.Packed)
		h.shadows(found.Refs)
	}
	for _, f := range found.Found {
		if f.Repository && h.badGitFile(f.Path) {
			h.setAside(f.Path, ".git")
		} else if f.Repository {
			if err := h.repository(f.Path); err != nil {
				h.closed = append(h.closed, protect.Closed{Path: f.Path, Why: "what git would execute could not be taken out of it: " + reason(err)})
			}
		}
	}
	h.skipMissing(found)
	return h.apply()
}

// skipMissing has git not take what was set aside for deleted.
func (h *homecoming) skipMissing(found protect.Result) {
	for _, f := range append(found.Links, found.Found...) {
		if !f.Index || !strings.EqualFold(baseName(f.Path), "index") || len(h.missing) == 0 {
			continue
		}
		if dir, err := h.upper.Open(h.relative(parent(f.Path))); err == nil {
			repository.SkipWorktree(int(dir.Fd()), parent(f.Path), baseName(f.Path), h.missing, true) // without it, git calls them deleted
			dir.Close()
		}
	}
}

// relative is a path below the directory, as os.Root takes it.
func (h *homecoming) relative(path string) string {
	if path == h.path {
		return "."
	}
	rel, _ := strings.CutPrefix(path, strings.TrimSuffix(h.path, "/")+"/")
	return rel
}

// gitSigns are the names by which git knows one of its directories.
var gitSigns = []string{"HEAD", "objects", "refs", "config", "config.worktree", "commondir", "gitdir", "hooks"}

// read tells the names in a directory of the layer, and of the host's the ones that are git's: half
// of a repository may be there already.
func (h *homecoming) read(path string, each func(name []byte, kind protect.Kind) bool) error {
	rel := h.relative(path)
	dir, err := h.upper.Open(rel)
	if err != nil {
		return unwrapped(err)
	}
	defer dir.Close()
	have := map[string]bool{}
	for {
		entries, err := dir.ReadDir(1024)
		for _, entry := range entries {
			name, kind := entry.Name(), protect.File
			switch {
			case entry.IsDir():
				kind = protect.Directory
			case entry.Type()&fs.ModeSymlink != 0:
				kind = protect.Link
			case entry.Type()&fs.ModeCharDevice != 0: // what stands for a removed file; there are no others
				continue
			case !entry.Type().IsRegular():
				h.useless = append(h.useless, filepath.Join(rel, name))
				continue
			}
			if slices.Contains(gitSigns, name) {
				have[name] = true
			}
			if !each([]byte(name), kind) {
				return nil
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	for _, name := range gitSigns { // also of what the command removed: that may stay
		if _, err := h.host.Lstat(filepath.Join(rel, name)); err == nil && !have[name] && !each([]byte(name), protect.File) {
			return nil
		}
	}
	return nil
}

// unwrapped is an error that package protect knows.
func unwrapped(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// setAside moves what is at a path in the layer into the quarantine. An empty directory is removed.
func (h *homecoming) setAside(path, rule string) {
	dir, err := h.upper.Open(h.relative(parent(path)))
	if errors.Is(err, fs.ErrNotExist) {
		return // it lies in something that was set aside
	}
	if err != nil {
		h.refuse(path, err)
		return
	}
	defer dir.Close()
	if unix.Unlinkat(int(dir.Fd()), baseName(path), unix.AT_REMOVEDIR) == nil {
		return
	}
	told := protect.Told{Path: path, Rule: rule}
	told.ID, err = h.q.Put(int(dir.Fd()), baseName(path), path, rule)
	if _, there := h.host.Lstat(h.relative(path)); err == nil && errors.Is(there, fs.ErrNotExist) {
		h.missing = append(h.missing, path)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return
	case err != nil:
		h.refuse(path, err)
		return
	}
	if len(h.report.Told) < maxSetAside {
		h.report.Told = append(h.report.Told, told)
	} else {
		h.report.More++
	}
}

// refuse has what is at a path stay in the layer.
func (h *homecoming) refuse(path string, err error) {
	h.closed = append(h.closed, protect.Closed{Path: path, Why: "something outside the sandbox would execute it or do as it says, and it could not be set aside: " + reason(err)})
}

// badIndex reports whether git would write where it must not because of an index.
func (h *homecoming) badIndex(path string) bool {
	if info, err := h.upper.Lstat(h.relative(path)); err != nil {
		return false
	} else if strings.EqualFold(baseName(path), "MERGE_RR") { // what it is about may be on either side, and change
		return info.Size() > 0
	} else if protect.IsState(path) {
		text, err := h.upper.ReadFile(h.relative(path))
		return info.Size() > protect.MaxState || err != nil || protect.CheckState(path, string(text), protect.KeptState(h.p.strays, path), false, true) != nil
	}
	dir, err := h.upper.Open(h.relative(parent(path)))
	if err != nil {
		return true
	}
	defer dir.Close()
	var settings []int
	for _, root := range []*os.Root{h.upper, h.host} {
		for _, of := range []string{parent(path), parent(parent(parent(path)))} { // a worktree's settings are its repository's
			if open, err := root.Open(h.relative(of)); err == nil && within(of, h.path) {
				defer open.Close()
				settings = append(settings, int(open.Fd()))
			}
		}
	}
	err = repository.CheckIndex(int(dir.Fd()), settings, baseName(path), true)
	return err != nil && !errors.Is(err, repository.ErrMended)
}

// objects sets aside what is not what its name says among git's objects.
func (h *homecoming) objects(dirs []string) {
	for _, path := range dirs {
		dir, err := h.upper.Open(h.relative(path))
		if err != nil {
			h.refuse(path, err)
			continue
		}
		below := -1
		if host, err := h.host.Open(h.relative(path)); err == nil {
			defer host.Close()
			below = int(host.Fd())
		}
		bad, told := protect.CheckObjects(newObjectCheck, h.began, int(dir.Fd()), below, path, h.path, h.p.couldWrite)
		dir.Close()
		h.report.Told = append(h.report.Told, told...)
		for _, name := range bad {
			h.setAside(join(path, name), ".git")
		}
	}
}

// shadows sets aside directories of branches and tags that the host has not, and that are called as
// remote repositories are.
func (h *homecoming) shadows(dirs []string) {
	for _, path := range dirs {
		git, name, _ := protect.MayShadow(path)
		_, err := h.host.Lstat(h.relative(path))
		if err != nil && h.isRemote(git, name) {
			h.setAside(path, ".git")
		}
	}
}

// isRemote reports whether a git directory has branches of a remote repository that is called so.
func (h *homecoming) isRemote(git, name string) bool {
	for _, root := range []*os.Root{h.upper, h.host} {
		if _, err := root.Lstat(h.relative(join(git, "refs/remotes/"+name))); err == nil {
			return true
		}
		text, _ := root.ReadFile(h.relative(join(git, "packed-refs")))
		if strings.Contains(string(text), " refs/remotes/"+name+"/") {
			return true
		}
	}
	return false
}

// packedRefs takes out of what git keeps the names of branches in what redirects.
func (h *homecoming) packedRefs(dirs []string) {
	for _, path := range dirs {
		dir, err := h.upper.Open(h.relative(path))
		if err != nil {
			h.refuse(path, err)
			continue
		}
		name := join(path, "packed-refs")
		before, _ := h.host.ReadFile(h.relative(name))
		refs := protect.Refs{IsRemote: func(remote string) bool { return h.isRemote(path, remote) }, IsObject: func(hex string) bool { return h.isObject(path, hex) },
			WasThere: func(ref string) bool { return h.p.strays[join(path, ref)] != "" }}
		switch out, err := protect.CheckPackedRefs(int(dir.Fd()), string(before), refs); {
		case err != nil:
			h.setAside(name, ".git")
		case len(out) > 0:
			h.report.Told = append(h.report.Told, protect.Told{Path: name, Text: protect.TakenRefs(out)})
		}
		dir.Close()
	}
}

// badGitFile reports whether a file .git leads where it must not.
func (h *homecoming) badGitFile(path string) bool {
	if info, err := h.upper.Lstat(h.relative(path)); err != nil || !info.Mode().IsRegular() {
		return false
	}
	dir, err := h.upper.Open(h.relative(parent(path)))
	if err != nil {
		return true
	}
	defer dir.Close()
	return repository.CheckGitFile(int(dir.Fd()), baseName(path), parent(path), repository.Place{Writes: h.writes, IsPlain: h.isPlain}) != nil
}

// writes reports whether the command may write what is at a path.
func (h *homecoming) writes(path string) bool {
	return slices.ContainsFunc(h.p.Roots, func(root string) bool {
		for at := path; at != root && at != "/"; at = parent(at) {
			if h.p.apart[at] {
				return false
			}
		}
		return within(path, root)
	})
}

// isPlain reports whether no symbolic link will be on the way to a path.
func (h *homecoming) isPlain(path string) bool {
	for at := path; at != h.path && within(at, h.path); at = parent(at) {
		if info, err := h.upper.Lstat(h.relative(at)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return false
		}
	}
	return repository.IsPlain(path)
}

// putInstead puts settings in the place of a link to a copy of them: see settings.instead.
func (h *homecoming) putInstead(path string) bool {
	link, err := h.upper.Readlink(h.relative(path))
	text, is := h.texts[link]
	if err != nil || !is {
		return false
	}
	dir, err := h.upper.Open(h.relative(parent(path)))
	if err != nil {
		return false
	}
	defer dir.Close()
	taken, err := repository.Instead(int(dir.Fd()), baseName(path), text)
	if len(taken) > 0 {
		h.report.Taken[parent(path)] = takenOf(taken)
	}
	return err == nil
}

// isStray reports whether git has no such thing in its directories, and the host not, either.
func (h *homecoming) isStray(path string) bool {
	if info, err := h.upper.Lstat(h.relative(path)); err == nil && info.Mode().IsRegular() && !protect.IsStash(path) {
		text, err := h.stash(h.upper, path)
		dir := parent(path)
		is := protect.StrayRef(path, text, func(hex string) bool { return h.isObject(dir, hex) }, func(name string) bool { return h.isRef(dir, name) })
		return err != nil || is != "" && is != h.p.strays[path] && !h.wasPacked(path)
	}
	return !h.isOld(path)
}

// wasPacked reports whether the host has a ref in its packed-refs.
func (h *homecoming) wasPacked(path string) bool {
	objects, _ := protect.ObjectsOf(parent(path))
	git := parent(objects)
	text, _ := h.host.ReadFile(h.relative(join(git, "packed-refs")))
	return strings.Contains(string(text), " "+strings.TrimPrefix(path, git+"/")+"\n")
}

// isRef reports whether a git directory has a ref that git takes for a name, or the one that it is
// a worktree of.
func (h *homecoming) isRef(git, name string) bool {
	if above := parent(git); baseName(above) == "worktrees" {
		git = parent(above)
	}
	for _, root := range []*os.Root{h.upper, h.host} {
		text, err := root.ReadFile(h.relative(join(git, "packed-refs")))
		if err != nil && !errors.Is(err, fs.ErrNotExist) || protect.HasPackedRef(string(text), name) {
			return true
		}
		for _, place := range protect.RefPlaces {
			if _, err := root.Lstat(h.relative(join(git, place+name))); err == nil {
				return true
			}
		}
	}
	return false
}

// isObject reports whether the repository that a directory of refs belongs to has an object whose
// name begins so.
func (h *homecoming) isObject(dir, hex string) bool {
	objects, _ := protect.ObjectsOf(dir)
	for _, root := range []*os.Root{h.upper, h.host} {
		if dir, err := root.Open(h.relative(objects)); err == nil {
			is := protect.HasObject(int(dir.Fd()), hex)
			dir.Close()
			if is {
				return true
			}
		}
	}
	return false
}

// isOld reports whether the host has the same link already, or the same stash.
func (h *homecoming) isOld(path string) bool {
	if info, err := h.upper.Lstat(h.relative(path)); err == nil && info.Mode().IsRegular() {
		text, err := h.stash(h.upper, path)
		old, err2 := h.stash(h.host, path)
		return err == nil && err2 == nil && old == text
	}
	old, err := h.host.Readlink(h.relative(path))
	link, err2 := h.upper.Readlink(h.relative(path))
	return err == nil && err2 == nil && old == link
}

// stash is what a stash of git's holds.
func (h *homecoming) stash(root *os.Root, path string) (string, error) {
	file, err := root.OpenFile(h.relative(path), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, protect.MaxStash))
	return string(text), err
}

// isWhole reports whether the host has a repository at a path already: the command had copies of
// its settings, and the rest of what git executes there was read-only.
func (h *homecoming) isWhole(path string) bool {
	has := func(name string) bool {
		_, err := h.host.Lstat(filepath.Join(h.relative(path), name))
		return err == nil
	}
	return has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

// repository takes out of a repository what git would execute.
func (h *homecoming) repository(path string) error {
	if h.isWhole(path) {
		for _, name := range []string{"hooks", "config", "config.worktree", "commondir", "gitdir"} {
			if name == "config.worktree" && h.worktreeSettings(path) {
				continue
			}
			if !h.p.names.Unprotected[name] {
				h.setAside(join(path, name), ".git/"+name)
			}
		}
		return nil
	}
	for _, root := range []*os.Root{h.upper, h.host} { // what the host has of it, an earlier command may have made
		if info, err := root.Lstat(h.relative(path)); err != nil || !info.IsDir() { // a .git that is a file or a link leads to one that is looked at for itself
			continue
		}
		dir, err := root.Open(h.relative(path))
		if err != nil {
			return err
		}
		taken, err := repository.DisarmAt(int(dir.Fd()), path, func(in int, name string) error {
			at, rule := join(path, name), ".git/"+name
			if h.isHooks(dir, in) {
				at, rule = join(join(path, "hooks"), name), ".git/hooks"
			}
			id, err := h.q.Put(in, name, at, rule)
			if err == nil {
				h.report.Told = append(h.report.Told, protect.Told{Path: at, Rule: rule, ID: id})
			}
			return err
		})
		dir.Close()
		for _, t := range taken {
			h.report.Taken[path] = append(h.report.Taken[path], protect.Taken{Name: t.Name, Key: t.Key, Value: t.Value})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// worktreeSettings takes out of a worktree's own settings what they may not have.
func (h *homecoming) worktreeSettings(path string) bool {
	dir, err := h.upper.Open(h.relative(path))
	if err != nil {
		return false
	}
	defer dir.Close()
	taken, err := repository.DisarmSettings(int(dir.Fd()), "config.worktree", func(int, string) error { return unix.EINVAL })
	if len(taken) > 0 {
		h.report.Taken[path] = append(h.report.Taken[path], takenOf(taken)...)
	}
	return err == nil
}

// isHooks reports whether an open directory is another one than the repository's.
func (h *homecoming) isHooks(repository *os.File, in int) bool {
	this, err := cow.ObjectOf(int(repository.Fd()), "")
	other, err2 := cow.ObjectOf(in, "")
	return err == nil && err2 == nil && !this.Is(other)
}

// leave says why a change is not brought to the host. What was to be set aside has been: this is
// for what could not.
func (h *homecoming) leave(c changes.Change) string {
	path := join(h.path, c.Path)
	for _, closed := range h.closed {
		if within(path, closed.Path) {
			return closed.Why
		}
	}
	switch rule := h.p.holds(h.guarded, h.path, c); {
	case rule == "":
		return ""
	case h.guarded[rule]:
		return printable(rule) + " is protected"
	default:
		return "something outside the sandbox would execute it or do as it says; --unprotect " + Quote(rule) + " allows it"
	}
}

// apply brings the rest.
func (h *homecoming) apply() error {
	h.layer.Close() // who applies locks it
	var result *changes.Result
	var err error
	for began := time.Now(); ; time.Sleep(layerPause) {
		var used *changes.InUseError
		result, err = changes.Layer{Dir: h.layer.Dir}.Apply(context.Background(), changes.Selection{Leave: h.leave})
		if !errors.As(err, &used) || time.Since(began) > layerTimeout { // another run looks whether it is empty
			break
		}
	}
	if result != nil && len(result.Applied) > 0 {
		awaitTick()
	}
	if result == nil {
		return cmp.Or(err, errors.New("nothing was said"))
	}
	tell := func(name, text string) {
		if len(h.notices) < maxSetAside {
			h.notices = append(h.notices, Notice{Kind: NoticeProtected, Path: join(h.path, name), Text: text})
		}
	}
	for i, s := range result.Skipped {
		if i == maxSetAside-2 {
			tell("", fmt.Sprintf("%d more were not brought to the host", len(result.Skipped)-i))
			break
		}
		tell(s.Path, "not brought to the host: "+printable(join(h.path, s.Path))+": "+printable(s.Why))
	}
	for _, left := range result.Left {
		tell(left, "somebody changed it at that very moment; what was there is kept as "+printable(join(h.path, left)))
	}
	if len(result.Skipped) > 0 {
		tell("", "what was not brought to "+printable(h.path)+": "+lookAt(h.layer.Dir))
	}
	return err
}

// awaitTick waits until the clock by which the kernel stamps files has gone on, some milliseconds:
// what was brought to the host is to be older than the next run's layer, or that would take it for
// changed meanwhile.
func awaitTick() {
	var now unix.Timespec
	for began := time.Now(); time.Since(began) < 100*time.Millisecond; time.Sleep(time.Millisecond) {
		if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) != nil || now.Nano() > began.UnixNano() {
			return
		}
	}
}
