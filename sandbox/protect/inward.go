package protect

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What a command writes in its caches, in a home of its own or in its /tmp is in this program's own
// directories on the host, at paths that mountinfo tells it. Nothing there is looked after, as no
// program of a person's comes there: unless a link in a workspace leads them. So a link that leads
// there, or to a directory above, from where another one may lead on, is set aside; and one that
// leads into the files of another process (proc(5)), as those of the sandbox are.

// LeadsInward reports whether a link at a path, with a text, leads into or above a directory, or
// into another process.
func LeadsInward(path, text, own string) bool {
	if own == "" || text == "" {
		return false
	}
	if !filepath.IsAbs(text) {
		text = parent(path) + "/" + text
	}
	real, err := filepath.EvalSymlinks(text)
	if err != nil {
		real = filepath.Clean(text)
	}
	return within(real, own) || within(own, real) || ofProcess(real) || ofProcess(filepath.Clean(text))
}

func ofProcess(path string) bool {
	rest, is := strings.CutPrefix(path+"/", "/proc/")
	process, _, _ := strings.Cut(rest, "/")
	return is && strings.Trim(process, "0123456789") == ""
}

// inwardSince is LeadsInward for a link on the host, if it was made, or put where it is, since some
// time.
func inwardSince(dir int, path, own string, since time.Time) bool {
	var stat unix.Stat_t
	if unix.Fstatat(dir, base(path), &stat, unix.AT_SYMLINK_NOFOLLOW) != nil || kindOf(stat.Mode) != Link || changedAt(&stat).Before(since.Round(0).Add(-slack(dir))) {
		return false
	}
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, base(path), buffer)
	return err == nil && LeadsInward(path, string(buffer[:n]), own)
}

// linksRest is for how many times as long as a look at links took there is no other.
const linksRest = 8

// linksLater has the links in a directory looked at, in which something was made.
func (w *Watch) linksLater(n *node) {
	if w.options.Own != "" && !n.links {
		n.links = true
		w.linked = append(w.linked, n)
	}
}

// checkLinks looks at those in one directory.
func (w *Watch) checkLinks() (was bool) {
	if len(w.linked) == 0 || !w.closing && time.Now().Before(w.linksNext) {
		return false
	}
	n := w.linked[0]
	if w.linked = w.linked[1:]; len(w.linked) == 0 {
		w.linked = nil
	}
	n.links = false
	if w.nodes[n.watch] != n || n.path() == "" {
		return true // where it is, another event tells
	}
	began := time.Now()
	fd, err := w.descriptor(n)
	if err != nil {
		w.whenMoved(n, func() { w.linksLater(n) })
		return true
	}
	defer usable(fd)()
	dir, err := openBelow(fd, "", unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return true
	}
	defer unix.Close(dir)
	var list []string
	readDirectory(dir, func(name []byte, kind Kind) bool {
		if kind == Link && !isAside(string(name)) && inwardSince(dir, join(n.path(), string(name)), w.options.Own, w.began) {
			list = append(list, string(name))
		}
		return true
	})
	for _, name := range list {
		w.setAside(n, name, "", Link)
	}
	w.linksNext = time.Now().Add(linksRest * time.Since(began))
	return true
}

// inward reports whether a command made a link that leads inward, whose launcher was killed.
func (s *sweep) inward(path string) bool {
	dir, err := os.Open(parent(path))
	if err != nil {
		return false
	}
	defer dir.Close()
	return inwardSince(int(dir.Fd()), path, s.run.Own, time.Unix(0, s.run.Began))
}
