package protect

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// git takes a ref before an object whose name begins so: with a branch called 1a2b3c4, "git show
// 1a2b3c4" shows the branch, with a warning at most. And for a name it looks at .git/NAME and
// .git/refs/NAME before it looks at branches and tags. So a ref that comes into being and is called
// as an object may be is set aside, and so is what reads as a ref where git itself has none.

// ownNames are files of git's in its directories that read as refs, or that nobody takes for a
// branch.
var ownNames = map[string]bool{"head": true, "auto_merge": true, "bisect_expected_rev": true, "notes_merge_partial": true, "notes_merge_ref": true,
	"merge_autostash": true, "merge_rr": true, "bisect_start": true, "bisect_run": true, "shallow": true, "packed-refs": true, "config": true, "config.worktree": true,
	"index": true, "description": true, "commondir": true, "gitdir": true, "locked": true, "commit_editmsg": true, "merge_msg": true, "squash_msg": true}

// toolNames are files of other programs' there that hold an object's name, which they write again
// where it is missing: opencode's is the first commit's. With "ref: " in one, or where a ref is
// called so, it is as any other.
var toolNames = map[string]bool{"opencode": true}

// isTemporary reports whether a name is of git's for a file that is there for a moment: what a
// repository lacks that was cloned from one without its history.
func isTemporary(name string) bool {
	return len(name) == len("shallow_XXXXXX") && strings.HasPrefix(name, "shallow_")
}

// isRefName reports whether git takes a name for a ref's at all: not the locks, nor what begins
// with a dot.
func isRefName(name string) bool { return name[0] != '.' && !strings.HasSuffix(name, ".lock") }

// mayMislead takes the path of a file apart that git may take for a ref. hex is the beginning of
// the object's name that it stands in the way of; with none, it does wherever it reads as a ref.
func mayMislead(path string) (hex string, is bool) {
	name, dir := base(path), parent(path)
	if !isRefName(name) {
		return "", false
	}
	switch above := base(dir); {
	case isNamed(above, ".git"), isBare(above), isNamed(base(parent(dir)), "worktrees") && isNamed(base(parent(parent(dir))), ".git"), isModule(dir):
		return "", !ownNames[fold(name)] && !strings.HasSuffix(name, "_HEAD") && !isTemporary(name)
	case isNamed(above, "logs") || isNamed(base(parent(dir)), "logs") || isNamed(base(parent(parent(dir))), "logs"):
	case isNamed(above, "refs"):
		return "", name != "stash"
	case (isNamed(above, "heads") || isNamed(above, "tags") || isNamed(above, "remotes")) && isNamed(base(parent(dir)), "refs"):
		return shortOf(name)
	case isNamed(name, "head") && isNamed(base(parent(dir)), "remotes") && isNamed(base(parent(parent(dir))), "refs"):
		return shortOf(above)
	}
	return "", false
}

// isModule reports whether a path may be that of a submodule's git directory.
func isModule(path string) bool {
	_, below, is := strings.Cut(fold(path), "/.git/modules/")
	for name := range strings.SplitSeq(below, "/") {
		is = is && !gitHolds[name]
	}
	return is
}

// shortOf is the beginning of an object's name that git reads in a name: all of it, or what "git
// describe" has behind "-g".
func shortOf(name string) (hex string, is bool) {
	hex = strings.ToLower(name)
	if i := strings.LastIndex(hex, "-g"); i > 0 {
		hex = hex[i+2:]
	}
	return hex, len(hex) >= 4 && len(hex) < 64 && len(hex) != 40 && strings.Trim(hex, "0123456789abcdef") == ""
}

// standsFor reports whether a ref that is called so stands in the way of an object: one with digits
// and letters that is as long as git shows them does, whether there is such an object yet or not.
// What is shorter, a number or a word, does where there is one; and a short number or word is what
// branches are called, too.
func standsFor(hex string, isObject func(hex string) bool) bool {
	mixed := strings.ContainsAny(hex, "0123456789") && strings.ContainsAny(hex, "abcdef")
	const shown = 7
	return mixed && len(hex) >= shown || (mixed || len(hex) >= shown) && isObject(hex)
}

// StrayRef is Stray for the text of a file that git takes for a ref. isRef reports whether there is
// another one of a name; nil is as if there were.
func StrayRef(path, text string, isObject, isRef func(name string) bool) string {
	hex, is := mayMislead(path)
	value, _, _ := strings.Cut(text, "\n")
	value = strings.ToLower(strings.TrimSpace(value))
	id, _, _ := strings.Cut(value, " ")
	isDigest := (len(id) == 40 || len(id) == 64) && strings.Trim(id, "0123456789abcdef") == ""
	switch {
	case !is, !isDigest && !strings.HasPrefix(value, "ref:"):
		return ""
	case hex != "" && (strings.HasPrefix(id, hex) || !standsFor(hex, isObject)):
		return ""
	case hex == "" && isDigest && isRef != nil && toolNames[base(path)] && !isNamed(base(parent(path)), "refs") && !isRef(base(path)):
		return ""
	}
	return strayRef
}

const strayRef = "a ref that git takes for another object than the one that is asked for"

// KeptRef is what StrayRef says of such a file later, where it was there before the command began:
// that may come to name another object.
func KeptRef(path, text string) string {
	if hex, is := mayMislead(path); !is || hex == "" && StrayRef(path, text, nil, nil) == "" {
		return ""
	}
	return strayRef
}

// KeepPacked remembers what KeptRef does of the refs in the text of a packed-refs.
func KeepPacked(strays map[string]string, dir, text string) {
	for line := range strings.Lines(text) {
		if ref, is := packedRef(line); is {
			if _, is = mayMislead("/.git/" + ref); is {
				strays[join(dir, ref)] = strayRef
			}
		}
	}
}

// IsStash reports whether a file in a git directory is one that git takes for a stash.
func IsStash(path string) bool { return isAutostash(base(path)) }

// RefPlaces are where git looks for a name after it has looked right in its directory.
var RefPlaces = []string{"refs/", "refs/tags/", "refs/heads/", "refs/remotes/"}

// HasPackedRef reports whether the text of a packed-refs has a ref that git takes for a name.
func HasPackedRef(text, name string) bool {
	return slices.ContainsFunc(RefPlaces, func(place string) bool {
		return strings.Contains(text, " "+place+name+"\n") || strings.Contains(text, " "+place+name+"/")
	})
}

// refsBeside reports of a name whether an open git directory, which is at a path, has a ref that is
// called so, or the one that it is a worktree of.
func refsBeside(dir int, path string) func(name string) bool {
	return func(name string) bool {
		git := "."
		if isNamed(base(parent(path)), "worktrees") {
			git = "../.."
		}
		fd, err := unix.Openat(dir, git, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return true
		}
		defer unix.Close(fd)
		text, err := readPacked(fd)
		return err != nil && err != unix.ENOENT || HasPackedRef(text, name) ||
			slices.ContainsFunc(RefPlaces, func(place string) bool { return has(fd, place+name) })
	}
}

// ObjectsOf is the directory of objects that belongs to a directory of refs, and how many levels
// that is up.
func ObjectsOf(dir string) (path string, up int) {
	for path = dir; isNamed(base(parent(path)), "refs") || isNamed(base(path), "refs") || isNamed(base(parent(path)), "remotes"); path = parent(path) {
		up++
	}
	return join(path, "objects"), up
}

// objectsBeside reports of the beginning of a name whether an object's begins so, in the repository
// that an open directory with refs in it is of.
func objectsBeside(dir int, path string) func(hex string) bool {
	return func(hex string) bool {
		_, up := ObjectsOf(path)
		fd, err := unix.Openat(dir, strings.Repeat("../", up)+"objects", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return false
		}
		defer unix.Close(fd)
		return HasObject(fd, hex)
	}
}

// maxPacks bounds how many packs are asked. Where there are more, any object may be.
const maxPacks = 4096

// HasObject reports whether an open directory of objects has one whose name begins so, with at
// least two digits.
func HasObject(objects int, hex string) (is bool) {
	if dir, err := openBelow(objects, hex[:2], unix.O_RDONLY); err == nil {
		readDirectory(dir, func(name []byte, _ Kind) bool {
			is = strings.HasPrefix(string(name), hex[2:])
			return !is
		})
		unix.Close(dir)
	}
	pack, err := openBelow(objects, "pack", unix.O_RDONLY)
	if is || err != nil {
		return is
	}
	defer unix.Close(pack)
	asked := 0
	readDirectory(pack, func(name []byte, kind Kind) bool {
		if strings.HasSuffix(string(name), ".idx") && kind == File {
			asked++
			is = asked > maxPacks || isPacked(pack, string(name), hex)
		}
		return !is
	})
	return is
}

// isPacked reports whether the index of a pack has an object whose name begins so. It does not ask
// how long names are there: it takes both.
func isPacked(dir int, name, hex string) bool {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	head := make([]byte, 8+4*256)
	if n, _ := file.ReadAt(head, 0); n < len(head) {
		return false
	}
	fanout, start, extra := head[:4*256], int64(4*256), 4 // each name has its place before it
	if string(head[:8]) == "\xfftOc\x00\x00\x00\x02" {
		fanout, start, extra = head[8:], int64(len(head)), 0
	}
	first := fromHex(hex[0])<<4 | fromHex(hex[1])
	from, to := uint32(0), binary.BigEndian.Uint32(fanout[4*first:])
	if first > 0 {
		from = binary.BigEndian.Uint32(fanout[4*(first-1):])
	}
	if to <= from || to-from > maxInBucket {
		return to > from
	}
	for _, length := range []int{20, 32} {
		names := make([]byte, int(to-from)*(length+extra))
		n, _ := file.ReadAt(names, start+int64(from)*int64(length+extra))
		for names = names[:n]; len(names) >= length+extra; names = names[length+extra:] {
			if begins(names[extra:extra+length], hex) {
				return true
			}
		}
	}
	return false
}

// maxInBucket bounds how many names of a pack begin with the same byte.
const maxInBucket = 1 << 20

func begins(name []byte, hex string) bool {
	for i := range min(len(hex), 2*len(name)) {
		if digit := name[i/2] >> (4 * (1 - i%2)) & 15; int(digit) != fromHex(hex[i]) {
			return false
		}
	}
	return len(hex) <= 2*len(name)
}

func fromHex(digit byte) int {
	if digit <= '9' {
		return int(digit - '0')
	}
	return int(digit-'a') + 10
}
