package protect

import (
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// git writes through what it finds in its directories: with a symbolic link at .git/logs/HEAD, "git
// commit" appends a line to whatever that leads to, and a command chose half of the line. git
// itself leaves no link there, nor a pipe or a socket that it needs. So what comes into being of
// that kind is set aside.

// gitPart says how much of a directory is git's.
type gitPart uint8

const (
	notGit   gitPart = iota
	gitTop           // a git directory in which there may be working trees, too: "git clone --bare x y; git -C y worktree add main"
	gitWhole         // all in it is git's
)

// gitHolds are the directories that git has in one of its own.
var gitHolds = map[string]bool{"logs": true, "refs": true, "objects": true, "info": true, "hooks": true, "worktrees": true, "modules": true,
	"rebase-merge": true, "rebase-apply": true, "sequencer": true, "rr-cache": true, "reftable": true, "branches": true, "remotes": true,
	"lfs": true, "svn": true}

// partIn is what a directory is that has a name in another one.
func partIn(above gitPart, name string, isGit bool) gitPart {
	switch {
	case above == gitWhole, isNamed(name, ".git"), above == gitTop && gitHolds[fold(name)]:
		return gitWhole
	case isGit, isBare(name):
		return gitTop
	}
	return notGit
}

// partAt is what a directory is that is looked through for itself. The directories above it are not
// the command's.
func partAt(path string) gitPart {
	if isNamed(base(path), ".git") {
		return gitWhole
	}
	for at := path; at != "/"; at = parent(at) {
		if gitHolds[fold(base(at))] && isGitAt(parent(at)) {
			return gitWhole
		}
	}
	if isGitAt(path) {
		return gitTop
	}
	return notGit
}

func isGitAt(path string) bool {
	fd, err := openRoot(path)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return isGitIn(fd)
}

// isGitIn reports whether an open directory is one of git's, or will be with a file that holds a
// line. A scan takes the same for one.
func isGitIn(dir int) bool {
	var git gitSigns
	for _, name := range append([]string{"HEAD", "objects", "refs"}, gitNames...) {
		if has(dir, name) {
			git.see([]byte(name))
		}
	}
	return git.isRepository() || git.head && git.refs
}

// Stray describes what git did not make in one of its directories, or is empty for a file, a
// directory, and what "git init" makes for a moment to see whether there are symbolic links. The
// path is what the file is at, and dir its open directory.
func Stray(dir int, path string) string {
	name := base(path)
	var stat unix.Stat_t
	if unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return ""
	}
	switch kindOf(stat.Mode) {
	case File:
		if isAutostash(name) {
			return StrayStash(readStash(dir, name))
		}
		if _, may := mayMislead(path); may {
			return StrayRef(path, readStash(dir, name), objectsBeside(dir, parent(path)), refsBeside(dir, parent(path)))
		}
		return ""
	case Directory:
		return ""
	case Link:
		buffer := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, name, buffer)
		if err != nil {
			return ""
		}
		return StrayLink(name, string(buffer[:n]))
	}
	return "no file"
}

// StrayLink is Stray for a symbolic link.
func StrayLink(name, target string) string {
	if target == "testing" && len(name) == len("tXXXXXX") && name[0] == 't' && strings.IndexFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0 {
		return ""
	}
	return "-> " + target
}

// isAutostash reports whether git takes a file in one of its directories for what "git merge
// --autostash" put away. Whatever commit it names, the next "git commit" or "git reset --hard"
// brings that into the working tree, also if nobody merges.
func isAutostash(name string) bool { return isNamed(name, "merge_autostash") }

// StrayStash is Stray for such a file.
func StrayStash(text string) string { return "a stash: " + text }

// MaxStash is how much of one is read: it holds a commit's name.
const MaxStash = 256

func readStash(dir int, name string) string {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	buffer := make([]byte, MaxStash)
	n, _ := unix.Read(fd, buffer)
	return string(buffer[:max(n, 0)])
}

// stashTimeout is how long git may need to merge.
const stashTimeout = 30 * time.Second

// stashLater is about such a file that has come into being. A git inside that merges takes it away
// again: it is looked at later, and when the command has ended.
func (w *Watch) stashLater(n *node, name string) {
	if n.stash != name {
		n.stash, n.stashed = name, time.Now()
	}
	w.writtenIn(n)
}

// checkStash sets it aside, if it is not what was there before the command began.
func (w *Watch) checkStash(n *node) {
	fd, err := w.descriptor(n)
	if err != nil || w.options.Names.Unprotected[".git"] {
		return
	}
	if w.closing {
		apart(fd, n.stash)
	}
	switch is := Stray(fd, join(n.path(), n.stash)); {
	case is == "":
		n.stash = ""
	case is == w.strays[join(n.path(), n.stash)]:
	case w.closing, !has(fd, "MERGE_HEAD") && time.Since(n.stashed) > stashTimeout:
		w.setAside(n, n.stash, ".git", File)
	}
}

// isStray reports whether something in a directory is what git does not make there, and was not
// there when the run began.
func (w *Watch) isStray(n *node, name string) bool {
	if n.part == notGit || isAside(name) || w.options.Names.Unprotected[".git"] {
		return false
	}
	fd, err := w.descriptor(n)
	if err != nil {
		w.whenMoved(n, func() { w.appeared(n, name, Other, true) })
		return false
	}
	path := join(n.path(), name)
	is := Stray(fd, path)
	if strings.HasPrefix(is, StrayStash("")) {
		w.stashLater(n, name)
		return false
	}
	if _, may := mayMislead(path); may && is == "" {
		w.refLater(n, fd, name)
	}
	return is != "" && w.strays[path] != is
}

// refLater has a file looked at again when it is written, and at the end: it may come to be a ref
// that git takes for another object.
func (w *Watch) refLater(n *node, fd int, name string) {
	if len(n.refs) == 0 {
		n.refs = map[string]bool{}
		w.addWatch(fd, unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_MASK_ADD)
	}
	if n.refs[name] = true; len(n.refs) > maxStates {
		w.stop("makes more refs than can be looked after that are called as objects")
	}
}

// refsAtEnd looks at them when nobody writes them any more.
func (w *Watch) refsAtEnd(n *node) {
	fd, err := w.descriptor(n)
	if err != nil || w.options.Names.Unprotected[".git"] {
		return
	}
	for name := range n.refs {
		apart(fd, name)
		if path := join(n.path(), name); Stray(fd, path) != "" && w.strays[path] == "" {
			w.setAside(n, name, ".git", File)
		}
	}
}

// CheckGitFile says what is wrong with a file .git in an open directory, which is at a path: git
// obeys the settings of where it leads. writes reports whether a path is the command's to write.
type CheckGitFile func(dir int, name, path string, writes func(path string) bool) error

// gitFile sets a file .git aside that leads where it must not, and has it told when it is written.
func (w *Watch) gitFile(n *node, name string) {
	if w.options.CheckGitFile == nil || w.options.Names.Unprotected[".git"] {
		return
	}
	fd, err := w.descriptor(n)
	if err != nil {
		w.whenMoved(n, func() { w.gitFile(n, name) })
		return
	}
	if !n.linked {
		n.linked = true
		w.writtenIn(n)
		w.addWatch(fd, unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_MASK_ADD)
	}
	if w.closing {
		apart(fd, name)
	}
	if w.options.CheckGitFile(fd, name, n.path(), w.writes) != nil {
		w.setAside(n, name, ".git", File)
	}
}

// writes reports whether the command may write what is at a path.
func (w *Watch) writes(path string) bool {
	return slices.ContainsFunc(w.roots, func(r *root) bool {
		return within(path, r.path) && !covers(w.options.Apart, path, r.path)
	})
}

// CheckIndex says what is wrong with an index in an open directory: git believes the paths in it,
// and writes where they say. settle takes out of it what git believes and nobody can look at. An
// index that was wrong and was mended is ErrMended.
type CheckIndex func(dir int, name string, settle bool) error

// ErrMended is about what was wrong, and is not any more.
var ErrMended = errors.New("it was mended")

// SkipWorktree has git not look into the working tree for paths, by an index in an open git
// directory, which is at a place, or look again. It returns those that are in the index.
type SkipWorktree func(dir int, place, name string, paths []string, skip bool) ([]string, error)

// skipAside has git not take what was set aside for deleted: "git commit -a" would commit that. all
// says that what has been done for an index is done once more.
func (w *Watch) skipAside(n *node, dir int, all bool) {
	var paths []string
	for _, i := range w.items {
		if (all || !i.skipped) && i.rule != ".git" && !strings.HasPrefix(i.rule, ".git/") && !slices.Contains(paths, i.path) {
			paths = append(paths, i.path)
		}
	}
	if len(paths) == 0 || w.options.SkipWorktree == nil {
		return
	}
	found, err := w.options.SkipWorktree(dir, n.path(), "index", paths, true)
	if err != nil {
		return // somebody writes it: that is told, and the end does it, too
	}
	for _, i := range w.items {
		i.skipped = i.skipped || slices.Contains(found, i.path)
	}
}

// Exclude has git not show, and not add, untracked files of a pattern in a working tree at a path,
// or no longer. It reports whether it changed that.
type Exclude func(tree, pattern string, exclude bool, writes func(path string) bool) (bool, error)

// asidePattern are the names that things get which are set aside.
const asidePattern = asidePrefix + "*"

// excludeAside has git not add what has been set aside in a directory, under its new name, until it
// is in the quarantine.
func (w *Watch) excludeAside(n *node) {
	for ; n != nil && w.options.Exclude != nil; n = n.above {
		fd, err := w.descriptor(n)
		if err != nil || !has(fd, ".git") {
			continue
		}
		if tree := n.path(); !w.excluded[tree] {
			w.excluded[tree], _ = w.options.Exclude(tree, asidePattern, true, w.writes) // without it, "git status" shows the names
		}
		return
	}
}

// isIndex reports whether git takes a file in one of its directories for an index, or for a part of
// one; or for the list of conflicts that "git rerere" resolves, which has paths that git believes,
// too.
func isIndex(name string) bool {
	digest, is := strings.CutPrefix(fold(name), "sharedindex.")
	return isNamed(name, "index") || isNamed(name, "merge_rr") || is && digest != "" && strings.Trim(digest, "0123456789abcdef") == ""
}

// indexTimeout is how long an index may be half written: some programs do not rename it.
const indexTimeout = 50 * time.Millisecond

// maxIndexes bounds how many may wait to be read.
const maxIndexes = 256

// maxStates bounds how many files may wait that say how git goes on.
const maxStates = 1 << 14

// indexLater has an index read that came into being, or was written.
func (w *Watch) indexLater(n *node, name string) {
	if w.options.CheckIndex == nil || n.part == notGit || !w.believes(n, name) || w.options.Names.Unprotected[".git"] {
		return
	}
	w.watchIndex(n)
	switch e := (entry{n, name}); {
	case slices.Contains(w.indexes, e):
	case len(w.indexes) >= maxIndexes && (isIndex(name) || len(w.indexes) >= maxStates):
		w.setAside(n, name, ".git", File)
	default:
		w.indexes = append(w.indexes, e)
	}
}

// watchIndex has it told when an index is written.
func (w *Watch) watchIndex(n *node) {
	if fd, err := w.descriptor(n); err == nil && !n.indexed {
		n.indexed = true
		w.writtenIn(n)
		w.addWatch(fd, unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_MASK_ADD)
	}
}

// writtenIn remembers a directory in which git's files are written.
func (w *Watch) writtenIn(n *node) {
	if n.watched {
		return
	}
	n.watched = true
	if w.written = append(w.written, n); len(w.written) <= maxWritten {
		return
	}
	w.written = slices.DeleteFunc(w.written, func(n *node) bool { return w.nodes[n.watch] != n })
	if len(w.written) > maxWritten && !n.git {
		w.stop("makes more repositories than can be looked after")
	}
}

// readIndex reads one. As long as that took, no other is read, and nothing is disarmed.
func (w *Watch) readIndex() (was bool) {
	if len(w.indexes) == 0 || time.Now().Before(w.restUntil) && !w.closing {
		return false
	}
	e := w.indexes[0]
	w.indexes = w.indexes[1:]
	began := time.Now()
	w.checkIndex(e.in, e.name, false)
	w.restUntil = time.Now().Add(min(time.Since(began), maxRest))
	return true
}

func (w *Watch) checkIndex(n *node, name string, settle bool) {
	if w.nodes[n.watch] != n {
		return
	}
	fd, err := w.descriptor(n)
	if err != nil {
		w.whenMoved(n, func() { w.indexLater(n, name) })
		return
	}
	path := join(n.path(), name)
	if IsState(path) {
		err = checkStateIn(fd, path, KeptState(w.strays, path), w.isAgain(n, fd, name), w.closing)
		if !n.stopped && startsState(name) {
			for _, other := range stateNames(n.name) {
				if !startsState(other) && has(fd, other) {
					w.indexLater(n, other)
				}
			}
		}
	} else {
		err = w.options.CheckIndex(fd, name, settle)
	}
	if errors.Is(err, unix.EBADMSG) && !w.closing { // git does not believe that, either: it may be half written
		if w.doubted[path].IsZero() {
			w.doubted[path] = time.Now()
		}
		if time.Since(w.doubted[path]) < indexTimeout {
			w.indexes = append(w.indexes, entry{n, name})
			return
		}
	}
	delete(w.doubted, path)
	switch {
	case errors.Is(err, ErrMended):
		w.count(path)
	case err != nil:
		w.setAside(n, name, ".git", File)
		return
	}
	if isNamed(name, "index") {
		w.skipAside(n, fd, w.closing)
	}
}

// allIndexes reads each index in a directory once more, when the command has ended: what says how
// they are read may have changed since. git needs one, and those that it shares with that.
func (w *Watch) allIndexes(n *node) {
	fd, err := w.descriptor(n)
	if err != nil || w.options.CheckIndex == nil || w.options.Names.Unprotected[".git"] {
		return
	}
	defer usable(fd)()
	var list []string
	unix.Seek(fd, 0, unix.SEEK_SET)
	readDirectory(fd, func(name []byte, kind Kind) bool {
		if kind != Directory && w.believes(n, string(name)) {
			list = append(list, string(name))
		}
		return true
	})
	slices.SortFunc(list, func(a, b string) int { return len(a) - len(b) })
	for i, name := range list {
		if i >= maxIndexes && isIndex(name) {
			w.setAside(n, name, ".git", File)
			continue
		}
		apart(fd, name)
		w.checkIndex(n, name, w.isWritten(fd, n, name))
	}
}

// isWritten reports whether a file may have been written since the watch began.
func (w *Watch) isWritten(dir int, n *node, name string) bool {
	var stat unix.Stat_t
	since := objectLook{since: w.began.Round(0)}
	return !n.placed || n.above != nil && !n.above.placed || unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil && since.mayBeChanged(dir, &stat)
}

// settleIndexes is for when a command of a session has ended, and others may still run.
func (w *Watch) settleIndexes() {
	if w.options.CheckIndex == nil || w.options.Names.Unprotected[".git"] {
		return
	}
	for _, n := range w.nodes {
		if !n.indexed {
			continue
		}
		if fd, err := w.descriptor(n); err == nil && w.isWritten(fd, n, "index") {
			if err := w.options.CheckIndex(fd, "index", true); err == nil { // what is wrong, the end tells
				w.skipAside(n, fd, true)
			}
		}
	}
}

// settingsApart does what apart does for what git is led by in a directory.
func (w *Watch) settingsApart(n *node) {
	if fd, err := w.descriptor(n); err == nil {
		defer usable(fd)()
		for _, name := range gitNames {
			apart(fd, name)
		}
	}
}

// hooksApart makes the directory of hooks in a repository that came into being a new one: what it
// was before may be the one that another sandbox writes.
func (w *Watch) hooksApart(n *node) {
	fd, err := w.descriptor(n)
	if err != nil {
		return
	}
	is, ok := renewHooks(fd)
	for _, i := range w.items {
		at := i.dir
		if i.in != nil {
			at = i.in.path()
		}
		if hooks := join(n.path(), "hooks"); ok && (at == hooks || i.in != nil && i.in == n.below["hooks"]) {
			i.in, i.dir, i.at = nil, hooks, is
		}
	}
}

func renewHooks(dir int) (is object, ok bool) {
	defer usable(dir)()
	hooks, err := openBelow(dir, "hooks", unix.O_PATH)
	if err != nil {
		return is, false
	}
	defer unix.Close(hooks)
	var stat unix.Stat_t
	if unix.Fstat(hooks, &stat) != nil {
		return is, false
	}
	defer usable(hooks)()
	old, err := openBelow(hooks, "", unix.O_RDONLY)
	if err != nil {
		return is, false
	}
	defer unix.Close(old)
	if renew(dir, "hooks", old, stat.Mode&0o777) != nil || unix.Fstatat(dir, "hooks", &stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return is, false
	}
	return objectOf(&stat), true
}

// apart puts a copy in the place of a file in an open directory that somebody may have open for
// writing, or know by another name: a command of another sandbox could write it when it was looked
// at for the last time.
func apart(dir int, name string) {
	if is, shared := isOpen(dir, name); is || shared {
		detach(dir, name, &copying{bytes: maxCopyBytes, names: 1}, 0)
	}
}

// isOpen reports whether somebody has a file open for writing, or mapped, and whether it has
// another name.
func isOpen(dir int, name string) (is, shared bool) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, false
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil || kindOf(stat.Mode) != File {
		return false, false
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK) // the kernel gives none on a file that is open for writing
	return err != nil, stat.Nlink > 1
}

const (
	// writersEvery is how often it is looked for who has git's files open for writing: what is
	// written to a mapped file nobody tells.
	writersEvery = time.Second
	// writersAtOnce bounds how long it is looked for them, before events have their turn.
	writersAtOnce = time.Millisecond
	// maxWritten is how many directories with git's files can be looked at in some two seconds.
	maxWritten = 4096
)

// lookForWriters puts a copy in the place of a file of git's that somebody had open for writing the
// last time, too. git itself renames what it has written.
func (w *Watch) lookForWriters() {
	now := time.Now()
	if w.writersLeft == 0 && len(w.written) > 0 && now.After(w.writersNext) {
		w.writersNext, w.writersLeft = now.Add(writersEvery), len(w.written)
	}
	for ; w.writersLeft > 0 && len(w.written) > 0 && time.Since(now) < writersAtOnce; w.writersLeft-- {
		n := w.written[0]
		w.written = w.written[1:]
		if w.nodes[n.watch] != n {
			continue
		}
		w.written = append(w.written, n)
		var names []string
		if n.fresh {
			names = append(names, gitNames...)
		}
		if n.indexed {
			names = append(append(names, "index"), stateNames(n.name)...)
		}
		if n.sparse {
			names = append(names, ofWorktree)
		}
		w.writersIn(n, names)
		if n.linked { // a link on the way may be new
			w.gitFile(n, ".git")
		}
		if n.stash != "" {
			w.checkStash(n)
		}
	}
}

func (w *Watch) writersIn(n *node, names []string) {
	fd, err := w.descriptor(n)
	if err != nil {
		return // another time
	}
	open := map[string]bool{}
	for _, name := range names {
		is, _ := isOpen(fd, name)
		if open[name] = is && !n.writers[name]; is && n.writers[name] {
			apart(fd, name)
			w.disarmLater(n)
			w.indexLater(n, name)
			if n.sparse {
				w.worktreeSettings(n)
			}
		}
	}
	n.writers = open
}
