package sandbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
)

// What protects or hides something in a directory that the command may write stands on something of
// the host's. When the person's own tools replace that ("git config" and editors write another file
// and rename it), the kernel takes the mount away; when they rename it, the mount goes with it. So
// while the command runs, the directories are watched, and what is there now is covered as soon as
// the kernel tells.
//
// There is a moment in between, in which a command that waits for it can open the new file.
// docs/security.md has figures.
type mountWatch struct {
	inotify *os.File
	dirs    map[int32]string
	covers  map[string]bool // the paths; true: what is there is hidden
	mounter *mounts.Mounter
	// settings are those of covers that a link to a copy stands over.
	settings   *settings
	settingsIn map[string]bool // the directories that they are in
	done       chan struct{}

	mu      sync.Mutex
	notices []Notice
}

// watchMounts begins to watch what the plan's mounts stand on. It comes before they are made.
func (a *attempt) watchMounts() {
	w := &mountWatch{dirs: map[int32]string{}, covers: map[string]bool{}, settingsIn: map[string]bool{}}
	for i := range a.requests {
		r := &a.requests[i]
		for _, m := range r.Tree[1:] {
			step := a.plan.at(m.Path)
			if step == nil || !step.Settings || !step.required() || a.plan.inOwn(m.Path) || step.inLayer {
				continue
			}
			if step.Settings {
				w.settingsIn[parent(m.Path)] = true
			}
			w.covers[m.Path] = step.Kind == Mask || step.Kind == Empty || step.Kind == Socket
			if !slices.Contains(r.Keep, m.Path) {
				r.Keep = append(r.Keep, m.Path)
			}
		}
	}
	if len(w.covers) == 0 {
		return
	}
	err := w.open()
	if err != nil {
		a.plan.notice(NoticeProtected, "", "what the person's own tools replace while the command runs is not protected any more: "+
			"the directories cannot be watched: "+reason(err)+"; see /proc/sys/fs/inotify/max_user_instances and max_user_watches")
		w.close()
		return
	}
	a.settingsWatch = w
}

// at is the step for a path, if there is one.
func (p *Plan) at(path string) *Step {
	if step := p.decides(path); step != nil && step.Path == path {
		return step
	}
	return nil
}

func (w *mountWatch) open() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	w.inotify = os.NewFile(uintptr(fd), "inotify")
	watched := map[string]bool{}
	for path := range w.covers {
		dir := parent(path)
		if watched[dir] {
			continue
		}
		watched[dir] = true
		at, err := descriptor.Pin(dir)
		if err != nil {
			continue // assembling the tree fails, too
		}
		wd, err := unix.InotifyAddWatch(fd, fmt.Sprintf("/proc/self/fd/%d", at), w.mask(dir)|unix.IN_ONLYDIR)
		at.Close()
		if err != nil {
			return err
		}
		w.dirs[int32(wd)] = dir
	}
	return nil
}

// mask is what is told of a directory. What becomes of settings is looked at more closely.
func (w *mountWatch) mask(dir string) uint32 {
	if w.settingsIn[dir] {
		return unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_OPEN | unix.IN_CLOSE_WRITE
	}
	return unix.IN_CREATE | unix.IN_MOVED_TO
}

// descriptor is the number of the inotify instance. (File.Fd would make reading it block a thread.)
func (w *mountWatch) descriptor() int {
	number := -1
	if raw, err := w.inotify.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { number = int(fd) })
	}
	return number
}

// close closes what is open. The mounter has the inotify instance open as well: closing the last
// descriptor of one waits for the kernel, some milliseconds, and nobody waits for the mounter.
func (w *mountWatch) close() {
	if w.inotify != nil {
		w.inotify.Close()
	}
}

// begin covers what was replaced while the mounts were made, and then what is replaced, until the
// watch ends. mounted is what was mounted.
func (w *mountWatch) begin(mounter *mounts.Mounter, mounted []mounts.Mounted) {
	w.mounter, w.done = mounter, make(chan struct{})
	there := map[string]bool{}
	for _, m := range mounted {
		there[m.Path] = true
	}
	for path := range w.covers {
		if !there[path] {
			w.cover(path)
		}
	}
	go func() {
		defer close(w.done)
		buffer := make([]byte, 64<<10)
		for {
			n, err := w.inotify.Read(buffer)
			if err != nil {
				return // it was closed: the watch ends
			}
			w.handle(buffer[:n])
		}
	}()
}

// A change is what the kernel tells of a path.
type change struct {
	path string
	mask uint32
}

// handle looks at events of the kernel's (inotify(7)).
func (w *mountWatch) handle(events []byte) {
	for pending := w.changes(events); len(pending) > 0; {
		c := pending[0]
		pending = pending[1:]
		if c.mask&unix.IN_Q_OVERFLOW != 0 { // something was lost: all that there is may be something else now
			for path := range w.covers {
				w.cover(path)
			}
			continue
		}
		if locked := w.settings.ofLock(c.path); locked != nil {
			locked.locks(c.mask)
			continue
		}
		if _, is := w.covers[c.path]; !is {
			continue
		}
		settings := w.settings.of(c.path)
		if settings == nil {
			w.cover(c.path)
			continue
		}
		switch {
		case c.mask&(unix.IN_OPEN|unix.IN_CLOSE_WRITE) != 0:
		case c.mask&(unix.IN_MOVED_FROM|unix.IN_DELETE) != 0:
			settings.isGone()
		case c.mask&unix.IN_MODIFY != 0:
			w.settings.happened(settings, false, false, nil)
		default:
			covered := w.cover(c.path)
			held := covered && settings.held()
			pending = append(pending, w.more()...)
			var later []uint32
			for _, l := range pending {
				if l.path == c.path && l.mask&(unix.IN_OPEN|unix.IN_CLOSE_WRITE) == 0 {
					later = append(later, l.mask)
				}
			}
			if covered {
				pending = slices.DeleteFunc(pending, func(l change) bool { return l.path == c.path && l.mask&unix.IN_MODIFY != 0 })
			}
			w.settings.happened(settings, covered, held, later)
		}
	}
}

// changes are events in the form of the kernel's.
func (w *mountWatch) changes(events []byte) []change {
	var list []change
	for len(events) >= unix.SizeofInotifyEvent {
		wd, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
		n := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		name, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:n], []byte{0})
		events = events[n:]
		if path := join(w.dirs[wd], string(name)); w.dirs[wd] != "" || mask&unix.IN_Q_OVERFLOW != 0 {
			list = append(list, change{path, mask})
		}
	}
	return list
}

// more is what the kernel has to tell by now.
func (w *mountWatch) more() []change {
	raw, err := w.inotify.SyscallConn()
	if err != nil {
		return nil
	}
	buffer, n := make([]byte, 64<<10), 0
	raw.Read(func(fd uintptr) bool {
		n, _ = unix.Read(int(fd), buffer)
		return true
	})
	return w.changes(buffer[:max(n, 0)])
}

// maxCovers bounds how often something is covered that is replaced in that very moment.
const maxCovers = 8

// cover covers what is at a path now.
func (w *mountWatch) cover(path string) (covered bool) {
	var id uint64
	var err error
	for range maxCovers {
		if c := w.settings.of(path); c != nil {
			id, err = w.settings.cover(c)
		} else {
			id, err = w.mounter.Cover(path, w.covers[path])
		}
		if err == nil {
			break
		}
	}
	if id == 0 && err == nil {
		return false
	}
	if c := w.settings.of(path); c != nil && c.settling.Load() {
		return err == nil
	}
	text := "was replaced on the host while the command ran; what is there now is covered: "
	if err != nil {
		text = "was replaced on the host while the command ran, and could not be covered again: "
	}
	notice := Notice{Kind: NoticeProtected, Path: path, Text: text + printable(path)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.notices, func(n Notice) bool { return n.Path == path }); i >= 0 {
		w.notices[i] = notice // the last time counts
	} else if len(w.notices) < maxSetAside {
		w.notices = append(w.notices, notice)
	}
	return err == nil
}

// end ends the watch, and returns what there is to tell.
func (w *mountWatch) end() []Notice {
	if w == nil {
		return nil
	}
	w.close()
	if w.done != nil {
		<-w.done
	}
	return w.notices
}
