package changes

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// A Selection says what is applied.
type Selection struct {
	Paths []string // with all that is below; none is everything
	// Force are paths that are applied although the host changed them meanwhile, with what is below them. A file that is named itself
	// keeps a setuid or setgid bit.
	Force  []string
	DryRun bool
	// Seen is what a person looked at, if they did: what commands changed after that is left out.
	Seen Shown
	// ByRules applies what the layer's rules apply without anybody, and leaves the rest out.
	ByRules bool
	// Leave, if there is one, says why a change is not applied, or nothing.
	Leave func(Change) string
	// Hunks, if any, are the parts of the one file in Paths that are applied, counted from 1.
	Hunks []int
}

// A Result says what became of each change.
type Result struct {
	Applied []string
	Skipped []Skip
	// Left are files of the host's that had to be left under another name, because somebody changed the place at that very moment.
	Left []string
}

// A Skip is a change that was not applied.
type Skip struct{ Path, Why string }

func (r *Result) skip(path, why string) { r.Skipped = append(r.Skipped, Skip{path, why}) }

const (
	batchOps   = 2000
	batchBytes = 512 << 20
)

type applier struct {
	*opened
	ctx     context.Context
	parents *parents // on the host
	result  *Result
	named   map[string]bool
	links   map[uint64]hardLink // by the layer's inode
	step    func()              // a test's
	noSync  bool                // a test's
	dry     bool
	seen    Shown
}

// hooks are a test's, in a context.
type hooks struct {
	step   func()
	noSync bool
}

type hooksKey struct{}

func newApplier(ctx context.Context, o *opened, result *Result) *applier {
	a := &applier{opened: o, ctx: ctx, parents: newParents(o.lower), result: result, named: map[string]bool{}, links: map[uint64]hardLink{}, step: func() {}}
	if t, ok := ctx.Value(hooksKey{}).(hooks); ok {
		a.noSync = t.noSync
		if t.step != nil {
			a.step = t.step
		}
	}
	return a
}

// Apply brings changes to the host, and takes them out of the layer. It is done file by file: each is as it was, or as the layer has
// it, whenever this is interrupted, and the next call goes on.
func (l Layer) Apply(ctx context.Context, s Selection) (*Result, error) {
	o, result, err := l.take(ctx)
	if err != nil {
		return nil, err
	}
	defer o.close()
	review, err := o.walk(ctx)
	if err == nil && !s.DryRun && o.uncover(review) {
		review, err = o.walk(ctx)
	}
	if err != nil {
		return result, err
	}
	a := newApplier(ctx, o, result)
	defer a.parents.close()
	a.dry, a.seen = s.DryRun, s.Seen
	for _, name := range s.Force {
		a.named[path.Clean(name)] = true
	}
	chosen, err := a.choose(review, s)
	if err != nil || s.DryRun {
		for _, c := range chosen {
			result.Applied = append(result.Applied, c.Path)
		}
		return result, err
	}
	if len(s.Hunks) > 0 {
		return result, a.hunks(chosen, s.Hunks)
	}
	state := Applied
	if s.ByRules {
		state = Ruled
	}
	err = a.all(chosen)
	done := map[string]bool{}
	for _, name := range result.Applied {
		done[name] = true
	}
	o.decided(state, func(name string) bool { return done[name] })
	if err != nil {
		return result, err
	}
	return result, a.tidy(review, s.Paths)
}

// covers reports whether a path is one of those selected, or below one.
func covers(selected []string, name string) bool {
	for _, s := range selected {
		if s = path.Clean(s); s == "." || s == name || strings.HasPrefix(name, s+"/") {
			return true
		}
	}
	return len(selected) == 0
}

// choose takes what was selected, with the new directories above it, and leaves out what must not be applied.
func (a *applier) choose(r *Review, s Selection) ([]*Change, error) {
	above := map[string]bool{}
	found := map[string]bool{}
	for i := range r.Changes {
		c := &r.Changes[i]
		if !covers(s.Paths, c.Path) {
			continue
		}
		if s.ByRules && c.Verdict != profile.VerdictApply {
			for _, p := range s.Paths {
				found[p] = found[p] || covers([]string{p}, c.Path)
			}
			continue
		}
		for _, p := range s.Paths {
			found[p] = found[p] || covers([]string{p}, c.Path)
		}
		for dir := path.Dir(c.Path); dir != "."; dir = path.Dir(dir) {
			above[dir] = true
		}
	}
	for _, p := range s.Paths {
		if !found[p] {
			a.result.skip(p, "nothing was changed there")
		}
	}
	var chosen []*Change
	refused := map[string]string{}
	changes := make([]*Change, len(r.Changes))
	for i := range r.Changes {
		changes[i] = &r.Changes[i]
	}
	for _, d := range r.dirs {
		if d.opaque && d.lower && !s.DryRun {
			refused[d.path] = "the directory cannot be changed in the layer"
		}
	}
	slices.SortFunc(changes, func(x, y *Change) int { return strings.Compare(x.Path, y.Path) })
	for _, c := range changes {
		selected := covers(s.Paths, c.Path)
		asks := selected && s.ByRules && c.Verdict != profile.VerdictApply
		if asks {
			selected = false
		}
		if asks && (!above[c.Path] || c.Kind != Added || c.Type != "directory" || c.Held != "" || c.Verdict == profile.VerdictNever) {
			why := asked(c)
			if c.Kind == Added || c.Kind == Replaced {
				refused[c.Path] = why
			}
			a.result.skip(c.Path, why)
			continue
		}
		if !selected && !(above[c.Path] && c.Type == "directory" && (c.Kind == Added || c.Kind == Replaced)) {
			continue
		}
		why := a.refused(c, s.Force, refused)
		if why == "" {
			why = s.Seen.lacks(c)
		}
		if why == "" && s.Leave != nil {
			why = s.Leave(*c)
		}
		if !selected && c.Kind == Replaced {
			why = "it takes the place of something else; name it itself"
		}
		if why != "" {
			refused[c.Path] = why
			a.result.skip(c.Path, why)
			continue
		}
		chosen = append(chosen, c)
	}
	return chosen, nil
}

// refused says why a change is not applied.
func (a *applier) refused(c *Change, force []string, refused map[string]string) string {
	for dir := path.Dir(c.Path); dir != "."; dir = path.Dir(dir) {
		if why, no := refused[dir]; no {
			if c.lower == nil || strings.HasPrefix(why, "the directory cannot") {
				return "the directory that it is in is not applied: " + dir
			}
		}
	}
	switch {
	case c.Never != "":
		return c.Never
	case c.Verdict == profile.VerdictNever:
		return never(c)
	case c.implicit && !a.dry:
		return "the directory that it was in cannot be changed in the layer"
	case c.Conflict != "" && (len(force) == 0 || !covers(force, c.Path)):
		return c.Conflict
	case strings.HasPrefix(path.Base(c.Path), ".clai-sandbox-"):
		return "the name is one of this program's temporary files'"
	}
	return ""
}

// asked says why no rule applies a change.
func asked(c *Change) string {
	switch {
	case c.Verdict == profile.VerdictNever:
		return never(c)
	case c.Rule == "":
		return "a person is asked, as there are no rules"
	}
	return "a person is asked: " + c.Rule
}

// never says which rule keeps a change from the host.
func never(c *Change) string { return "a rule of the configuration never applies it: " + c.Rule }

// all applies changes. The directories that it puts something into are changed by nobody else because of that.
func (a *applier) all(chosen []*Change) error {
	before := map[string]object{}
	w := walker{since: a.Since, applied: a.applied}
	for _, c := range chosen {
		dir := path.Dir(c.Path)
		if _, known := before[dir]; known {
			continue
		}
		if o, err := a.there(dir); err == nil && w.later(dir, o) == "" {
			before[dir] = o
		}
	}
	if err := a.each(chosen); err != nil {
		return err
	}
	var noted []applied
	for dir, was := range before {
		now, err := a.there(dir)
		is := now
		is.Size, is.Written, is.Changed = was.Size, was.Written, was.Changed
		if err == nil && was.untouched(is) && now.Changed != was.Changed { // the permissions are as they were, too
			noted = append(noted, applied{[]byte(dir), now.Inode, now.Changed})
		}
	}
	return addApplied(a.Dir, noted)
}

// there is a directory of the host's.
func (a *applier) there(dir string) (object, error) {
	fd, err := openDirectory(a.lower, dir)
	if err != nil {
		return object{}, err
	}
	defer unix.Close(fd)
	return lookAt(fd, "")
}

// each applies new directories first, the ones that hold others before these, then files in batches.
func (a *applier) each(chosen []*Change) error {
	var batch []*op
	var size int64
	var closing []*Change // directories whose permissions come last
	for _, c := range chosen {
		switch {
		case c.Kind == Added && c.Type == "directory" && c.Mode&0o700 == 0o700:
			if err := a.directory(c); err != nil {
				a.result.skip(c.Path, reason(err))
				continue
			}
			closing = append(closing, c)
		case c.Type == "directory" && (c.Kind == Replaced || c.Kind == Added):
			// Its permissions are not the final ones until all is in it, and the journal tells that they are no person's.
			o := &op{Path: []byte(c.Path), Put: true, Old: c.lower, change: c}
			if err := a.batch([]*op{o}); err != nil {
				return err
			}
			if o.failed == "" {
				if err := a.lay(c.Path); err != nil {
					a.result.skip(c.Path, reason(err))
					continue
				}
				closing = append(closing, c)
			}
		case c.Kind == Mode:
			a.permissions(c)
		}
	}
	for _, c := range chosen {
		if c.Kind == Mode || c.Type == "directory" && c.Kind != Deleted {
			continue
		}
		if o, ok := a.operation(c); ok {
			batch = append(batch, o)
			size += c.Size
		}
		if len(batch) >= batchOps || size > batchBytes {
			if err := a.batch(batch); err != nil {
				return err
			}
			batch, size = nil, 0
		}
	}
	if err := a.batch(batch); err != nil {
		return err
	}
	for _, c := range slices.Backward(closing) {
		a.finish(c)
	}
	return nil
}

// operation is what is to be done for a change.
func (a *applier) operation(c *Change) (*op, bool) {
	o := &op{Path: []byte(c.Path), Put: c.Kind != Deleted, Old: c.lower, change: c}
	if c.Merged && (len(a.named) == 0 || !covers(keys(a.named), c.Path)) {
		o.From = c.upper
	}
	if o.Old == nil || !o.Old.directory() {
		return o, true
	}
	var err error
	if o.tree, err = tree(a.ctx, a.lower, c.Path, maxEntries); err != nil {
		a.result.skip(c.Path, "the original: "+reason(err))
		return nil, false
	}
	if !covers(keys(a.named), c.Path) || len(a.named) == 0 {
		w := walker{since: a.Since, applied: a.applied}
		for name, object := range o.tree {
			if why := w.later(path.Join(c.Path, name), object); why != "" {
				a.result.skip(c.Path, why)
				return nil, false
			}
		}
	}
	return o, true
}

func keys(m map[string]bool) []string {
	list := make([]string, 0, len(m))
	for key := range m {
		list = append(list, key)
	}
	return list
}

// directory makes a new one. It stays open to its owner until all is in it.
func (a *applier) directory(c *Change) error {
	dir, base, err := a.parents.of(c.Path)
	if err != nil {
		return err
	}
	a.step()
	err = unix.Mkdirat(dir, base, c.Mode&0o777)
	if err == nil {
		a.finishMode(c)
	}
	if err == unix.EEXIST {
		if now, lookErr := lookAt(dir, base); lookErr == nil && now.directory() {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return a.lay(c.Path)
}

// finish gives a new directory its permissions.
func (a *applier) finish(c *Change) {
	a.finishMode(c)
	a.note(c.Path)
	a.result.Applied = append(a.result.Applied, c.Path)
}

// finishMode takes away what the umask did.
func (a *applier) finishMode(c *Change) {
	fd, err := openBeneath(a.lower, c.Path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, err := lookAt(fd, ""); err == nil && now.permission()&0o777 != c.Mode&0o777 {
		_ = unix.Fchmod(fd, now.permission()&^0o777|c.Mode&0o777)
	}
}

// note remembers what is at a path now as something that an apply put there.
func (a *applier) note(name string) {
	dir, base, err := a.parents.of(name)
	if err != nil {
		return
	}
	if now, err := lookAt(dir, base); err == nil {
		_ = addApplied(a.Dir, []applied{{[]byte(name), now.Inode, now.Changed}})
	}
}

// permissions changes nothing else.
func (a *applier) permissions(c *Change) {
	fd, err := openBeneath(a.lower, c.Path, unix.O_PATH)
	if err != nil {
		a.result.skip(c.Path, reason(err))
		return
	}
	defer unix.Close(fd)
	now, err := lookAt(fd, "")
	if err == nil && !c.lower.untouched(now) {
		err = errChanged
	}
	if err == nil {
		a.step()
		mode := c.Mode & 0o777
		if a.named[c.Path] {
			mode = c.Mode
		}
		err = unix.Chmod(descriptorPath(fd), mode)
	}
	if err != nil {
		a.result.skip(c.Path, reason(err))
		return
	}
	a.note(c.Path)
	if c.Type == "file" {
		a.drop(c.Path)
	}
	a.result.Applied = append(a.result.Applied, c.Path)
}

// drop takes an entry out of the layer that the host has now.
func (a *applier) drop(name string) {
	a.forget(name)
	in := newParents(a.upper)
	defer in.close()
	if dir, base, err := in.of(name); err == nil {
		remove(dir, base, 0)
	}
}

// remove removes an entry of the layer.
func remove(dir int, name string, flags int) {
	_ = writing(dir, func() error { return unix.Unlinkat(dir, name, flags) })
}

// writing does something in a directory of the layer, which a command may have made read-only.
func writing(dir int, do func() error) error {
	err := do()
	if err != unix.EACCES {
		return err
	}
	o, lookErr := lookAt(dir, "")
	if lookErr != nil || unix.Fchmod(dir, o.permission()|0o700) != nil {
		return err
	}
	err = do()
	return errors.Join(err, unix.Fchmod(dir, o.permission()))
}

// batch does some ops with one journal. The error is one that makes it pointless to go on; the journal stays then.
func (a *applier) batch(ops []*op) error {
	if len(ops) == 0 {
		return nil
	}
	j, err := newJournal(ops)
	if err != nil {
		return err
	}
	if err := j.write(a.Dir); err != nil {
		return err
	}
	for i, o := range ops {
		a.step()
		if err := a.ctx.Err(); err != nil {
			o.failed = reason(err)
		} else if o.Put {
			if err := a.make(o, j.name(i)); err != nil {
				o.failed = reason(err)
				if errors.Is(err, errMoved) {
					a.moved(j, 0, i)
				}
			}
		}
	}
	if err := a.sync(); err != nil {
		return err
	}
	a.step()
	if err := j.write(a.Dir); err != nil {
		return err
	}
	for i, o := range ops {
		if o.failed == "" {
			if err := a.place(o, j.name(i)); err != nil {
				o.failed = reason(err)
				if errors.Is(err, errMoved) {
					a.moved(j, i+1, len(ops))
				}
			}
		}
		o.Verified = o.failed == ""
	}
	a.step()
	if err := a.sync(); err != nil {
		return err
	}
	return a.settle(j)
}

// settle ends a batch: what was replaced is removed, and what was applied taken out of the layer.
func (a *applier) settle(j *journal) error {
	if slices.ContainsFunc(j.Ops, func(o *op) bool { return o.Old != nil && o.Old.directory() }) {
		if err := j.write(a.Dir); err != nil {
			return err
		}
	}
	var done []applied
	for i, o := range j.Ops {
		dir, base, err := a.parents.of(o.change.Path)
		if err != nil {
			if o.failed == "" {
				o.failed = "its directory was moved on the host: " + reason(err)
				if o.Old != nil {
					a.result.Left = append(a.result.Left, join(path.Dir(o.change.Path), j.name(i)))
				}
			}
			a.result.skip(o.change.Path, o.failed)
			continue
		}
		if o.failed == "" && o.Old != nil {
			a.step()
			if o.Old.directory() {
				a.removeOld(o, dir, j.name(i), j.Start)
			} else if err := a.removeReplaced(o, dir, base, j.name(i)); err != nil {
				o.failed = reason(err)
			}
		}
		if o.failed != "" {
			a.removeMade(o, dir, j.name(i))
			a.result.skip(o.change.Path, o.failed)
			continue
		}
		if now, err := lookAt(dir, base); o.Put && err == nil && now.Inode == o.New {
			done = append(done, applied{[]byte(o.change.Path), now.Inode, now.Changed})
		}
		if link, ok := a.links[inodeOf(o.change)]; ok && link.inode == o.New {
			a.links[inodeOf(o.change)] = hardLink{o.change.Path, o.New}
		}
	}
	for _, o := range j.Ops {
		if o.failed == "" && o.From != nil {
			a.step()
			a.drop(o.change.Path) // before it is noted: see taken
		}
	}
	a.step()
	if err := addApplied(a.Dir, done); err != nil {
		return err
	}
	in := newParents(a.upper)
	defer in.close()
	for _, o := range j.Ops {
		if o.failed != "" {
			continue
		}
		c := o.change
		if o.content == nil && o.From == nil && (c.upper == nil || !c.upper.directory()) {
			a.step()
			a.forget(c.Path)
			if dir, base, err := in.of(c.Path); err == nil {
				remove(dir, base, 0)
			}
		}
		if c.Type != "directory" || c.Kind == Deleted { // those are told when they are whole
			a.result.Applied = append(a.result.Applied, c.Path)
		}
	}
	a.step()
	return os.Remove(filepath.Join(a.Dir, journalName))
}

func inodeOf(c *Change) uint64 {
	if c.upper == nil {
		return 0
	}
	return c.upper.Inode
}

// removeMade removes what was made and not put in place.
func (a *applier) removeMade(o *op, dir int, temp string) {
	if now, err := lookAt(dir, temp); err == nil && o.Put && (o.New == 0 || now.Inode == o.New) {
		_ = unix.Unlinkat(dir, temp, removeFlag(now))
	}
}

// removeOld removes a directory that was replaced or deleted.
func (a *applier) removeOld(o *op, dir int, temp string, start int64) {
	if err := a.removeTree(dir, temp, start); err != nil && err != unix.ENOENT {
		a.result.Left = append(a.result.Left, join(path.Dir(string(o.Path)), temp))
	}
}

// sync waits until all is on the disk. Without it, a power failure could leave an empty file where a whole one was.
func (a *applier) sync() error {
	if a.noSync {
		return nil
	}
	if err := unix.Syncfs(a.lower); err != nil {
		return err
	}
	return a.ctx.Err()
}

// recover finishes an apply that was interrupted, or takes it back, op by op.
func (o *opened) recover(ctx context.Context, result *Result) error {
	j, err := readJournal(o.Dir)
	if j == nil || err != nil {
		return err
	}
	a := newApplier(ctx, o, result)
	defer a.parents.close()
	for i, op := range j.Ops {
		op.change = &Change{Path: string(op.Path)}
		dir, base, err := a.parents.of(op.change.Path)
		if err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			return err
		}
		if err := a.recoverOp(op, dir, base, j.name(i), j.Start); err != nil {
			result.skip(op.change.Path, reason(err))
		}
		if now, err := lookAt(dir, base); err == nil && op.Put && now.Inode == op.New && a.taken(op) {
			a.note(op.change.Path)
		}
	}
	return os.Remove(filepath.Join(o.Dir, journalName))
}

// taken takes out of the layer what was merged with the host's, unless a command changed it since. Then it is not noted as applied, or
// what the person had changed would count as undone by the command; the original still tells both apart.
func (a *applier) taken(o *op) bool {
	if o.From == nil {
		return true
	}
	now, err := lookAt(a.upper, o.change.Path)
	if err == nil && !o.From.untouched(now) {
		return false
	}
	a.drop(o.change.Path)
	return true
}

func (a *applier) recoverOp(o *op, dir int, base, temp string, start int64) error {
	now, err := lookAt(dir, temp)
	switch {
	case err == unix.ENOENT:
		return nil // it did not begin, or it was finished
	case err != nil:
		return err
	case o.Put && (now.Inode == o.New || o.New == 0): // it is ours
		return unix.Unlinkat(dir, temp, removeFlag(now))
	case o.Old == nil || now.Inode != o.Old.Inode:
		a.result.Left = append(a.result.Left, join(path.Dir(o.change.Path), temp))
		return nil
	case o.Old.directory() && o.Verified:
		a.removeOld(o, dir, temp, start)
		return nil
	case !o.Old.directory():
		return a.removeReplaced(o, dir, base, temp)
	}
	if err := a.putBack(o, dir, base, temp); err != nil {
		return err
	}
	if o.Old.moved(now) {
		a.note(o.change.Path) // it was moved away and back, and that is all that happened to it
	}
	return nil
}

// tidy takes out of the layer what is no change any more.
func (a *applier) tidy(r *Review, selected []string) error {
	for _, name := range r.same {
		if covers(selected, name) {
			a.drop(name)
		}
	}
	dirs := slices.Clone(r.dirs)
	slices.SortFunc(dirs, func(x, y upperDir) int { return strings.Compare(y.path, x.path) })
	for _, d := range dirs {
		if d.path != "." && (covers(selected, d.path) || slices.ContainsFunc(selected, func(s string) bool { return covers([]string{d.path}, path.Clean(s)) })) {
			a.prune(d)
		}
	}
	if some, err := names(a.upper, 1); err == nil && len(some) == 0 {
		_ = os.Remove(filepath.Join(a.Dir, appliedName))
	}
	return nil
}

// prune removes an empty directory of the layer where the host has the same one.
func (a *applier) prune(d upperDir) {
	low, err := openDirectory(a.lower, d.path)
	if err != nil {
		return
	}
	defer unix.Close(low)
	in := newParents(a.upper)
	defer in.close()
	dir, base, err := in.of(d.path)
	if err != nil {
		return
	}
	up, err := lookAt(dir, base)
	now, lowErr := lookAt(low, "")
	if err != nil || lowErr != nil || up.permission()&0o777 != now.permission()&0o777 {
		return
	}
	if hidden, _ := attribute(dir, base, opaqueName); hidden == "y" {
		return // it hides what the host has
	}
	remove(dir, base, unix.AT_REMOVEDIR)
}
