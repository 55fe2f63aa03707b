package protect

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// asidePrefix begins the names that nothing executes. So many hexadecimal digits are behind it.
const (
	asidePrefix = ".clai-sandbox-aside-"
	asideLength = 12
)

const (
	// maxSame is how often one name may come into being in a minute. A command that makes it again
	// and again would win against setting aside some time.
	maxSame = 3
	// sameFor is how long a name counts: an agent that works for hours saves its settings, or goes
	// from branch to branch, more often.
	sameFor = time.Minute
	// maxAll is how many may in one run, all together: a project that is cloned may bring some
	// hundred.
	maxAll = 1000
)

// An item is something that was set aside.
type item struct {
	in   *node  // the directory that it is in
	dir  string // where that was, and
	at   object // which one it is
	name string // what it is called now
	path string // where it came into being
	rule string
	kind Kind
	// skipped says that git does not look for it in a working tree.
	skipped bool
}

// setAside renames what has come into being under a protected name.
func (w *Watch) setAside(n *node, name, rule string, kind Kind) {
	fd, err := w.descriptor(n)
	if err != nil {
		w.whenMoved(n, func() { w.setAside(n, name, rule, kind) })
		return
	}
	path := join(n.path(), name)
	if !w.count(path) {
		return
	}
	aside, err := w.rename(fd, name, path)
	switch {
	case err == unix.ENOENT: // it is gone, or has another name: then another event tells
	case err != nil:
		w.stuck(path, err)
	default:
		w.add(&item{in: n, dir: n.path(), at: n.object, name: aside, path: path, rule: rule, kind: kind})
		if rule != ".git" {
			w.excludeAside(n)
		}
		if below := n.below[name]; below != nil { // what is in it does not go by itself
			w.place(below, n, aside, false)
		}
	}
}

// gitdirTimeout is how long a new worktree's gitdir may name a file that does not lead back.
const gitdirTimeout = 5 * time.Millisecond

// asideIn sets aside for Disarm: a name in an open directory, which is n's or lies below it.
func (w *Watch) asideIn(n *node, dir int, name string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(dir, &stat); err != nil {
		return err
	}
	in := n
	if objectOf(&stat) != n.object {
		in = n.below["hooks"]
		if in == nil || in.object != objectOf(&stat) {
			in = nil
		}
	}
	at, err := readlink(dir)
	if err == unix.ENAMETOOLONG && in != nil {
		at, err = in.path(), nil
	}
	if err != nil {
		return err
	}
	path := join(at, name)
	if unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return unix.ENOENT
	}
	kind := kindOf(stat.Mode)
	if kind == File && stat.Size == 0 && stat.Nlink == 1 && isGitSetting([]byte(name)) {
		return unix.ENOENT // it has been made, and is about to be written: that is told, too, and git takes an empty one for nothing (tar makes one before a link)
	}
	if name == "gitdir" && w.isWorktreesOwn(dir) {
		return unix.ENOENT
	}
	if name == "gitdir" && !w.closing { // git writes the file that it is held against right after: nothing is executed by this one
		if w.doubted[path].IsZero() {
			w.doubted[path] = time.Now()
		}
		if time.Since(w.doubted[path]) < gitdirTimeout {
			return unix.EAGAIN
		}
	}
	if kind == Link && in == n && w.putInstead(n, dir, name) {
		return unix.ENOENT
	}
	if !w.count(path) {
		return unix.EBUSY
	}
	if err := unix.Fstat(dir, &stat); err != nil {
		return err
	}
	aside, err := w.rename(dir, name, path)
	if err != nil {
		return err
	}
	w.add(&item{in: in, dir: at, at: objectOf(&stat), name: aside, path: path, rule: ".git/" + name, kind: kind})
	return nil
}

// isWorktreesOwn reports whether the file gitdir in an open directory names a file .git that is not
// there, where the command may write it.
func (w *Watch) isWorktreesOwn(dir int) bool {
	text, err := readFile(dir, "gitdir", unix.PathMax)
	file := strings.TrimRight(string(text), "\n")
	if place, err := readlink(dir); err == nil && file != "" && file[0] != '/' {
		file = filepath.Join(place, file)
	}
	var stat unix.Stat_t
	if err != nil || !isNamed(base(file), ".git") || unix.Lstat(file, &stat) != unix.ENOENT {
		return false
	}
	at, err := openRoot(parent(file)) // through no link
	if err != nil {
		return false
	}
	defer unix.Close(at)
	path, err := readlink(at)
	return err == nil && w.writes(path)
}

func readlink(fd int) (string, error) {
	buffer := make([]byte, 4096)
	n, err := unix.Readlink(descriptorPath(fd), buffer)
	return string(buffer[:max(n, 0)]), err
}

// count reports whether a name may come into being once more. If not, the command is ended, but
// what it made is set aside all the same.
func (w *Watch) count(path string) bool {
	w.forgetAttempts()
	if _, source := madeFrom(base(path)); source == "" && len(w.attempts) < 4*maxAll { // what compiles does it whenever it finds nothing
		w.attempts[path]++
	}
	w.asides++
	switch {
	case w.attempts[path] > maxSame:
		w.stop("makes " + path + " again and again")
	case w.asides > maxAll:
		w.stop(fmt.Sprintf("makes more than %d names that something outside would execute", maxAll))
	}
	return w.asides <= 100*maxAll // by then it has ended
}

func (w *Watch) forgetAttempts() {
	if now := time.Now(); now.Sub(w.counted) > sameFor {
		w.counted = now
		clear(w.attempts)
	}
}

// rename gives a name in an open directory, which is at a path, another one. The record says so
// before: this process may be killed. A directory that may not be written is given another mode for
// that: the command owns it, and could do the same.
func (w *Watch) rename(dir int, name, path string) (string, error) {
	for range 4 {
		var random [asideLength / 2]byte
		rand.Read(random[:])
		aside := asidePrefix + hex.EncodeToString(random[:])
		w.options.Record.aside(join(parent(path), aside), path)
		err := unix.Renameat2(dir, name, dir, aside, unix.RENAME_NOREPLACE)
		if err == unix.EACCES {
			undo := usable(dir)
			err = unix.Renameat2(dir, name, dir, aside, unix.RENAME_NOREPLACE)
			undo()
		}
		if err == unix.EINVAL { // a file system that knows no flags: the name is a random one
			err = unix.Renameat(dir, name, dir, aside)
		}
		if err != unix.EEXIST {
			return aside, err
		}
	}
	return "", unix.EEXIST
}

func (w *Watch) stuck(path string, err error) {
	if len(w.unmoved) < maxTold {
		w.unmoved = append(w.unmoved, Told{Path: path, Text: "could not be set aside: " + err.Error()})
	}
	w.stop("makes " + path + ", which cannot be set aside: " + err.Error())
}

func (w *Watch) add(i *item) { w.items = append(w.items, i) }

// maxTold bounds what is told of one run, each for itself.
const maxTold = 20

// A Told is something that a person should know after a run.
type Told struct {
	Path string // where it came into being
	Rule string // what allows it
	ID   string // in the quarantine; empty: it is not there
	Text string // what became of it, if it is not in the quarantine
}

// A Report is what a watch has to tell.
type Report struct {
	Told  []Told
	More  int                // how many more there were
	Taken map[string][]Taken // out of repositories that came into being
	Why   string             // the command was ended
	Made  []string           // repositories that commands alone have written: see Made
}

// newsTimeout bounds how long the watch is waited for, when a command of a session has ended.
const newsTimeout = 50 * time.Millisecond

// catchUp handles what the kernel has told until now.
func (w *Watch) catchUp() {
	buffer := make([]byte, 32<<10)
	for began := time.Now(); !w.turn(buffer) && time.Since(began) < newsTimeout; {
	}
}

// News is what was set aside since the last News, while the command goes on: into the quarantine it
// goes at the end, because until then something may have it open. Why and Taken stay empty.
func (w *Watch) News() Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending {
		return Report{}
	}
	w.catchUp()
	var report Report
	for _, i := range w.items[min(w.news, len(w.items)):] {
		if len(report.Told) == maxTold {
			report.More++
			continue
		}
		report.Told = append(report.Told, Told{Path: i.path, Rule: i.rule, Text: "clai-sandbox quarantine list has it when the session has ended"})
	}
	w.news = len(w.items)
	return report
}

// End ends the watch. Every process of the command has ended. What was set aside goes into the
// quarantine.
func (w *Watch) End(q *Quarantine) Report {
	w.finish()
	w.Objects()
	w.mu.Lock()
	defer w.mu.Unlock()
	report := Report{Taken: w.taken, Why: w.why, Told: w.unmoved}
	tell := func(told Told) {
		if len(report.Told) < maxTold {
			report.Told = append(report.Told, told)
		} else {
			report.More++
		}
	}
	stored, gone := map[string]bool{}, map[string]string{}
	for _, i := range slices.Backward(w.items) { // what lies in something else that was set aside goes by itself
		if told, there := w.store(q, i); there {
			stored[i.path] = true
			tell(told)
		} else {
			gone[i.path] = i.rule
		}
	}
	for tree, is := range w.excluded {
		if is {
			w.options.Exclude(tree, asidePattern, false, w.writes)
		}
	}
	w.lookFor(slices.Sorted(maps.Keys(gone)), stored)
	for _, path := range slices.Sorted(maps.Keys(gone)) {
		if !covers(stored, path, "/") {
			tell(Told{Path: path, Rule: gone[path], Text: "it was removed again before the command ended, or has another name"})
		}
	}
	for _, told := range w.removeInto(q) {
		tell(told)
	}
	report.Made = w.made()
	w.options.Record.remove()
	slices.SortFunc(report.Told, func(a, b Told) int { return strings.Compare(a.Path, b.Path) })
	return report
}

// lookFor has git look into the working tree again for what is nowhere any more.
func (w *Watch) lookFor(gone []string, stored map[string]bool) {
	gone = slices.DeleteFunc(slices.Clone(gone), func(path string) bool { return covers(stored, path, "/") })
	if len(gone) == 0 || w.options.SkipWorktree == nil {
		return
	}
	for _, n := range w.nodes {
		if !n.indexed {
			continue
		}
		if fd, err := w.descriptor(n); err == nil {
			w.options.SkipWorktree(fd, n.path(), "index", gone, false)
		}
	}
}

// covers reports whether a path, or one between it and another, is in a list.
func covers(list map[string]bool, path, above string) bool {
	for ; path != above && path != "/"; path = parent(path) {
		if list[path] {
			return true
		}
	}
	return false
}

// finish handles what the kernel has told until the command ended, and leaves nothing undone.
func (w *Watch) finish() {
	w.halt()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.buffer == nil { // there was no reader
		w.buffer = make([]byte, 32<<10)
	}
	if len(w.waiting)+len(w.retry) > 0 || w.why != "" {
		w.lookAgain()
	}
	for again := 0; again < 1<<20; again++ {
		if w.turn(w.buffer) && len(w.retry) == 0 && len(w.dirty) == 0 && len(w.indexes) == 0 && len(w.linked) == 0 && len(w.lost) == 0 {
			break
		}
	}
	for _, n := range w.nodes {
		if n.fresh {
			w.settingsApart(n)
			w.hooksApart(n)
			w.disarm(n)
		}
		if n.indexed {
			w.allIndexes(n)
			w.tellState(n)
		}
		if n.linked {
			w.gitFile(n, ".git")
		}
		if n.stash != "" {
			w.checkStash(n)
		}
		if len(n.refs) > 0 {
			w.refsAtEnd(n)
		}
		if n.sparse {
			w.worktreeSettings(n)
		}
	}
}

// halt ends the reader: its descriptors may be closed only then.
func (w *Watch) halt() {
	w.mu.Lock()
	w.ending, w.closing = true, true
	w.mu.Unlock()
	if w.done != nil {
		unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		<-w.done
	}
}

// store moves an item into the quarantine. It reports false if it is not there any more.
func (w *Watch) store(q *Quarantine, i *item) (Told, bool) {
	dir, err := w.openItem(i)
	if err != nil {
		return Told{}, false
	}
	defer unix.Close(dir)
	told := Told{Path: i.path, Rule: i.rule}
	id, err := q.Put(dir, i.name, i.path, i.rule)
	switch {
	case err == unix.ENOENT:
		return told, false
	case err != nil:
		told.Text = "is now called " + join(i.dir, i.name) + ": it could not be moved to the quarantine: " + err.Error()
	}
	told.ID = id
	return told, true
}

// openItem opens the directory that an item is in.
func (w *Watch) openItem(i *item) (int, error) {
	if i.in != nil && w.nodes[i.in.watch] == i.in {
		fd, err := w.descriptor(i.in)
		if err != nil {
			return -1, err
		}
		return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	for _, r := range w.roots {
		if !within(i.dir, r.path) {
			continue
		}
		fd, err := openBelow(r.open, relative(i.dir, r.path), unix.O_RDONLY|unix.O_NONBLOCK)
		if err != nil {
			return -1, err
		}
		var stat unix.Stat_t
		if unix.Fstat(fd, &stat) != nil || objectOf(&stat) != i.at {
			unix.Close(fd)
			return -1, unix.ENOENT
		}
		return fd, nil
	}
	return -1, unix.ENOENT
}

// removeInto takes away directories under protected names that came into being, as far as nothing
// is in them any more. What is in one even so was made by somebody else in this moment: then it
// goes into the quarantine as a whole.
func (w *Watch) removeInto(q *Quarantine) (filled []Told) {
	var made []*node
	for _, n := range w.nodes {
		if n.whole != "" && !n.stood && n.above != nil && n.path() != "" {
			made = append(made, n)
		}
	}
	slices.SortFunc(made, func(a, b *node) int { return strings.Count(b.path(), "/") - strings.Count(a.path(), "/") })
	for _, n := range made {
		fd, err := w.descriptor(n.above)
		if err != nil || unix.Unlinkat(fd, n.name, unix.AT_REMOVEDIR) != unix.ENOTEMPTY || !w.isFilled(n) {
			continue
		}
		if aside, err := w.rename(fd, n.name, n.path()); err == nil {
			if told, there := w.store(q, &item{in: n.above, name: aside, path: n.path(), rule: n.whole}); there {
				filled = append(filled, told)
			}
		}
	}
	// And those that another command made, or that were made again when this watch had ended:
	// nobody else may be left to see to them.
	for path := range w.empty {
		if fd, err := openRoot(parent(path)); err == nil {
			unix.Unlinkat(fd, base(path), unix.AT_REMOVEDIR)
			unix.Close(fd)
		}
	}
	return filled
}

// isFilled reports whether there is anything in a directory but what was set aside and is too large
// to be moved.
func (w *Watch) isFilled(n *node) (filled bool) {
	fd, err := w.descriptor(n)
	if err != nil {
		return false
	}
	unix.Seek(fd, 0, unix.SEEK_SET)
	readDirectory(fd, func(name []byte, _ Kind) bool {
		filled = !isAside(string(name))
		return !filled
	})
	return filled
}

// Close closes the watch. It may take the kernel a while, if nobody else has the descriptor.
func (w *Watch) Close() {
	if w == nil || w.inotify < 0 {
		return
	}
	w.halt()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLook()
	for _, n := range w.recent {
		if n != nil {
			w.close(n)
		}
	}
	for _, r := range w.roots {
		unix.Close(r.open)
	}
	for _, s := range w.surveyed {
		unix.Close(s.open)
	}
	unix.Close(w.wake)
	unix.Close(w.inotify)
	w.inotify = -1
}
