package changes

import (
	"context"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// A Result says what became of each change.
type Result struct {
	Applied []string
	Skipped []Skip
	// Left are files of the host's that had to be left under another name, because somebody changed
	// the place at that very moment.
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

// Apply brings changes to the host, and takes them out of the layer. It is done file by file: each
// is as it was, or as the layer has it, whenever this is interrupted, and the next call goes on.
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

// all applies changes. The directories that it puts something into are changed by nobody else
// because of that.
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

// each applies new directories first, the ones that hold others before these, then files in
// batches.
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
			// Its permissions are not the final ones until all is in it, and the journal tells that
			// they are no person's.
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
