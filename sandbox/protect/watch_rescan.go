package protect

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// looking is a directory that is being looked through, a part at a time: it may hold very much.
type looking struct {
	in     *node
	levels int // of what is known below it
	open   int
}

// lookAgain makes the account anew.
func (w *Watch) lookAgain() {
	if w.again++; w.again > maxAgain && !w.closing {
		w.stop("changes its directories faster than the watch can follow")
		return
	}
	w.coverMissing()
	w.rescan()
}

// overflowed is for when the kernel could not tell all: everything is looked through again, once
// for all that is lost meanwhile.
func (w *Watch) overflowed() {
	w.overflows++
	w.coverMissing()
	switch {
	case w.blind.IsZero():
		w.blind = time.Now()
		w.rescan()
	case time.Since(w.blind) > maxBlind:
		w.stop("changes more than the watch can follow")
	default:
		w.onceMore = true
	}
}

// looked is for when everything was looked through.
func (w *Watch) looked() {
	if w.onceMore {
		w.onceMore = false
		w.rescan()
		return
	}
	w.blind = time.Time{}
}

func (w *Watch) rescan() {
	for _, n := range w.todo {
		n.queued = false
	}
	w.todo = w.todo[:0]
	w.endLook()
	for _, r := range w.roots {
		w.later(r.node, allLevels)
	}
}

// later has a directory looked through, and so many levels of what is known below it.
func (w *Watch) later(n *node, levels int) {
	n.doubt = false
	if n.queued {
		n.levels = max(n.levels, levels)
		return
	}
	n.queued, n.levels = true, levels
	w.todo = append(w.todo, n)
}

// step looks through a part of one directory.
func (w *Watch) step() {
	if w.looking == nil && !w.beginLook() {
		return
	}
	l := w.looking
	n := l.in
	type seen struct {
		name string
		kind Kind
	}
	var list []seen
	more, err := readSome(l.open, func(name []byte, kind Kind) bool {
		if kind == Link {
			w.linksLater(n)
		}
		if n.part != notGit && (w.believes(n, string(name)) || isAutostash(string(name)) || w.mayMislead(n, string(name))) || kind == Directory && (l.levels > 0 || n.below[string(name)] == nil) || n.part != notGit && kind != File || w.matters(n, name) {
			list = append(list, seen{string(name), kind})
		}
		return true
	})
	if err != nil || !more {
		w.endLook()
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		if n.above != nil {
			w.unreadable(n.above, n.name)
		}
		return
	}
	for _, s := range list {
		if w.nodes[n.watch] != n {
			return
		}
		w.found(n, s.name, s.kind, l.levels)
	}
}

// beginLook takes the next directory that is to be looked through.
func (w *Watch) beginLook() bool {
	n := w.todo[0]
	w.todo[0] = nil
	if w.todo = w.todo[1:]; len(w.todo) == 0 {
		w.todo = nil
	}
	levels := n.levels
	n.queued = false
	if w.nodes[n.watch] != n {
		return false // it is gone
	}
	fd, err := w.descriptor(n)
	if err != nil {
		again := n.wanted == 0
		n.wanted = max(n.wanted, levels+1)
		if again {
			w.whenMoved(n, func() {
				levels := n.wanted - 1
				n.wanted = 0
				w.later(n, levels)
			})
		}
		return false
	}
	_, err = unix.Seek(fd, 0, unix.SEEK_SET)
	own := -1
	if err == nil {
		own, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err != nil {
		if n.above != nil {
			w.unreadable(n.above, n.name)
		}
		return false
	}
	w.looking = &looking{n, levels, own}
	return true
}

func (w *Watch) endLook() {
	if w.looking != nil {
		unix.Close(w.looking.open)
		w.looking = nil
	}
}

// found is about something that was there when a directory was looked through.
func (w *Watch) found(n *node, name string, kind Kind, levels int) {
	path := join(n.path(), name)
	if n.path() != "" {
		if w.bare[path] && !w.back[path] { // it was there before its directory was watched
			w.stays(path)
		}
		_, protected := w.rule(n, name)
		is := w.isKnown(n, name)
		if c := w.options.Covers[path]; c == Hides || c == Protects || c == Elsewhere || is && w.options.Known[path] && (protected || kind != Directory) {
			return
		}
		if protected && is && kind != Link { // the command can move a link, as nothing is mounted on it
			// Something that was protected before: the host moved it here, with the directory.
			w.cover(path, Protects)
			w.isCovered(path)
			return
		}
	}
	if below := n.below[name]; below != nil && kind == Directory && levels < allLevels {
		switch rule, _ := w.rule(n, name); {
		case rule == below.whole:
			w.later(below, levels-1)
		case n.whole == "" && rule != "": // its name is protected, since those of the directories above are what they are now
			w.setAside(n, name, rule, kind)
		default:
			below.whole = rule
			w.later(below, allLevels)
		}
		return
	}
	w.deep = levels == allLevels
	w.appeared(n, name, kind, kind != Directory)
	w.deep = false
}
