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

// Where git looks for another object than the one that was asked for, names decide: what is in refs/replace is set aside as everything is that
// comes into being under a protected name. But git keeps names in one file, packed-refs, too. What a command wrote there of that kind is
// taken out of it, and so is a branch or tag that is called as those of a remote repository are: "git merge origin/main" takes refs/tags/origin/main.

const (
	packedRefs    = "packed-refs"
	maxPackedRefs = 256 << 20
)

// Redirects takes out of the text of a packed-refs what was not in it before, and has git take another object than the one that was asked for. isRemote
// reports whether a name is that of a remote repository.
func Redirects(text, before string, isRemote func(name string) bool) (kept string, out []string) {
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
		name, is := strings.CutPrefix(ref, "refs/heads/")
		if !is {
			name, is = strings.CutPrefix(ref, "refs/tags/")
		}
		remote, _, _ := strings.Cut(name, "/")
		return is && remote != name && !known[ref] && (remotes[remote] || isRemote(remote))
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

// CheckPackedRefs takes out of a packed-refs in an open directory what redirects and was not there before, and returns that. An error says that
// something may still be there.
func CheckPackedRefs(dir int, before string, isRemote func(name string) bool) ([]string, error) {
	apart(dir, packedRefs)
	for range 4 {
		text, err := readPacked(dir)
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		kept, out := Redirects(text, before, isRemote)
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

// remotesIn reports of a name whether an open git directory has branches of a remote repository that is called so.
func remotesIn(dir int) func(name string) bool {
	return func(name string) bool { return name != "" && has(dir, "refs/remotes/"+name) }
}

// shadows reports whether a directory holds branches or tags, and what is called as its name is: those of a remote repository, where git is an open
// git directory that has one of that name.
func shadows(git int, name string) bool {
	text, _ := readPacked(git)
	return remotesIn(git)(name) || strings.Contains(text, " refs/remotes/"+name+"/")
}

// mayShadow takes a path apart that is that of a directory of branches or tags.
func mayShadow(path string) (git, name string, is bool) {
	kind := parent(path)
	refs := parent(kind)
	return parent(refs), base(path), (base(kind) == "heads" || base(kind) == "tags") && base(refs) == "refs"
}

// shadowed lists directories of branches or tags that came into being since the last look.
func (w *Watch) shadowed() (list []*node) {
	for _, n := range w.nodes {
		if n.placed || n.above == nil || n.above.above == nil || n.above.above.above == nil {
			continue
		}
		if _, name, is := mayShadow(n.path()); is {
			if fd, err := w.descriptor(n.above.above.above); err == nil && shadows(fd, name) {
				list = append(list, n)
			}
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
	switch out, err := CheckPackedRefs(fd, w.packed[n], remotesIn(fd)); {
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
		at, name, _ := mayShadow(path)
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
			switch out, err := CheckPackedRefs(dir, "", remotesIn(dir)); {
			case err != nil:
				s.putIn(dir, packedRefs, join(path, packedRefs), ".git")
			case len(out) > 0:
				s.tell(Told{Path: join(path, packedRefs), Text: TakenRefs(out)})
			}
		}
		unix.Close(dir)
	}
}
