package sandbox

import (
	"errors"
	"slices"
	"sync"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/cow"
)

// openLayers are the layers that an attempt has open, by the paths of what lies below them.
type openLayers struct {
	mu     sync.Mutex
	byPath map[string]*cow.Layer
}

// open opens the layers of a plan's steps, as far as they are not open yet.
func (o *openLayers) open(plan *Plan) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, step := range plan.Steps {
		if step.Layer == "" || o.byPath[step.Path] != nil {
			continue
		}
		object, err := Host{}.Lstat(step.Source)
		if err != nil {
			continue // it is left out
		}
		layer, err := cow.Open(step.Layer, step.Path, object.Mode)
		if errors.Is(err, cow.ErrInUse) {
			return &SetupError{Path: step.Path, Why: "another sandbox of this agent has it copy on write",
				Hint: "wait until that one has ended, or run this command as another agent"}
		}
		if err != nil {
			return &SetupError{Path: step.Path, Why: "cannot be seen copy on write: " + reason(err)}
		}
		if o.byPath == nil {
			o.byPath = map[string]*cow.Layer{}
		}
		o.byPath[step.Path] = layer
	}
	return nil
}

// close gives the layers back. Nothing has them mounted any more.
func (o *openLayers) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, layer := range o.byPath {
		layer.Close()
	}
	o.byPath = nil
}

// withoutMounter refuses what bwrap's own options cannot make.
func (p *Plan) withoutMounter() error {
	i := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Access == profile.CopyOnWrite })
	if i < 0 {
		return nil
	}
	return &SetupError{Path: p.Steps[i].Path, Why: "cannot be seen copy on write: it takes Linux 5.12, and a kernel that lets this process mount in its own sandbox",
		Hint: "grant it read-only, or see clai-sandbox doctor"}
}
