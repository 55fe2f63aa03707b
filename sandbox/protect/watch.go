package protect

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options say what is watched, and what for.
type Options struct {
	Roots  []string // absolute, no component a symbolic link
	Names  *Names
	Known  map[string]bool  // protected paths that were there before, which are mounts
	Git    map[string]bool  // git directories that were there before
	Made   map[string]bool  // git directories that other commands made, and that nobody else has written since: as if this one made them
	Apart  map[string]bool  // directories below the roots that the command may not write, or that are roots themselves
	Covers map[string]Cover // paths at which something is mounted that has to stay
	// Disarm takes out of a directory what git executes there, if it is one of git's. Nil does not.
	Disarm Disarm
	// CheckIndex says what is wrong with an index in a git directory. Nil does not look.
	CheckIndex CheckIndex
	// SkipWorktree has git not miss what was set aside. Nil does not.
	SkipWorktree SkipWorktree
	// Exclude has git not add what was set aside under its new name. Nil does not.
	Exclude Exclude
	// NewObjectCheck says what is wrong with git's objects. Nil does not look.
	NewObjectCheck NewObjectCheck
	// DisarmSettings does so for one file of settings in a repository that was there. Nil does not,
	// and the file is set aside.
	DisarmSettings func(dir int, name string, aside func(dir int, name string) error) ([]Taken, error)
	// CheckGitFile says what is wrong with a file .git. Nil does not look.
	CheckGitFile CheckGitFile
	// Instead puts a file in the place of a symbolic link in a git directory, if that leads to
	// settings of the sandbox's own: a copy of a repository, made inside, has one. Nil does not.
	Instead func(dir int, name string) ([]Taken, bool)
	// Held reports whether a process of the command has one of these directories: as working
	// directory, or open.
	Held func(is func(device, inode uint64) bool) bool
	// Own is this program's directory, into which no link may lead that the command makes. Empty:
	// that is not looked for.
	Own string
	// CouldWrite reports whether any command could ever write what is at a path. Nil: any could.
	CouldWrite func(path string) bool
	Record     *Record
}

const (
	Hides     Cover = iota + 1
	Protects        // read-only
	Anchors         // only keeps it from being renamed
	Elsewhere       // somebody else looks after it
	Withholds       // read-only, whatever it is: a grant says so
)

// A Watch watches the directories that a command may write. Survey and Prepare come before the
// command begins, and End when every process of it has ended.
type Watch struct {
	options  Options
	inotify  int
	buffer   []byte // for what it tells: of the reader, and when that has ended, of finish
	wake     int    // an eventfd: the reader is to look up
	budget   int    // directories
	over     chan struct{}
	done     chan struct{}
	replaced func(path string)
	missing  func() []string

	mu        sync.Mutex
	surveyed  []*survey // not entered into the account yet
	roots     []*root
	nodes     map[int32]*node
	extra     map[int32]string // directories outside the roots, in which something is covered
	bare      map[string]bool  // of those apart: the host took what was there, and the mount with it
	back      map[string]bool  // of those, what has been covered since
	lost      map[*node]bool   // moved away, and not seen again yet
	moved     map[uint32]*node // by the cookie
	recent    [openNodes]*node
	next      int
	todo      []*node // to be looked through, each once
	looking   *looking
	indexes   []entry // of git's, to be read
	written   []*node // in which git's files are written; see lookForWriters
	dirty     []*node // may be git's, and have to be disarmed, each once
	restUntil time.Time
	// writersNext is when to look for who has them open, and writersLeft in how many that is still
	// to do.
	writersNext time.Time
	writersLeft int
	linked      []*node // in which links may have come into being, each once
	linksNext   time.Time
	waiting     []entry
	retry       []func()
	closed      []Closed // found in Prepare
	late        []string
	known       map[identity]bool
	own         map[identity]bool // copies that this watch put in the place of what became read-only
	strays      map[string]string // links and the like in git's directories that were there before, by path
	lastNames   map[string]bool   // of covers
	loose       map[string]bool   // of covers, those above which the command may rename directories
	packed      map[*node]string  // directories with a packed-refs, and what was in that
	closing     bool
	ending      bool
	deep        bool
	began       time.Time
	objectsSeen time.Time // when objects were looked through the last time
	again       int       // how often everything was looked through again
	overflows   int       // how often the kernel could not tell all
	blind       time.Time // since when it could not
	seeking     time.Time // since when everything is looked through for what is lost
	seekNext    time.Time // not before
	settled     time.Time
	onceMore    bool
	why         string

	items    []*item
	news     int // how many of them have been told
	attempts map[string]int
	counted  time.Time // since when
	asides   int
	takings  int
	empty    map[string]bool
	taken    map[string][]Taken
	doubted  map[string]time.Time
	unmoved  []Told
	excluded map[string]bool // working trees in which git does not add what was set aside; false: it could not be told so
}

const (
	allLevels = 1 << 30
	// renamedLevels is how far below a directory that has another name now some protected name may
	// end, if none is longer.
	renamedLevels = 8
)

// NewWatch opens a watch. Its descriptor may be handed to another process, which then closes it
// last: that takes the kernel a while.
func NewWatch() (*Watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w; see /proc/sys/fs/inotify/max_user_instances", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	now := time.Now()
	return &Watch{began: now, objectsSeen: now, inotify: fd, wake: wake, budget: watchBudget(), over: make(chan struct{}), nodes: map[int32]*node{}, extra: map[int32]string{},
		lost: map[*node]bool{}, moved: map[uint32]*node{}, known: map[identity]bool{}, own: map[identity]bool{}, strays: map[string]string{}, lastNames: map[string]bool{}, packed: map[*node]string{}, attempts: map[string]int{},
		bare: map[string]bool{}, back: map[string]bool{}, empty: map[string]bool{}, taken: map[string][]Taken{}, doubted: map[string]time.Time{}, excluded: map[string]bool{}}, nil
}

// Began is when the watch began: what was changed before, nobody changed whom it is to watch.
func (w *Watch) Began() time.Time { return w.began }

// Descriptor is the number of the inotify instance.
func (w *Watch) Descriptor() int { return w.inotify }

// Over is closed when the command has to be ended; Why says why.
func (w *Watch) Over() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.over
}

// Why says why the command had to be ended, or nothing.
func (w *Watch) Why() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.why
}

func (w *Watch) stop(why string) {
	if w.why == "" && !w.closing {
		w.why = why
		close(w.over)
	}
}

// apartNode stands for directories that are not in the account.
var apartNode = &node{watch: -1}

// Begin reads what the kernel tells, until End. replaced is called for each path that has to be
// covered and has something else at it now, and missing when that may be any of them: it names
// those at which nothing is mounted.
func (w *Watch) Begin(replaced func(path string), missing func() []string) {
	w.mu.Lock()
	w.replaced, w.missing = replaced, missing
	w.mu.Unlock()
	w.done = make(chan struct{})
	go w.read()
}

// read waits on a thread of its own: to be woken on one takes the runtime least.
func (w *Watch) read() {
	defer close(w.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fds := []unix.PollFd{{Fd: int32(w.inotify), Events: unix.POLLIN}, {Fd: int32(w.wake), Events: unix.POLLIN}}
	w.buffer = make([]byte, 32<<10)
	for {
		w.mu.Lock()
		idle := w.turn(w.buffer)
		ending, wait := w.ending, -1
		if len(w.waiting)+len(w.retry)+len(w.dirty)+len(w.indexes)+len(w.linked)+len(w.lost) > 0 {
			wait = 1
		} else if w.writersLeft > 0 {
			wait = 0
		} else if len(w.written) > 0 {
			wait = int(writersEvery / time.Millisecond)
		}
		w.mu.Unlock()
		if ending {
			return
		}
		if !idle {
			continue
		}
		if _, err := unix.Poll(fds, wait); err != nil && err != unix.EINTR {
			return
		}
		if fds[1].Revents != 0 {
			unix.Read(w.wake, make([]byte, 8))
		}
	}
}

// turn handles what the kernel has told, then looks through directories, for about as long, and
// disarms one. However much a command does of one kind, the others have their turn. It reports
// whether there is nothing more to do.
func (w *Watch) turn(buffer []byte) (idle bool) {
	began := time.Now()
	told := w.drain(buffer)
	busy := w.disarmNext()
	busy = w.readIndex() || busy
	busy = w.checkLinks() || busy
	for took := time.Since(began); w.isLooking(); {
		busy = true
		if w.step(); !w.isLooking() {
			w.looked()
		}
		if time.Since(began) > 2*took {
			break
		}
	}
	if idle = !told && !busy; !idle && time.Since(w.settled) < settleEvery {
		return false
	}
	if !idle {
		for range maxDrained { // what is tried again is to find the account as it should be
			if !w.drain(buffer) {
				break
			}
		}
	}
	w.settled = time.Now()
	w.settle(idle)
	return idle && !w.isLooking() && !w.isDirty()
}

const (
	// settleEvery is how long a command that keeps the watch busy may keep it from what is done
	// when it is not.
	settleEvery = 20 * time.Millisecond
	maxDrained  = 16
)

// isDirty reports whether a directory has to be disarmed now.
func (w *Watch) isDirty() bool {
	if len(w.dirty) == 0 || w.closing {
		return len(w.dirty) > 0
	}
	now := time.Now()
	return !now.Before(w.dirty[0].notBefore) && !now.Before(w.restUntil)
}

func (w *Watch) isLooking() bool { return len(w.todo) > 0 || w.looking != nil }

// drain handles events that there are: what fits into the buffer.
func (w *Watch) drain(buffer []byte) (told bool) {
	for {
		n, err := unix.Read(w.inotify, buffer)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return false
		}
		w.handle(buffer[:n])
		return true
	}
}

// settle is for when the kernel has nothing more to tell: what is lost is gone, and what could not
// be done is tried again. idle says that there is nothing to look through, either.
func (w *Watch) settle(idle bool) {
	w.lookForWriters()
	w.settleLost(idle)
	retry := w.retry
	w.retry = nil
	for _, again := range retry {
		again()
	}
	waiting := w.waiting
	w.waiting = nil
	for _, e := range waiting {
		w.tryAdopt(e.in, e.name)
	}
}

const (
	// lostTimeout is how long the kernel may take to tell where a directory was moved.
	lostTimeout = 5 * time.Millisecond
	// lostLong is how long a command that has a directory may keep the watch too busy to look for
	// it.
	lostLong = time.Second
)

// settleLost is for directories that were moved away. What the account says may be wrong, so they
// are looked for everywhere. Only what is not found then was moved out of what is watched, by
// somebody outside. A process of the command that has one can go on making whatever it wants in it,
// unseen: it is ended.
func (w *Watch) settleLost(idle bool) {
	now := time.Now()
	if idle && !w.seeking.IsZero() { // everything was looked through
		w.seekNext, w.seeking = now.Add(min(seekRest*now.Sub(w.seeking), time.Second)), time.Time{}
	}
	held, seek := false, false
	for n := range w.lost {
		switch age := now.Sub(n.lostAt); {
		case n.lostAt.IsZero() && w.closing:
			n.lostAt, n.unasked, seek = now, true, true
		case n.lostAt.IsZero():
			n.lostAt, n.held = now, w.isHeld(n)
		case !idle && age > lostLong && !w.closing: // there is too much to do to look for it
			n.lostAt, held = now, held || n.held || w.isHeld(n)
		case idle && n.sought && len(w.retry) == 0:
			held = held || n.held || !w.closing && w.isHeld(n)
			if n.unasked && len(w.unmoved) < maxTold {
				w.unmoved = append(w.unmoved, Told{Path: n.was, Text: "the directory was moved away on the host while the command ended, which may have made something in it since"})
			}
			w.forget(n)
		case idle && !n.sought:
			seek = seek || w.closing || age > lostTimeout && now.After(w.seekNext)
		}
	}
	if seek && idle {
		for n := range w.lost {
			n.sought = true
		}
		w.seeking = now
		w.rescan()
	}
	if len(w.lost) == 0 {
		clear(w.moved)
	}
	if held && w.why == "" {
		w.stop("was at work in a directory that was moved away on the host")
		w.why = "was at work in a directory that was moved away on the host, where it could have made anything: look at what is in it"
	}
}

// seekRest is for how many times as long as everything was looked through it is not done again, at
// most a second: what is lost stays watched meanwhile.
const seekRest = 4

// isHeld reports whether a process of the command has a directory, or one below it.
func (w *Watch) isHeld(n *node) bool {
	if w.options.Held == nil {
		return false
	}
	all := map[object]bool{}
	for list := []*node{n}; len(list) > 0; {
		last := list[len(list)-1]
		list = slices.AppendSeq(list[:len(list)-1], maps.Values(last.below))
		all[last.object] = true
	}
	return w.options.Held(func(device, inode uint64) bool { return all[object{device, inode}] })
}

// An event is one of the kernel's (inotify(7)).
type event struct {
	watch        int32
	mask, cookie uint32
	name         []byte
}

// next takes an event off a buffer of them.
func next(events []byte) (event, []byte) {
	size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
	name, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:size], []byte{0})
	return event{int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:]), binary.NativeEndian.Uint32(events[8:]), name}, events[size:]
}

// handle looks at events.
func (w *Watch) handle(events []byte) {
	for len(events) >= unix.SizeofInotifyEvent {
		var e event
		e, events = next(events)
		switch n := w.nodes[e.watch]; {
		case e.mask&unix.IN_Q_OVERFLOW != 0:
			w.overflowed()
		case e.mask&unix.IN_IGNORED != 0:
			if n != nil {
				w.drop(n)
			}
		case n != nil && w.lastNames[string(e.name)] && n.path() != "":
			var more []byte
			covered := false
			if covered, more = w.atCover(e, join(n.path(), string(e.name)), events); !covered {
				w.happened(n, e.name, e.mask, e.cookie)
			}
			events = append(events[:len(events):len(events)], more...)
		case n != nil:
			w.happened(n, e.name, e.mask, e.cookie)
		case w.extra[e.watch] != "":
			w.isCovered(join(w.extra[e.watch], string(e.name)))
		}
	}
}

// gone is about something that was protected at a path, and is not there any more.
func (w *Watch) gone(path string) {
	if w.options.Covers[path] == 0 {
		return
	}
	for p, cover := range w.options.Covers {
		if within(p, path) && cover != Hides && cover != Withholds {
			delete(w.options.Covers, p)
		}
	}
	for _, list := range []map[string]bool{w.options.Known, w.options.Git} {
		for p := range list {
			if within(p, path) {
				delete(list, p)
			}
		}
	}
}

// Gone says that nothing is mounted at a path, because nothing was there.
func (w *Watch) Gone(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uncovered(path)
	w.gone(path)
	delete(w.options.Known, path)
}

// stays covers what has to be covered whoever made it.
func (w *Watch) stays(path string) bool {
	if cover := w.options.Covers[path]; cover != Hides && cover != Withholds {
		return false
	}
	w.isCovered(path)
	return true
}

// mayMislead reports whether git may take a file in a directory for another object than the one
// that is asked for.
func (w *Watch) mayMislead(n *node, name string) bool {
	_, is := mayMislead(join(n.path(), name))
	return is
}

// gitNames are what git executes in one of its directories, and what leads it elsewhere.
var gitNames = []string{"hooks", "config", "config.worktree", "commondir", "gitdir"}

const (
	// maxRetries bounds how much is tried again at a time, because a directory is not where the
	// account says.
	maxRetries = 4096
	// maxStale is how often in a row one directory may not be there, before the account is made
	// anew.
	maxStale = 3
)

const (
	// maxAgain bounds how often everything is looked through again in one run because the account
	// was wrong.
	maxAgain = 64
	// maxBlind bounds how long the kernel may have more to tell than it keeps, before everything
	// was looked through once in between.
	maxBlind = 30 * time.Second
)

// maxRest bounds how long nothing is disarmed after something was: as long as that took.
const maxRest = 100 * time.Millisecond

// ofWorktree is the file of settings that "git sparse-checkout" makes.
const ofWorktree = "config.worktree"

const maxTaken = 256

func readSmall(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	buffer := make([]byte, 64)
	n, err := unix.Read(fd, buffer)
	return string(buffer[:max(n, 0)]), err
}
