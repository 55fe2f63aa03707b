package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/cow"
	"github.com/clairun/clai-sandbox/sandbox/cow/changes"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
)

// openLayers are the layers that an attempt has open, by the paths of what lies below them.
type openLayers struct {
	mu     sync.Mutex
	byPath map[string]*cow.Layer
}

// maxCacheLayers is how many sandboxes of one agent may have a layer over the same cache at a time.
// Further ones only read it.
const maxCacheLayers = 8

// open opens the layers of a plan's steps, as far as they are not open yet.
func (o *openLayers) open(plan *Plan) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range plan.Steps {
		step := &plan.Steps[i]
		if step.Layer == "" {
			continue
		}
		if have := o.byPath[step.Path]; have != nil {
			step.useLayer(have)
			continue
		}
		mode := step.Mode
		if step.Kind == Bind {
			object, err := Host{}.Lstat(step.Source)
			if err != nil {
				continue // it is left out
			}
			mode = object.Mode
		}
		layer, err := step.openLayer(mode)
		switch {
		case err != nil && step.Purpose == Caches:
			plan.withoutLayer(step, err)
			continue
		case errors.Is(err, cow.ErrInUse) && step.strict():
			return &SetupError{Path: step.Path, Why: fmt.Sprintf("%d sandboxes of this agent have it, or left changes of it behind", maxStrictLayers),
				Hint: "clai-sandbox changes list shows those; apply or discard them"}
		case err != nil && step.strict():
			return &SetupError{Path: step.Path, Why: "cannot be written at the end only: " + reason(err), Hint: "leave --protect-mode strict out"}
		case err != nil && step.Purpose == Worktree: // nobody asked for it by name
			why := reason(err)
			if errors.Is(err, cow.ErrInUse) {
				why = "another sandbox of this agent has it copy on write"
			}
			plan.notice(NoticePathLeftOut, step.Path, fmt.Sprintf("nothing can be committed: %s can only be read: %s", printable(step.Path), why))
			step.onlyRead()
			for i := range plan.Steps {
				plan.Steps[i].inLayer = plan.Steps[i].inLayer && !within(plan.Steps[i].Path, step.Path)
			}
			continue
		case errors.Is(err, cow.ErrInUse):
			return &SetupError{Path: step.Path, Why: "another sandbox of this agent has it copy on write",
				Hint: "wait until that one has ended, or run this command as another agent"}
		case err != nil:
			return &SetupError{Path: step.Path, Why: "cannot be seen copy on write: " + reason(err), Hint: "clai-sandbox changes list shows its layer; or grant it read-only"}
		}
		if o.byPath == nil {
			o.byPath = map[string]*cow.Layer{}
		}
		o.byPath[step.Path] = layer
		plan.clear(layer, step)
		for name := range strings.FieldsSeq(step.made) {
			layer.Make(name)
		}
	}
	plan.Steps = slices.DeleteFunc(plan.Steps, func(s Step) bool { return s.Kind == 0 })
	return nil
}

// clear makes room in a layer for what is granted below it: an earlier command, which did not have
// that, may have put something of its own there. What cannot be cleared is told when nothing can be
// mounted there.
func (p *Plan) clear(layer *cow.Layer, over *Step) {
	for i := range p.Steps {
		below, is := strings.CutPrefix(p.Steps[i].Path, over.Path+"/")
		if s := &p.Steps[i]; is && over.Kind == Bind && s.Kind == Bind && s.Pinned && s.Purpose == "" {
			layer.Clear(below, !s.file)
		}
	}
}

// withoutLayer makes the step of a cache what it is where its layer cannot be had: the host's is
// only read, and what is hidden in it still does not appear; the agent's own are not there. That
// too many sandboxes use it is told to nobody.
func (p *Plan) withoutLayer(step *Step, err error) {
	layers := parent(step.Layer)
	told := slices.ContainsFunc(p.Notices, func(n Notice) bool { return n.Kind == NoticePathLeftOut && n.Path == layers })
	if !told && !errors.Is(err, cow.ErrInUse) {
		p.notice(NoticePathLeftOut, layers, fmt.Sprintf("caches cannot be written: %s: %s", printable(layers), reason(err)))
	}
	if step.Kind == Bind {
		step.onlyRead()
		for i := range p.Steps {
			p.Steps[i].inLayer = p.Steps[i].inLayer && !within(p.Steps[i].Path, step.Path)
		}
		return
	}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Purpose == Caches && s.Kind == Symlink {
			*s = Step{}
		}
	}
	*step = Step{}
}

// onlyRead shows what was to be seen copy on write as the host has it now: what comes later may
// have to be hidden.
func (s *Step) onlyRead() { s.Access, s.Layer, s.Entries = profile.ReadOnly, "", true }

// orEntries reports whether what cannot be seen copy on write is shown so.
func (s *Step) orEntries() bool {
	return s.Layer != "" && !s.strict() && (s.Purpose == Caches || s.veiled != "")
}

// layerTimeout is how long a command waits for another of its agent to give a layer back: an
// agent's short commands may overlap.
const (
	layerTimeout = 3 * time.Second
	layerPause   = 5 * time.Millisecond
)

// openLayer opens the layer of one step. Of a cache, a sandbox that finds the layer in use takes
// another one: what two share while both run carries open files and connections from one to the
// other, whatever each may reach by itself.
func (s *Step) openLayer(mode fs.FileMode) (layer *cow.Layer, err error) {
	first, most := s.Layer, 1
	switch {
	case s.strict():
		most = maxStrictLayers
	case s.Purpose == Caches:
		most = maxCacheLayers
	}
	for n := 1; n <= most; n++ {
		dir := first
		if n > 1 {
			dir = fmt.Sprintf("%s-%d", first, n)
		}
		for began := time.Now(); ; time.Sleep(layerPause) {
			layer, err = cow.Open(dir, cow.About{Path: s.on(s.Path), Cache: s.Purpose == Caches || s.Image}, mode)
			if err == nil && s.strict() && !isEmpty(layer.Dir) { // of a run that did not come to its end
				layer.Close()
				err = cow.ErrInUse
			}
			if !errors.Is(err, cow.ErrInUse) || most > 1 || time.Since(began) > layerTimeout {
				break
			}
		}
		if !errors.Is(err, cow.ErrInUse) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	s.useLayer(layer)
	if s.Kind == Private {
		return layer, nil
	}
	if err = layer.Veil(strings.FieldsFunc(s.veiled, func(r rune) bool { return r == 0 })); err != nil {
		layer.Close()
	}
	return layer, err
}

// useLayer has a step use the layer that is open.
func (s *Step) useLayer(layer *cow.Layer) {
	s.Layer = layer.Dir
	if s.Kind == Private {
		s.Source = join(s.Layer, mounts.LayerUpper)
	}
}

// keep keeps the originals of what a command changed, now that it has ended. Nobody looks at those
// of caches.
func (o *openLayers) keep() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, layer := range o.byPath {
		if !layer.Cache {
			changes.Keep(layer.Dir)
		}
	}
}

// close gives the layers back. Nothing has them mounted any more.
func (o *openLayers) close() {
	o.keep()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, layer := range o.byPath {
		layer.Close()
	}
	o.byPath = nil
}

// cachesDirectory is where the caches are that the home has not.
const cachesDirectory = insideDirectory + "caches"

var cachesOrigin = profile.Origin{Kind: profile.OriginDefault, Source: "caches"}

// caches shows the caches of a readable home, so that the command can write them. It comes after
// all grants: those for a cache, or above or below one, stand. Where the home has none, a link
// leads to one of the agent's own: all of those are one mount.
func (b *builder) caches() {
	own := Step{Kind: Private, Path: cachesDirectory, Mode: fileMode(0o700), Origin: cachesOrigin, Purpose: Caches, Layer: join(b.profile.Layers, "caches")}
	own.Source = join(own.Layer, mounts.LayerUpper)
	for _, c := range b.profile.CachePaths {
		w, err := follow(b.tree, c.Path)
		missing := errors.Is(err, syscall.ENOENT) && len(w.Rest) > 0
		above := b.layers.at(w.Real)
		switch {
		case err != nil && !missing, len(w.Links) > 0, above == nil || above.Kind != Bind || !above.Pinned || above.Access != profile.ReadOnly:
		case missing || b.profile.Caches == profile.CachesPrivate:
			if c.Made && b.profile.Caches != profile.CachesReadWrite && (within(w.Real, b.profile.Home) || above.Entries) {
				name, _ := strings.CutPrefix(c.Path, b.profile.Home+"/")
				name = strings.ReplaceAll(name, "/", "_")
				b.layers.put(Step{Kind: Symlink, Path: c.Path, Source: join(cachesDirectory, name), Origin: cachesOrigin, Purpose: Caches})
				b.enumerate(w.Real)
				own.made += name + " "
			}
		case above.Path == w.Real, !w.Object.Mode.IsDir(), b.holdsOwn(w.Real):
		case b.profile.Caches == profile.CachesReadWrite:
			b.layers.put(Step{Kind: Bind, Path: w.Real, Source: w.Real, Access: profile.ReadWrite, Origin: cachesOrigin, Purpose: Caches, Pinned: true})
		default:
			b.layers.put(Step{Kind: Bind, Path: w.Real, Source: w.Real, Access: profile.CopyOnWrite, Origin: cachesOrigin, Purpose: Caches, Pinned: true,
				Layer: join(b.profile.Layers, cow.Name(w.Real))})
		}
	}
	if own.made != "" {
		b.layers.put(own)
	}
}

// ofLayer reports whether a step is of no use without the layer of a cache.
func (s *Step) ofLayer() bool { return s.Purpose == Caches && (s.Kind != Bind || s.Layer != "") }

// cachesLayer is where the caches are that the home has not.
func (p *Plan) cachesLayer() string {
	if own := p.at(cachesDirectory); own != nil {
		return own.Layer
	}
	return ""
}

// holdsOwn reports whether this program keeps its own files in a directory.
func (b *builder) holdsOwn(dir string) bool {
	return slices.ContainsFunc(b.own, func(own string) bool { return within(own, dir) })
}

// withoutMounter refuses what bwrap's own options cannot make.
func (p *Plan) withoutMounter() error {
	p.Steps = slices.DeleteFunc(slices.Clone(p.Steps), func(s Step) bool { return s.Purpose == Caches && s.ofLayer() })
	for _, path := range p.forgetOwn() {
		p.notice(NoticePathLeftOut, path, printable(path)+" is empty and gone with the sandbox: to keep it takes Linux 5.12, and a kernel that lets this process mount in its own sandbox")
	}
	if i := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Image && s.Entries }); i >= 0 {
		return &SetupError{Path: p.Steps[i].Path, Why: "of image " + p.Rootfs.Name + " cannot be shown with what is granted in it: it takes Linux 5.12, and a kernel that lets this process mount in its own sandbox",
			Hint: "choose a workspace where the image has nothing, or see clai-sandbox doctor"}
	}
	i := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Access == profile.CopyOnWrite || s.strict() })
	switch {
	case i < 0:
		return nil
	case p.Steps[i].strict():
		return &SetupError{Path: p.Steps[i].Path, Why: "cannot be written at the end only: --protect-mode strict takes Linux 5.12, and a kernel that lets this process mount in its own sandbox",
			Hint: "use --protect-mode watch, or see clai-sandbox doctor"}
	}
	return &SetupError{Path: p.Steps[i].Path, Why: "cannot be seen copy on write: it takes Linux 5.12, and a kernel that lets this process mount in its own sandbox",
		Hint: "grant it read-only, or see clai-sandbox doctor"}
}

// forgetOwn makes a home or a workspace that lasts one of the sandbox's own, and returns where they
// are: bwrap mounts what is below by names, and a command of an earlier run could have put links
// there.
func (p *Plan) forgetOwn() (paths []string) {
	p.Steps = slices.Clone(p.Steps)
	for i := range p.Steps {
		if s := &p.Steps[i]; (s.Purpose == OwnHome || s.Purpose == OwnWork) && s.Source != "" {
			s.Source = ""
			paths = append(paths, s.Path)
		}
	}
	return paths
}

// whyNotLayered says why the kernel did not mount a layer.
func whyNotLayered(err error) string {
	if errors.Is(err, syscall.EINVAL) {
		return "the kernel refuses it, as where something is mounted below: " + reason(err)
	}
	return reason(err)
}
