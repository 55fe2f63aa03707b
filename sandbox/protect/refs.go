package protect

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Where git looks for another object than the one that was asked for, names decide: what is in
// refs/replace is set aside as everything is that comes into being under a protected name. But git
// keeps names in one file, packed-refs, too. What a command wrote there of that kind is taken out
// of it, and so is a branch or tag that is called as those of a remote repository are: "git merge
// origin/main" takes refs/tags/origin/main.

const (
	packedRefs    = "packed-refs"
	maxPackedRefs = 256 << 20
)

// Refs is what there is in a repository beside its packed-refs.
type Refs struct {
	IsRemote func(name string) bool // of a remote repository
	IsObject func(hex string) bool  // the beginning of an object's name
	WasThere func(ref string) bool  // called as an object, and there before the command began
}

// Redirects takes out of the text of a packed-refs what was not in it before, and has git take
// another object than the one that was asked for.
func Redirects(text, before string, refs Refs) (kept string, out []string) {
	remotes, known := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(text) {
		ref, _ := packedRef(line)
		if name, is := strings.CutPrefix(ref, "refs/remotes/"); is {
			name, _, _ = strings.Cut(name, "/")
			remotes[name] = true
		}
	}
	for line := range strings.Lines(before) {
		known[strings.TrimSpace(line)] = true
		if ref, is := packedRef(line); is && !strings.HasPrefix(ref, "refs/replace/") {
			known[strings.TrimSpace(ref)] = true // a branch or tag that is called so may be moved
		}
	}
	redirects := func(line string) bool {
		ref, is := packedRef(line)
		if !is { // no line of git's: it may read another name in it
			return line[0] != '^' && !known[strings.TrimSpace(line)]
		}
		if fold(ref) != ref && strings.HasPrefix(fold(ref), "refs/replace/") || strings.HasPrefix(ref, "refs/replace/") {
			return !known[strings.TrimSpace(line)]
		}
		if !known[ref] && misleads(line, ref, refs) {
			return true
		}
		name, is := strings.CutPrefix(ref, "refs/heads/")
		if !is {
			name, is = strings.CutPrefix(ref, "refs/tags/")
		}
		remote, _, _ := strings.Cut(name, "/")
		return is && remote != name && !known[ref] && (remotes[remote] || refs.IsRemote(remote))
	}
	var b strings.Builder
	leftOut := false
	for line := range strings.Lines(text) {
		switch is := redirects(line); {
		case is && line[0] != '#':
			leftOut = true
			out = append(out, strings.TrimSpace(line))
		case leftOut && line[0] == '^': // what the tag before is of
		default:
			leftOut = false
			b.WriteString(line)
		}
	}
	return b.String(), out
}

// misleads reports whether git takes what a line names for another object than the one that is
// asked for.
func misleads(line, ref string, refs Refs) bool {
	if !strings.HasPrefix(ref, "refs/") { // git writes none
		return true
	}
	return StrayRef("/.git/"+ref, line, refs.IsObject, nil) != "" && !refs.WasThere(ref)
}

// packedRef is the name in a line of it as git writes one.
func packedRef(line string) (ref string, is bool) {
	digest, ref, is := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	return ref, is && (len(digest) == 40 || len(digest) == 64) && strings.Trim(digest, "0123456789abcdefABCDEF") == "" && strings.IndexFunc(ref, func(r rune) bool { return r <= ' ' }) < 0
}

// readPacked reads the file in an open directory.
func readPacked(dir int) (string, error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(dir, packedRefs, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", err
	}
	if kindOf(stat.Mode) != File || stat.Size > maxPackedRefs {
		return "", unix.EFBIG
	}
	text, err := readStart(dir, packedRefs, int(stat.Size)+1)
	if err == nil && int64(len(text)) > stat.Size {
		err = unix.EBUSY
	}
	return text, err
}

// CheckPackedRefs takes out of a packed-refs in an open directory what redirects and was not there
// before, and returns that. An error says that something may still be there.
func CheckPackedRefs(dir int, before string, refs Refs) ([]string, error) {
	apart(dir, packedRefs)
	for range 4 {
		text, err := readPacked(dir)
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		kept, out := Redirects(text, before, refs)
		if len(out) == 0 {
			return nil, nil
		}
		if err = replacePacked(dir, text, kept); err == nil || !errors.Is(err, unix.EAGAIN) {
			return out, err
		}
	}
	return nil, unix.EBUSY
}

// replacePacked puts another text in the place of one, if that is still there.
func replacePacked(dir int, old, text string) error {
	var random [asideLength / 2]byte
	rand.Read(random[:])
	name := asidePrefix + hex.EncodeToString(random[:])
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), name)
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err == nil {
		if now, _ := readPacked(dir); now != old {
			err = unix.EAGAIN
		}
	}
	if err == nil {
		err = unix.Renameat(dir, name, dir, packedRefs)
	}
	if err != nil {
		unix.Unlinkat(dir, name, 0)
	}
	return err
}

// remotesIn reports of a name whether an open git directory has branches of a remote repository
// that is called so.
func remotesIn(dir int) func(name string) bool {
	return func(name string) bool { return name != "" && has(dir, "refs/remotes/"+name) }
}

// refsIn are those of an open git directory, at a path. strays is what was there before.
func refsIn(dir int, path string, strays map[string]string) Refs {
	return Refs{remotesIn(dir), objectsBeside(dir, path), func(ref string) bool { return strays[join(path, ref)] != "" }}
}

// shadows reports whether a directory holds branches or tags, and what is called as its name is:
// those of a remote repository, where git is an open git directory that has one of that name.
func shadows(git int, name string) bool {
	text, _ := readPacked(git)
	return remotesIn(git)(name) || strings.Contains(text, " refs/remotes/"+name+"/")
}

// MayShadow takes a path apart that is that of a directory of refs: of branches or tags, or one in
// which git looks before it looks there.
func MayShadow(path string) (git, name string, is bool) {
	name, git = base(path), parent(path)
	if isNamed(base(git), ".git") || isBare(base(git)) {
		return git, name, !gitHolds[fold(name)]
	}
	if (isNamed(base(git), "heads") || isNamed(base(git), "tags")) && isNamed(base(parent(git)), "refs") {
		git = parent(git)
	}
	if !isNamed(base(git), "refs") || isNamed(name, "heads") || isNamed(name, "tags") || isNamed(name, "remotes") {
		return "", "", false
	}
	return parent(git), name, true
}

// shadowed lists directories of branches or tags that came into being since the last look.
func (w *Watch) shadowed() (list []*node) {
	for _, n := range w.nodes {
		if n.placed || n.part == notGit || n.above == nil {
			continue
		}
		git, name, is := MayShadow(n.path())
		if !is {
			continue
		}
		if fd, err := openReading(git); err == nil { // it may be none of what is watched
			if shadows(fd, name) {
				list = append(list, n)
			}
			unix.Close(fd)
		}
	}
	return list
}

// hasPacked remembers a directory that has such a file, or had one, whatever else is in it.
func (w *Watch) hasPacked(n *node, before string) {
	if _, known := w.packed[n]; !known {
		w.packed[n] = before
	}
}

// packedRefs looks through such a file, if it was changed.
func (w *Watch) packedRefs(n *node, look *objectLook) {
	if w.nodes[n.watch] != n {
		delete(w.packed, n)
		return
	}
	fd, err := w.descriptor(n)
	if err != nil {
		return
	}
	var stat unix.Stat_t
	if unix.Fstatat(fd, packedRefs, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil || kindOf(stat.Mode) != File || !look.mayBeChanged(fd, &stat) {
		return
	}
	defer usable(fd)()
	path := join(n.path(), packedRefs)
	switch out, err := CheckPackedRefs(fd, w.packed[n], refsIn(fd, n.path(), w.strays)); {
	case err != nil:
		w.setAside(n, packedRefs, ".git", File)
	case len(out) > 0:
		w.unmoved = append(w.unmoved, Told{Path: path, Text: TakenRefs(out)})
	}
}

// TakenRefs says what was taken out of a packed-refs.
func TakenRefs(out []string) string {
	text := "taken out of it, because git would take another object for the one that is asked for: " + strings.Join(out[:min(len(out), 5)], "; ")
	if len(out) > 5 {
		text += "; and more"
	}
	return text
}

// shadows sets aside directories of branches and tags that came into being.
func (s *sweep) shadows(dirs []string) {
	look := &objectLook{since: time.Unix(0, s.run.Began)}
	for _, path := range dirs {
		at, name, _ := MayShadow(path)
		git, err := openReading(at)
		if err != nil {
			continue
		}
		var stat unix.Stat_t
		if unix.Lstat(path, &stat) == nil && look.isChanged(git, &stat) && shadows(git, name) {
			s.put(path, path, ".git")
		}
		unix.Close(git)
	}
}

// packedRefs is the same after a launcher was killed. What was there before, nobody knows any more.
func (s *sweep) packedRefs(dirs []string) {
	look := &objectLook{since: time.Unix(0, s.run.Began)}
	for _, path := range dirs {
		dir, err := openReading(path)
		if err != nil {
			continue
		}
		var stat unix.Stat_t
		if unix.Fstatat(dir, packedRefs, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil && kindOf(stat.Mode) == File && look.isChanged(dir, &stat) {
			switch out, err := CheckPackedRefs(dir, "", refsIn(dir, path, s.run.Strays)); {
			case err != nil:
				s.putIn(dir, packedRefs, join(path, packedRefs), ".git")
			case len(out) > 0:
				s.tell(Told{Path: join(path, packedRefs), Text: TakenRefs(out)})
			}
		}
		unix.Close(dir)
	}
}
