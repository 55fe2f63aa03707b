package protect

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// git believes that an object is what its name says, whatever is in the file: the person's own
// commits bring what a command put there. So when a command has ended, what was changed in a
// directory of objects is looked through. That is told by when the kernel last changed anything
// about a file (its ctime), which nobody can set: to write, link, rename or chmod one changes it.
// And by which directories came into being or were renamed: what is in those keeps its time.

// NewObjectCheck begins a look through objects, until some time. What it returns says what is wrong
// with a file in a directory that is called in: with a loose object ("ab"), or an index of a pack
// ("pack") and that pack. The file is in the first of some open directories that has it.
type NewObjectCheck func(until time.Time) func(dirs []int, in, name string) error

const (
	// objectTimeout is how long to look through objects may take at least; it may take as long as
	// the command did.
	objectTimeout = time.Minute
	// clockSlack is how much the time of a change may be behind the clock.
	clockSlack = 20 * time.Millisecond
	// serverSlack is that where somebody else keeps the time.
	serverSlack = 10 * time.Minute
	// maxObjectCopy bounds what is copied because it has another name.
	maxObjectCopy = 4 << 30
)

// objectsIn is what a directory is called in one of git's objects ("ab", "pack", "info",
// "info/commit-graphs"; "lfs" for one of git-lfs's), or is empty. Names decide, whatever is around
// it: a command may make a repository of it later.
func objectsIn(path string) string {
	name, above := fold(base(path)), parent(path)
	switch {
	case name == "commit-graphs" && isNamed(base(above), "info") && isNamed(base(parent(above)), "objects"):
		return "info/commit-graphs"
	case name == "multi-pack-index.d" && isNamed(base(above), "pack") && isNamed(base(parent(above)), "objects"):
		return "pack/multi-pack-index.d"
	case isHexByte(name) && isHexByte(fold(base(above))) && isNamed(base(parent(above)), "objects") && isNamed(base(parent(parent(above))), "lfs"):
		return "lfs"
	case !isNamed(base(above), "objects"):
	case name == "pack", name == "info", isHexByte(name):
		return name
	}
	return ""
}

func isHexByte(name string) bool {
	return len(name) == 2 && strings.Trim(name, "0123456789abcdef") == ""
}

// An objectLook is one look through objects.
type objectLook struct {
	check func(dirs []int, in, name string) error
	since time.Time
	// writes reports whether the command may write what is at a path.
	writes func(path string) bool
	// couldWrite reports whether any command could.
	couldWrite func(path string) bool
	// alternates are what the files of that name were when the command began, or when they were
	// found right, as AlternatesText has it; nil: nobody knows.
	alternates map[string]string
	right      map[string]string // those that this look has found so
	told       []Told
}

// newObjectLook looks through what was changed since some time. began is when what changed it did.
func newObjectLook(check NewObjectCheck, since, began time.Time, writes, couldWrite func(string) bool) *objectLook {
	if couldWrite == nil {
		couldWrite = func(string) bool { return true }
	}
	now := time.Now()
	if back := now.Round(0).Add(-now.Sub(since)); back.Before(since.Round(0)) { // the clock was put back
		since = back
	}
	return &objectLook{check: check(now.Add(max(objectTimeout, now.Sub(began)))), since: since.Round(0), writes: writes, couldWrite: couldWrite}
}

// slack is how much earlier a change may seem in an open directory.
func slack(dir int) time.Duration {
	var fs unix.Statfs_t
	if unix.Fstatfs(dir, &fs) != nil {
		return serverSlack
	}
	switch int64(fs.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC, unix.CODA_SUPER_MAGIC:
		return serverSlack
	}
	return clockSlack
}

// isChanged reports whether something is of the command's time.
func (o *objectLook) isChanged(dir int, stat *unix.Stat_t) bool {
	return !changedAt(stat).Before(o.since.Add(-slack(dir)))
}

// mayBeChanged is isChanged for a file that may be written through a mapping: where the kernel does
// not note when, its mode must forbid it.
func (o *objectLook) mayBeChanged(dir int, stat *unix.Stat_t) bool {
	return o.isChanged(dir, stat) || stat.Mode&0o222 != 0 && mapsUnnoticed(dir)
}

// mapsUnnoticed reports whether what is written to a mapped file in an open directory may change no
// time of the file's: where all is in memory (tmpfs), what may lie over that (overlayfs), and where
// somebody else keeps the time.
func mapsUnnoticed(dir int) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(dir, &fs) != nil {
		return true
	}
	switch int64(fs.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.HUGETLBFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		return true
	}
	return slack(dir) == serverSlack
}

// AlternatesText is what is remembered of a file "alternates" that was there when the command
// began.
func AlternatesText(text string) string {
	digest := sha256.Sum256([]byte(text))
	return "alternates, sha256: " + hex.EncodeToString(digest[:])
}

// MaxAlternates is how much of one is read.
const MaxAlternates = 64 << 10

// keepAlternates remembers the one in an open directory of objects.
func keepAlternates(strays map[string]string, dir int, path string) {
	if text, err := readStart(dir, alternates, MaxAlternates); err == nil && objectsIn(path) == "info" {
		strays[join(path, alternates)] = AlternatesText(text)
	}
}

const alternates = "alternates"

func changedAt(stat *unix.Stat_t) time.Time { return time.Unix(stat.Ctim.Unix()) }

// directory looks through one that is open, and is at a path, and names what has to be set aside.
// What else the host has in it is in another one. all says that everything in it counts as changed.
func (o *objectLook) directory(dir, host int, path string, all bool) (bad []string) {
	defer usable(dir)()
	in := objectsIn(path)
	dirs := []int{dir}
	if host >= 0 {
		dirs = append(dirs, host)
	}
	names, changed := map[string]bool{}, map[string]bool{}
	unix.Seek(dir, 0, unix.SEEK_SET)
	since, unnoticed := o.since.Add(-slack(dir)), mapsUnnoticed(dir)
	err := readDirectory(dir, func(name []byte, kind Kind) bool {
		var stat unix.Stat_t
		if kind == Directory || isAside(string(name)) || unix.Fstatat(dir, string(name), &stat, unix.AT_SYMLINK_NOFOLLOW) != nil || kindOf(stat.Mode) != File {
			return true // a link is set aside for itself
		}
		names[string(name)] = true
		if all || !changedAt(&stat).Before(since) || unnoticed && stat.Mode&0o222 != 0 {
			changed[string(name)] = true
		}
		return true
	})
	if err != nil && err != unix.ENOENT { // it was removed
		o.tell(path, "cannot be looked through: "+err.Error()+"; git fsck does")
	}
	switch in {
	case "info":
		if changed["commit-graph"] {
			unix.Unlinkat(dir, "commit-graph", 0)
		}
		if names[alternates] && !o.areObjects(dir, path, all, changed[alternates]) {
			bad = append(bad, alternates)
		}
	case "info/commit-graphs", "pack/multi-pack-index.d":
		for name := range names {
			if len(changed) > 0 {
				unix.Unlinkat(dir, name, 0)
			}
		}
	case "pack":
		return o.packs(dirs, names, changed, path)
	default:
		for name := range changed {
			if !o.isOwn(dir, name, path) || o.check(dirs, in, name) != nil {
				bad = append(bad, name)
			}
		}
	}
	return bad
}

// packs looks through packs. What git has made of them, and makes again, is removed: it says where
// objects are, too.
func (o *objectLook) packs(dirs []int, names, changed map[string]bool, path string) (bad []string) {
	stems := map[string]bool{}
	lists := false
	for name := range changed {
		stem, ending := cutEnding(name)
		switch {
		case strings.HasPrefix(stem, "multi-pack-index"):
			lists = true
		case ending == "pack" || ending == "idx":
			if !o.isOwn(dirs[0], name, path) {
				bad = append(bad, name)
			}
			stems[stem] = true
		}
	}
	for name := range names {
		stem, ending := cutEnding(name)
		switch {
		case (changed[name] || stems[stem]) && (ending == "bitmap" || ending == "rev"):
			unix.Unlinkat(dirs[0], name, 0)
		case stems[stem] && ending == "idx" && o.check(dirs, "pack", name) != nil:
			bad = append(bad, name)
		}
	}
	for _, dir := range dirs {
		if len(stems) > 0 || lists {
			removeLists(dir, stems, lists)
		}
	}
	return bad
}

// maxLists is how many lists of packs there may be that are made of others: git makes few.
const maxLists = 4096

// cutEnding takes a name apart at its last dot.
func cutEnding(name string) (stem, ending string) {
	name = fold(name)
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return name, ""
}

// removeLists removes the lists of several packs in an open directory, if they were changed, or
// name one of those that were.
func removeLists(dir int, stems map[string]bool, all bool) {
	text, _ := readStart(dir, "multi-pack-index", 1<<20) // it begins with the names
	for stem := range stems {
		all = all || strings.Contains(fold(text), stem+".idx")
	}
	below, err := openBelow(dir, "multi-pack-index.d", unix.O_RDONLY)
	if err == nil { // lists that are made of several: which packs they name does not matter
		defer unix.Close(below)
		names, _ := namesIn(below, maxLists)
		for _, name := range names {
			unix.Unlinkat(below, name, 0)
		}
	}
	if !all {
		return
	}
	var list []string
	unix.Seek(dir, 0, unix.SEEK_SET)
	readDirectory(dir, func(name []byte, kind Kind) bool {
		if strings.HasPrefix(fold(string(name)), "multi-pack-index") && kind == File {
			list = append(list, string(name))
		}
		return true
	})
	for _, name := range list {
		unix.Unlinkat(dir, name, 0)
	}
}

// readStart reads the first bytes of a file in an open directory.
func readStart(dir int, name string, limit int) (string, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	buffer := make([]byte, limit)
	n, err := unix.Read(fd, buffer)
	return string(buffer[:max(n, 0)]), err
}

// isOwn makes a file one that nobody has open for writing, that has no other name, and that may not
// be written, as git makes them: who writes it later changes its mode first, and the kernel notes
// when. (What is written to a file that is mapped into memory, it does not always.) It reports
// false for one that somebody still could write.
func (o *objectLook) isOwn(dir int, name, path string) bool {
	isOpenNow, shared := isOpen(dir, name)
	if isOpenNow || shared {
		err := detach(dir, name, &copying{bytes: maxObjectCopy, names: 1}, 0)
		if err != nil && isOpenNow {
			return false
		}
		if err != nil {
			o.tell(join(path, name), "has another name, by which it could be written later, and could not be copied: "+err.Error())
		}
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return true // it is gone, or is seen not to be right
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) == nil && stat.Mode&0o222 != 0 {
		unix.Fchmod(fd, stat.Mode&0o555)
	}
	return true
}

// areObjects reports whether all other places, where git shall find objects, too, are ones that are
// looked through, or nobody's to write. all says that nothing of it was there when the command
// began.
func (o *objectLook) areObjects(dir int, path string, all, changed bool) bool {
	text, err := readStart(dir, alternates, MaxAlternates)
	is := AlternatesText(text)
	if o.alternates != nil && !all { // told by what is in it, and not by a time
		changed = o.alternates[join(path, alternates)] != is
	}
	if err != nil || len(text) == MaxAlternates {
		return !changed
	}
	for line := range strings.SplitSeq(text, "\n") {
		if !o.isPlace(line, path, changed) {
			return false
		}
	}
	if o.right == nil {
		o.right = map[string]string{}
	}
	o.right[join(path, alternates)] = is
	return true
}

// isPlace reports whether what git reads in one line of it is such a place, or was named before.
func (o *objectLook) isPlace(line, path string, changed bool) bool {
	if line == "" || line[0] == '#' {
		return true
	}
	if line[0] == '"' || strings.IndexFunc(line, unicode.IsControl) >= 0 { // git reads something else in it
		return !changed
	}
	if !filepath.IsAbs(line) {
		line = parent(path) + "/" + line
	}
	line = filepath.Clean(line) // git leaves "x/.." out, too, whatever x is
	real, err := filepath.EvalSymlinks(line)
	changed = changed || o.isLed(line)
	switch {
	case err != nil:
		return !changed
	case !isNamed(base(real), "objects") && (changed || o.writes(real)),
		changed && !o.writes(real) && o.couldWrite(real): // nobody looks through it when another command has written there
		return false
	}
	return true
}

// isLed reports whether a symbolic link on the way to a path is one that a command could have made:
// it leads elsewhere when nothing else has changed.
func (o *objectLook) isLed(path string) bool {
	for range maxLinks {
		link, target := "", ""
		for i := 1; i <= len(path) && link == ""; i++ {
			if i < len(path) && path[i] != '/' {
				continue
			}
			if text, err := os.Readlink(path[:i]); err == nil {
				link, target = path[:i], text
			}
		}
		switch {
		case link == "":
			return false
		case o.writes(link), o.couldWrite(link):
			return true
		case !filepath.IsAbs(target):
			target = join(parent(link), target)
		}
		path = filepath.Join(target, path[len(link):])
	}
	return true
}

// maxLinks is how many links the kernel follows.
const maxLinks = 40

func (o *objectLook) tell(path, text string) {
	if len(o.told) < maxTold {
		o.told = append(o.told, Told{Path: path, Text: text})
	}
}

// CheckObjects looks through directories of objects in a layer, which hold nothing but what a
// command made. What of the host is below each is open in host, or -1. The layer is over root. It
// returns the names that have to be set aside.
func CheckObjects(check NewObjectCheck, began time.Time, dir, host int, path, root string, couldWrite func(string) bool) ([]string, []Told) {
	o := newObjectLook(check, began, began, func(path string) bool { return within(path, root) }, couldWrite)
	return o.directory(dir, host, path, true), o.told
}

// Objects looks through the objects that may have been changed since the last look. It is for when
// a command has ended.
func (w *Watch) Objects() {
	w.mu.Lock()
	if w.options.NewObjectCheck == nil || w.options.Names.Unprotected[".git"] {
		w.mu.Unlock()
		return
	}
	look := newObjectLook(w.options.NewObjectCheck, w.objectsSeen, w.began, w.writes, w.options.CouldWrite)
	look.alternates = maps.Clone(w.strays)
	w.objectsSeen = time.Now()
	if !w.closing {
		if !w.ending {
			w.catchUp() // what is not set aside yet, git would miss
		}
		w.settleIndexes()
	}
	type part struct {
		in  *node
		all bool
	}
	var parts []part
	for _, n := range w.nodes {
		if n.above != nil && len(n.name) > 2 && !isNamed(n.name, "pack") && !isNamed(n.name, "info") && !isNamed(n.name, "commit-graphs") && !isNamed(n.name, "multi-pack-index.d") {
			continue // most
		}
		if path := n.path(); path != "" && objectsIn(path) != "" {
			parts = append(parts, part{n, !n.placed || n.above != nil && !n.above.placed})
		}
	}
	for _, n := range w.shadowed() {
		w.setAside(n.above, n.name, ".git", Directory)
	}
	for _, n := range w.nodes {
		n.placed = true
	}
	w.mu.Unlock()
	for _, p := range parts {
		w.objectsOf(p.in, p.all, look)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(w.strays, look.right)
	for n := range w.packed {
		w.packedRefs(n, look)
	}
	w.unmoved = append(w.unmoved, look.told[:min(len(look.told), max(0, maxTold-len(w.unmoved)))]...)
}

// objectsOf looks through one directory. What the kernel tells meanwhile is not kept waiting.
func (w *Watch) objectsOf(n *node, all bool, look *objectLook) {
	w.mu.Lock()
	path, own := n.path(), -1
	fd, err := w.descriptor(n)
	if err == nil {
		own, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err != nil { // it was moved: that is told, and then it is looked through the next time
		n.placed = false
	}
	w.mu.Unlock()
	if err != nil {
		return
	}
	dir := os.NewFile(uintptr(own), path)
	defer dir.Close()
	bad := look.directory(own, -1, path, all)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range bad {
		w.setAside(n, name, ".git", File)
	}
}

// objects sets aside what a killed launcher's command left among objects.
func (s *sweep) objects(dirs []string) {
	if s.newObjectCheck == nil {
		return
	}
	look := newObjectLook(s.newObjectCheck, time.Unix(0, s.run.Began), time.Now(), s.writes, nil)
	look.alternates = s.run.Strays
	for _, path := range dirs {
		dir, err := openReading(path)
		if err != nil {
			s.tell(Told{Path: path, Text: "was not looked through after a launcher was killed: " + err.Error()})
			continue
		}
		var stat, above unix.Stat_t
		unix.Fstat(dir, &stat)
		unix.Lstat(parent(path), &above)
		for _, name := range look.directory(dir, -1, path, look.isChanged(dir, &stat) || look.isChanged(dir, &above)) {
			s.putIn(dir, name, join(path, name), ".git")
		}
		unix.Close(dir)
	}
	for _, told := range look.told {
		s.tell(told)
	}
}
