package protect

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

func (w *Watch) happened(n *node, name []byte, mask, cookie uint32) {
	isDirectory := mask&unix.IN_ISDIR != 0
	switch {
	case mask&unix.IN_MOVED_FROM != 0:
		if isDirectory && len(w.loose) > 0 && n.path() != "" {
			w.loosen(join(n.path(), string(name)))
		}
		if below := n.below[string(name)]; isDirectory && below != nil {
			w.lose(below)
			w.moved[cookie] = below
			if _, err := w.descriptor(n); err == nil { // when two are exchanged, something has the name already
				w.tryAdopt(n, string(name))
			}
		}
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		if mask&unix.IN_MOVED_TO != 0 {
			if m := w.moved[cookie]; m != nil && isDirectory {
				delete(w.moved, cookie)
				if w.lost[m] { // else it was found since
					w.place(m, n, string(name), false)
				}
			}
		}
		if !isDirectory {
			w.linksLater(n)
		}
		if isDirectory || n.part != notGit || w.matters(n, name) {
			kind := File
			if isDirectory {
				kind = Directory
			}
			w.appeared(n, string(name), kind, mask&unix.IN_MOVED_TO != 0)
		}
	case mask&(unix.IN_MODIFY|unix.IN_CLOSE_WRITE) != 0:
		if n.fresh && isGitSetting(name) {
			w.disarmLater(n)
		}
		if n.sparse && string(name) == ofWorktree {
			w.worktreeSettings(n)
		}
		w.indexLater(n, string(name))
		if n.refs[string(name)] {
			w.appeared(n, string(name), File, true)
		}
		if n.linked && isNamed(string(name), ".git") {
			w.gitFile(n, string(name))
		}
	}
}

// matters reports whether a name may be one that anything is to be done about. It is for speed:
// most are not.
func (w *Watch) matters(n *node, name []byte) bool {
	return n.whole != "" || w.options.Names.ends(name) || isGits(name) || isNamed(n.name, "hooks") || isNamed(string(name), ".git") || isNamed(string(name), packedRefs) || w.lastNames[string(name)]
}

// has reports whether something is called name in an open directory.
func has(dir int, name string) bool {
	return unix.Faccessat(dir, name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// isNamed reports whether a name is another one, or differs from it by letter case alone.
func isNamed(name, is string) bool { return len(name) >= len(is) && fold(name) == is }

// isGits reports whether git takes a name in one of its directories for a part of it. Letter case
// does not matter here, either.
func isGits(name []byte) bool {
	switch string(foldBytes(name)) {
	case "head", "objects", "refs", "hooks":
		return true
	}
	return isGitSetting(name)
}

func isGitSetting(name []byte) bool {
	switch string(foldBytes(name)) {
	case "config", "config.worktree", "commondir", "gitdir":
		return true
	}
	return false
}

// appeared does what is to be done about something that has come into being, or was found.
func (w *Watch) appeared(n *node, name string, kind Kind, moved bool) {
	if n.path() == "" { // where it is, another event will tell
		n.top().doubt = true
		return
	}
	rule, protected := w.rule(n, name)
	if !protected && kind != Directory && !isAside(name) {
		rule, protected = w.options.Names.MatchLeaf(n.path(), name, n.part != notGit)
	}
	if !protected && kind != Directory {
		if of, is := w.options.Names.MatchLink(n.path(), name); is && w.isLink(n, name) {
			rule, protected = of, true
		}
	}
	if !protected && kind != Directory && w.isStray(n, name) {
		if fd, err := w.descriptor(n); err == nil && w.putInstead(n, fd, name) {
			return // of the file, the kernel tells
		}
		rule, protected = ".git", true
	}
	if !protected && kind != Directory && isNamed(name, packedRefs) {
		w.hasPacked(n, "")
	}
	if !protected && kind != Directory {
		w.indexLater(n, name)
		if isNamed(name, ".git") {
			w.gitFile(n, name)
		}
	}
	switch {
	case !protected:
	case n.git && kind != Directory && name == ofWorktree && w.options.DisarmSettings != nil:
		w.worktreeSettings(n)
		return
	case n.whole != "" && kind == Directory, kind == Directory && !moved && n.whole == "":
		// A directory that was made, under a protected name, or in one that was: what it comes to
		// hold is set aside.
		w.mayBeEmpty(join(n.path(), name))
	case w.isOwn(n, name):
		return
	default:
		w.setAside(n, name, rule, kind)
		return
	}
	w.gits(n, name)
	if kind == Directory {
		w.tryAdopt(n, name)
	}
}

// isOwn reports whether a name stands for a copy that this watch has put there.
func (w *Watch) isOwn(n *node, name string) bool {
	if len(w.own) == 0 {
		return false
	}
	fd, err := w.descriptor(n)
	if err != nil {
		return false
	}
	is, there := identify(fd, name, join(n.path(), name))
	return there && w.own[is]
}

// isLink reports whether a name stands for a symbolic link. What is gone by now, another event
// tells.
func (w *Watch) isLink(n *node, name string) bool {
	fd, err := w.descriptor(n)
	if err != nil {
		w.whenMoved(n, func() { w.appeared(n, name, Link, false) })
		return false
	}
	var stat unix.Stat_t
	return unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil && kindOf(stat.Mode) == Link
}

// rule is what protects a name in a directory.
func (w *Watch) rule(n *node, name string) (string, bool) {
	switch {
	case isAside(name):
		return "", false
	case isNamed(n.name, "hooks") && strings.HasSuffix(name, ".sample"):
		return "", false // git's own, which it does not execute
	case n.whole != "":
		return n.whole, true
	case n.git && (isGitSetting([]byte(name)) || isNamed(name, "hooks")) && !w.options.Names.Unprotected[fold(name)]:
		return ".git/" + name, true
	}
	return w.options.Names.Match(n.path(), name, n.packages)
}

// there is what is protected and was there before the command began.
func (w *Watch) there(n *node, name, path string) {
	fd, err := w.descriptor(n)
	if err != nil {
		return
	}
	is, there := identify(fd, name, path)
	if !there {
		return
	}
	w.known[is] = true
	if !w.options.Known[path] && !w.isApart(path) {
		w.late = append(w.late, path)
		w.mayBeEmpty(path)
	}
}

// mayBeEmpty remembers a path at which a directory came into being that is to be removed when it is
// empty at the end.
func (w *Watch) mayBeEmpty(path string) {
	if len(w.empty) < maxAll {
		w.empty[path] = true
	}
}

// thereInGit is the same of what git executes in one of its directories, or is led by.
func (w *Watch) thereInGit(n *node, path string) {
	for _, name := range gitNames {
		if !w.options.Names.Unprotected[name] {
			w.there(n, name, join(path, name))
		}
	}
}

// at is the directory at a path, by the account.
func (w *Watch) at(path string) *node {
	for _, r := range w.roots {
		if !within(path, r.path) {
			continue
		}
		n := r.node
		for name := range strings.SplitSeq(relative(path, r.path), "/") {
			if name != "" && n != nil {
				n = n.below[name]
			}
		}
		if n != nil {
			return n
		}
	}
	return nil
}

// tryAdopt watches a directory, or tries again later.
func (w *Watch) tryAdopt(n *node, name string) {
	switch err := w.adopt(n, name); {
	case err == nil:
	case errors.Is(err, errStale):
		w.whenMoved(n, func() { w.tryAdopt(n, name) })
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		w.stop("makes more directories than can be watched (see /proc/sys/fs/inotify/max_user_watches)")
	default:
		w.stop("makes a directory that cannot be watched: " + err.Error())
	}
}

// whenMoved tries something again when all that the kernel has to tell was heard.
func (w *Watch) whenMoved(n *node, again func()) {
	switch {
	case w.nodes[n.watch] != n, n.path() == "":
		n.doubt = true // it is looked through when it appears somewhere
	case len(w.retry) >= maxRetries:
		w.stop("moves directories faster than the watch can follow")
	case n.stale >= maxStale:
		n.stale = 0
		w.lookAgain()
	default:
		n.stale++
		w.retry = append(w.retry, again)
	}
}

// isKnown reports whether a name stands for an object that was protected from the start.
func (w *Watch) isKnown(n *node, name string) bool {
	fd, err := w.descriptor(n)
	if err != nil {
		return false
	}
	is, there := identify(fd, name, join(n.path(), name))
	return there && w.known[is]
}
