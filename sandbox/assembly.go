package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// bwrap makes the base of a sandbox: namespaces, the system's directories, /proc, /dev, /tmp. What
// a person granted, and what hides and protects in it, package mounts puts together apart and moves
// in, while the command is held back.

// apart reports whether a step is not bwrap's, but the root or a part of a tree of package mounts.
func (s *Step) apart() bool {
	return !strings.HasPrefix(s.Path, insideDirectory) && s.Purpose != OwnHome && s.Purpose != OwnWork && (s.Purpose != "" || s.Kind == Bind && s.Pinned)
}

// required reports whether the sandbox must not be without the step.
func (s *Step) required() bool {
	if s.inLayer {
		return false // where there is nothing to mount it on, the command has removed that for itself alone
	}
	switch s.Purpose {
	case Protects, Anchors, Hides:
		return true
	}
	return s.narrows || s.Kind == Mask || s.Kind == Empty || s.Kind == Socket && s.Source == os.DevNull
}

// divide splits the plan into the base, which it returns, and requests for the mounter. live says
// that what is mounted may have to be taken away again.
func (a *attempt) divide(live bool) *Plan {
	base, requests := a.plan.divide(live)
	a.requests = requests
	return base
}

func (p *Plan) divide(live bool) (*Plan, []mounts.Request) {
	base := *p
	base.Steps, base.Environment, base.WorkingDirectory = nil, nil, "/"
	forest := map[string][]Step{} // by the paths of their roots
	for _, step := range p.Steps {
		if step.apart() {
			forest[step.Path] = nil
		}
	}
	rootOf := func(path string) (root string) {
		for {
			if _, is := forest[path]; is {
				root = path // the topmost counts
			}
			if path == "/" {
				return root
			}
			path = parent(path)
		}
	}
	for _, step := range p.Steps {
		root := rootOf(step.Path)
		switch {
		case root == "":
			base.Steps = append(base.Steps, step)
		case step.Kind != Seal: // what is the sandbox's own in a tree is sealed by itself
			forest[root] = append(forest[root], step)
		}
	}
	requests := base.requests(forest, live)
	return &base, requests
}

// requests turn trees of steps into what the mounter takes, the shallow ones first.
func (p *Plan) requests(forest map[string][]Step, live bool) []mounts.Request {
	list := make([]mounts.Request, 0, len(forest))
	for root, steps := range forest {
		if len(steps) > 0 {
			r := mounts.Request{Place: p.place(root)}
			for _, step := range steps {
				if m, ok := step.mount(); ok {
					r.Tree = append(r.Tree, m)
					if live && (step.Path == root || step.decides()) {
						r.Keep = append(r.Keep, step.Path)
					}
				}
			}
			list = append(list, inOrder(r))
		}
	}
	slices.SortFunc(list, func(a, b mounts.Request) int {
		return cmp.Or(cmp.Compare(depth(a.Tree.Path()), depth(b.Tree.Path())), cmp.Compare(a.Tree.Path(), b.Tree.Path()))
	})
	return list
}

// inOrder puts a tree's mounts into the order of mounting.
func inOrder(r mounts.Request) mounts.Request {
	slices.SortStableFunc(r.Tree, func(a, b mounts.Mount) int {
		return cmp.Or(cmp.Compare(depth(a.Path), depth(b.Path)), cmp.Compare(a.Path, b.Path))
	})
	slices.Sort(r.Keep)
	return r
}

// place says what leads to a path in a sandbox that has these steps.
func (p *Plan) place(path string) mounts.Place {
	switch above := p.decides(parent(path)); {
	case above == nil || above.Kind == Dir:
		return mounts.Place{Own: "/"}
	case above.Kind == Mask || above.Entries:
		return mounts.Place{Own: above.Path}
	case above.Kind == Private:
		return mounts.Place{Own: above.Path, Shared: true}
	}
	return mounts.Place{} // the host's
}

// mount is a step as the mounter makes it.
func (s *Step) mount() (mounts.Mount, bool) {
	m := mounts.Mount{Path: s.Path, Source: s.Source, Writable: s.Access == profile.ReadWrite, NoExec: s.noExec, Mode: s.Mode, File: s.file, Optional: (!s.required() || s.Purpose == Protects) && !s.narrows &&
		s.Origin.Kind != profile.OriginWorkspace}
	if s.expected != nil && s.expected.Inode != 0 {
		m.Object = &mounts.Object{Device: s.expected.Device, Inode: s.expected.Inode, Handle: s.expected.Handle}
		m.Object.Born, _ = strconv.ParseInt(s.expected.Born, 10, 64)
	}
	switch s.Kind {
	case Bind, Socket:
		m.Kind = mounts.Bind
		m.File = m.File || s.Kind == Socket
		if s.Entries {
			m.Kind, m.Mode = mounts.Entries, 0o755
		}
		if s.Layer != "" {
			m.Kind, m.Layer, m.OrEntries = mounts.Overlay, s.Layer, s.orEntries()
		}
		return m, s.Source != "" && s.Source != ownProgram
	case Mask, Dir:
		m.Kind = mounts.Mask
	case Empty:
		m.Kind, m.File = mounts.Empty, true
	case Copy:
		m.Kind, m.File = mounts.Copy, true
	case Symlink:
		m.Kind = mounts.Symlink
	case Private:
		m.Kind = mounts.Private
		if s.Source != "" {
			m.Kind, m.Writable = mounts.Bind, true
		}
	default:
		return m, false
	}
	return m, true
}

// mappingTimeout bounds the wait for what bwrap does first of all.
const mappingTimeout = 10 * time.Second

// assemble mounts what is not bwrap's, and releases the command. What could not be mounted and need
// not be is left out of the plan, with a notice.
func (a *attempt) assemble(live bool) error {
	if a.release == 0 { // nothing waits
		<-a.heard
		if a.watch != nil {
			a.watch.read(nil, 0)
		}
		return nil
	}
	var holds []int // who closes one last waits for the kernel: see commandWatch.close
	if a.watch != nil {
		holds = append(holds, a.watch.watch.Descriptor())
	}
	if a.settingsWatch != nil {
		holds = append(holds, a.settingsWatch.descriptor())
	}
	if a.leads != nil {
		holds = append(holds, a.leads.descriptor())
	}
	mounter, err := mounts.Start(int(a.ready), int(a.release), holds...) // while bwrap starts
	a.ready.Close()
	a.release.Close()
	if err != nil {
		return &SetupError{Why: "start what mounts: " + err.Error(), Hint: tryAgain}
	}
	init, err := a.awaitInit()
	if err != nil || init == 0 {
		mounter.Close()
		return err
	}
	mounter.Enter(init)
	a.mounter = mounter
	<-a.heard // before the command can begin, and say so to whoever sends it a signal
	late, err := a.awaitWatch()
	if err != nil {
		return err
	}
	also := map[string]bool{}
	if a.watch != nil {
		also = a.mountLate(late)
		a.watch.read(a.mounter, init)
	}
	mounted, left, err := a.mounter.Begin(a.requests)
	switch {
	case errors.Is(err, trampoline.ErrEnded):
		a.unreleased = true
		return nil // bwrap has ended, and its records tell; or else see conclude
	case err != nil:
		return a.notAssembled(err)
	}
	for _, l := range left {
		if also[l.Path] && a.watch.leftOut(nil, l.Err) {
			continue
		}
		if err := a.leftOut(l); err != nil {
			return err
		}
	}
	a.mounted = mounted
	a.settings.begin(a.mounter)
	if a.watch != nil {
		a.watch.begin(mounted, also)
	}
	if a.settingsWatch != nil {
		a.settingsWatch.begin(a.mounter, mounted)
	}
	if a.watch == nil && a.settings == nil && !live {
		a.mounter.Close()
		a.mounter = nil
	}
	return nil
}

// awaitInit waits until bwrap has made the namespaces and the identities in them. It returns pid 1
// of the sandbox, by its number outside, or 0 if bwrap has ended.
func (a *attempt) awaitInit() (int, error) {
	buffer := make([]byte, 512)
	for len(a.recorded) == 0 {
		n, err := unix.Read(int(a.status), buffer)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			return 0, err
		}
		a.recorded = append(a.recorded, buffer[:n]...)
	}
	init := 0
	a.process.While(func(int) { init = a.init() })
	name := fmt.Sprintf("/proc/%d/gid_map", init)
	pause := 10 * time.Microsecond
	for began := time.Now(); init != 0 && time.Since(began) < mappingTimeout; wait(pause) {
		pause = min(2*pause, time.Millisecond)
		text, err := os.ReadFile(name)
		if err != nil {
			return 0, nil // it has ended
		}
		if len(text) > 0 {
			return init, nil
		}
	}
	return 0, nil
}

// wait is time.Sleep for a goroutine that has a thread of its own, and for less time than another
// one would need to start.
func wait(pause time.Duration) {
	t := unix.NsecToTimespec(pause.Nanoseconds())
	unix.Nanosleep(&t, nil)
}

// errByBwrap means that the mounts have to be bwrap's here.
var errByBwrap = errors.New("mounts have to be bubblewrap's")

// notAssembled is why the mounts could not be made.
func (a *attempt) notAssembled(err error) error {
	var failed *mounts.Error
	switch {
	case errors.Is(err, mounts.ErrRefused):
		return fmt.Errorf("%w: %w", errByBwrap, err)
	case errors.As(err, &failed):
		for _, step := range a.plan.Steps {
			if step.Path == failed.Path {
				if err := a.notMounted(step, failed.Err); err != nil {
					return err
				}
			}
		}
		return &SetupError{Path: failed.Path, Why: failed.Op + ": " + reason(failed.Err), Hint: tryAgain}
	}
	return &SetupError{Why: "mount what was granted: " + err.Error(), Hint: tryAgain}
}

// leftOut takes out of the plan what is not mounted.
func (a *attempt) leftOut(l mounts.LeftOut) error {
	for i, step := range a.plan.Steps {
		if step.Path == l.Path && step.apart() {
			switch {
			case step.orEntries():
				a.plan.Steps = slices.Clone(a.plan.Steps)
				a.plan.Steps[i].onlyRead()
			case !step.Entries:
				a.plan.Steps = slices.Delete(slices.Clone(a.plan.Steps), i, i+1)
			}
			if a.watch.leftOut(&step, l.Err) {
				return nil
			}
			return a.notMounted(step, l.Err)
		}
	}
	return &SetupError{Path: l.Path, Why: "cannot be mounted: " + reason(l.Err), Hint: "grant what is below it instead, or try again"}
}
