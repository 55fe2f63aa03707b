package changes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/cow"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
)

// A Layer is one that some agent's commands wrote.
type Layer struct {
	Dir         string // in the state directory
	Agent, Name string
	cow.About
	Since int64 // nanoseconds: when it was last opened empty
	Empty bool
	// Holder says which process has it in use; empty if none has.
	Holder string
	// Rules say what needs a person; nil, as List leaves it, has none.
	Rules *profile.ChangeRules
	// Leads says why something outside executes what changed, or does as it says, that cannot be
	// told from its name. Nil, as List leaves it, knows of nothing.
	Leads func(Change) string
}

// ErrNoLayer means that there is none.
var ErrNoLayer = errors.New("there is no such layer")

// An InUseError says who has a layer.
type InUseError struct{ Holder string }

func (e *InUseError) Error() string { return "the layer is in use by " + e.Holder }

// A StrangeError says that what is at a layer's path is not what the commands saw there.
type StrangeError struct{ Path string }

func (e *StrangeError) Error() string {
	return e.Path + " is another directory than the one that the commands saw"
}

// List lists the layers in a state directory. Those that cannot be read are left out.
func List(state string) ([]Layer, error) {
	var list []Layer
	agents, err := os.ReadDir(filepath.Join(state, "layers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, agent := range agents {
		entries, err := os.ReadDir(filepath.Join(state, "layers", agent.Name()))
		if err != nil {
			continue
		}
		for _, entry := range entries {
			if l, err := load(filepath.Join(state, "layers", agent.Name(), entry.Name())); err == nil {
				list = append(list, l)
			}
		}
	}
	return list, err
}

func load(dir string) (Layer, error) {
	l := Layer{Dir: dir, Agent: filepath.Base(filepath.Dir(dir)), Name: filepath.Base(dir)}
	var err error
	if l.About, err = cow.Read(dir); err != nil {
		return l, err
	}
	if l.Since, err = cow.Since(dir); err != nil {
		return l, err
	}
	if l.Empty, err = cow.IsEmpty(dir); err != nil {
		return l, err
	}
	l.Holder = holder(filepath.Join(dir, "lock"))
	return l, nil
}

// holder finds who has a lock, in the kernel's list of locks.
func holder(lock string) string {
	var s unix.Stat_t
	if unix.Lstat(lock, &s) != nil {
		return ""
	}
	text, err := os.ReadFile("/proc/locks")
	if err != nil {
		return ""
	}
	id := fmt.Sprintf("%02x:%02x:%d", unix.Major(s.Dev), unix.Minor(s.Dev), s.Ino)
	for line := range strings.Lines(string(text)) {
		// 1: FLOCK  ADVISORY  WRITE 708 08:01:1234 0 EOF
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5] != id {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			return "process " + fields[4]
		}
		return "another process"
	}
	return ""
}

// opened is a layer with its two directories open.
type opened struct {
	Layer
	upper, lower int
	lock         *cow.Layer
	applied      map[string]applied // what an earlier apply put on the host
}

// takeUpper opens and locks a layer without what is below it.
func (l Layer) takeUpper() (*opened, *Result, error) {
	lock, err := cow.Take(l.Dir)
	if err != nil {
		return nil, nil, err
	}
	o := &opened{Layer: l, lower: -1, lock: lock}
	if o.upper, err = l.openUpper(); err != nil {
		lock.Close()
		return nil, nil, err
	}
	return o, &Result{}, nil
}

func (l Layer) openUpper() (int, error) {
	upper, err := cow.OpenUpper(l.Dir)
	if err != nil {
		return -1, err
	}
	defer upper.Close()
	return unix.FcntlInt(upper.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

// open opens the directories of a layer. What is at its path must be what the commands saw there.
func (l Layer) open() (*opened, error) {
	o := &opened{Layer: l, upper: -1, lower: -1}
	var err error
	if o.upper, err = l.openUpper(); err != nil {
		return nil, err
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	if o.lower, err = unix.Openat2(unix.AT_FDCWD, l.Path, &how); err != nil {
		o.lower = -1
		o.close()
		return nil, fmt.Errorf("open %s: %w", l.Path, err)
	}
	object, err := cow.ObjectOf(o.lower, "")
	if err == nil && !object.Is(l.Object) {
		err = &StrangeError{l.Path}
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// take opens a layer and locks it. An apply that was interrupted is finished or taken back first.
func (l Layer) take(ctx context.Context) (*opened, *Result, error) {
	lock, err := cow.Take(l.Dir)
	if errors.Is(err, cow.ErrInUse) {
		who := holder(filepath.Join(l.Dir, "lock"))
		if who == "" {
			who = "another process"
		}
		return nil, nil, &InUseError{who}
	}
	if err != nil {
		return nil, nil, err
	}
	rules, leads := l.Rules, l.Leads
	if l, err = load(l.Dir); err != nil {
		lock.Close()
		return nil, nil, err
	}
	l.Rules, l.Leads = rules, leads
	o, err := l.open()
	if err != nil {
		lock.Close()
		return nil, nil, err
	}
	o.lock = lock
	result := &Result{}
	if err := o.recover(ctx, result); err != nil {
		o.close()
		return nil, nil, err
	}
	return o, result, nil
}

func (o *opened) close() {
	for _, fd := range []int{o.upper, o.lower} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	o.lock.Close()
}

func (o *opened) walk(ctx context.Context) (*Review, error) {
	veiled, err := o.look()
	if err != nil {
		return nil, err
	}
	return o.compare(ctx, veiled)
}

// look reads what an earlier apply did, and what commands did not see.
func (o *opened) look() (veiled []string, err error) {
	if o.applied, err = readApplied(o.Dir); err != nil {
		return nil, err
	}
	return o.veiled()
}

// veiled are the names below the directory that commands did not see as the host has them.
func (l Layer) veiled() (list []string, err error) {
	veil := filepath.Join(l.Dir, mounts.LayerVeil)
	err = filepath.WalkDir(veil, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, err = filepath.Rel(veil, name)
			list = append(list, name)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return list, err
}

// Review compares a layer with the host. A sandbox may have the layer in use meanwhile: then this
// is what it was a moment ago.
func (l Layer) Review(ctx context.Context) (*Review, error) {
	o, err := l.open()
	if err != nil {
		return nil, err
	}
	defer o.close()
	return o.walk(ctx)
}
