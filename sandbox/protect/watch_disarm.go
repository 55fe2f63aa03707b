package protect

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Taken is what was taken out of a repository that came into being.
type Taken struct{ Name, Key, Value string }

// gits has a directory disarmed, if what appeared in it may make it one of git's.
func (w *Watch) gits(n *node, name string) {
	switch {
	case n.git && !isNamed(n.name, "hooks"):
	case isGits([]byte(name)):
		w.disarmLater(n)
	case isNamed(n.name, "hooks") && n.above != nil && !strings.HasSuffix(name, ".sample"):
		w.disarmLater(n.above)
	}
}

// disarmLater has a directory disarmed when the events that there are were handled: once for all of
// them, as it takes long.
func (w *Watch) disarmLater(n *node) {
	if w.options.Disarm != nil && !n.git && !n.dirty {
		n.dirty = true
		w.dirty = append(w.dirty, n)
	}
}

// worktreeSettings takes out of it what it may not have.
func (w *Watch) worktreeSettings(n *node) {
	fd, err := w.descriptor(n)
	if err != nil {
		w.whenMoved(n, func() { w.worktreeSettings(n) })
		return
	}
	if !n.sparse {
		n.sparse = true
		w.writtenIn(n)
		w.addWatch(fd, unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_MASK_ADD)
	}
	if w.closing {
		apart(fd, ofWorktree)
	}
	taken, err := w.options.DisarmSettings(fd, ofWorktree, func(dir int, name string) error { return w.asideIn(n, dir, name) })
	w.takenOut(n.path(), taken)
	if err != nil {
		w.setAside(n, ofWorktree, ".git/"+ofWorktree, File)
	}
}

// disarmNext disarms one directory.
func (w *Watch) disarmNext() (was bool) {
	if !w.isDirty() {
		return false
	}
	n := w.dirty[0]
	if w.dirty = w.dirty[1:]; len(w.dirty) == 0 {
		w.dirty = nil
	}
	n.dirty = false
	began := time.Now()
	if w.nodes[n.watch] == n {
		w.disarm(n)
	}
	w.restUntil = time.Now().Add(min(time.Since(began), maxRest))
	return true
}

// disarm takes out of a directory what git would execute, if git takes it for its own.
func (w *Watch) disarm(n *node) {
	if w.options.Disarm == nil || n.git {
		return
	}
	fd, err := w.descriptor(n)
	if err != nil {
		w.whenMoved(n, func() { w.disarm(n) })
		return
	}
	if !n.fresh && (isNamed(n.name, ".git") || isBare(n.name) || has(fd, "HEAD") || has(fd, "objects")) {
		w.watchChanges(n, fd)
	}
	if !n.isGit && isGitIn(fd) {
		n.isGit = true
		n.part = max(n.part, gitTop)
		w.later(n, allLevels)
	}
	defer usable(fd)()
	taken, err := w.options.Disarm(fd, func(dir int, name string) error { return w.asideIn(n, dir, name) })
	path := n.path()
	w.takenOut(path, taken)
	if n.indexed { // settings say how it is read
		w.indexLater(n, "index")
	}
	if err != nil && w.closing && len(w.unmoved) < maxTold {
		w.unmoved = append(w.unmoved, Told{Path: path, Text: "is a repository that came into being, and what git would execute could not be taken out of it: " + err.Error()})
	}
	if err != nil && !w.closing {
		n.notBefore = time.Now().Add(time.Millisecond)
		w.disarmLater(n)
	}
}

// takenOut is about what was taken out of a git directory.
func (w *Watch) takenOut(path string, taken []Taken) {
	if len(taken) > 0 && len(w.taken[path]) < maxTaken && len(w.taken) < maxTaken {
		w.taken[path] = append(w.taken[path], taken...)
	}
	for _, t := range taken {
		w.countTaken(path, t)
	}
}

// putInstead reports whether a file has taken the place of a link in an open directory of git's,
// which is at n.
func (w *Watch) putInstead(n *node, dir int, name string) bool {
	if w.options.Instead == nil || !isGitSetting([]byte(name)) {
		return false
	}
	taken, is := w.options.Instead(dir, name)
	if is {
		w.count(join(n.path(), name))
		w.takenOut(n.path(), taken)
	}
	return is
}

// countTaken ends a command that makes one setting again and again, or very many. Some programs
// make a dozen, one after the other.
func (w *Watch) countTaken(path string, t Taken) {
	w.forgetAttempts()
	key := "git " + path + " " + t.Name + " " + t.Key
	if len(w.attempts) < 4*maxAll {
		w.attempts[key]++
	}
	w.takings++
	if t.Key != "" && w.attempts[key] > maxSame || w.takings > maxAll {
		w.stop("gives a repository settings again and again that something outside would execute: " + path)
	}
}
