package repository

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// git believes the paths in an index: "git checkout ." writes what one calls ../.bashrc or
// .git/hooks/post-checkout. No commit can have such a path, since git looks at those of trees. So
// an index is read as git reads it, and one with such a path, or that cannot be read, must go.

const maxIndex = 64 << 20

// CheckIndex reads an index, or a shared one, in a git directory, and says what is wrong with it.
// What is not there, and what git does not take for an index, is right. Of the git directories in
// settings, the first that has settings, or belongs to a repository that has, says how long the
// names of objects are. settle takes out of it what git believes without a look at anything else:
// it is for when no command writes it any more.
func CheckIndex(dir int, settings []int, name string, settle bool) error {
	file, stat, err := openRegular(dir, name, maxIndex)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
	defer file.Close()
	text, err := readAll(file, maxIndex)
	if err != nil {
		return err
	}
	if strings.EqualFold(name, "MERGE_RR") {
		return checkConflicts(dir, text)
	}
	formats := formatIn(settings)
	timeout := time.Duration(0)
	if settle {
		timeout = lockTimeout
	}
	if err := checkIndex([]byte(text), formats); errors.Is(err, errTree) {
		kept := withoutTrees([]byte(text), lengthIn(formats))
		if more := withoutBelieved(kept, lengthIn(formats)); settle && more != nil {
			kept = more
		}
		if kept == nil || checkIndex(kept, formats) != nil || replaceIndex(dir, name, kept, &stat, timeout) != nil {
			return err
		}
		return errors.Join(ErrMended, err)
	} else if err != nil || !settle || !strings.HasPrefix(text, "DIRC") {
		return err
	}
	kept := withoutBelieved([]byte(text), lengthIn(formats))
	if kept == nil {
		return nil
	}
	return replaceIndex(dir, name, kept, &stat, timeout)
}

// ErrMended is about an index that was wrong, and is not any more: what git need not have was taken
// out.
var ErrMended = errors.New("it was mended")

// lengthIn is how long the names of objects are, by the formats that settings name.
func lengthIn(formats []string) int { return lengths[slices.Concat(formats, []string{"sha1"})[0]] }

// checkConflicts reads what "git rerere" (or "git commit", where there is a directory rr-cache)
// keeps of conflicts: git copies what is at each path to where a command reads it, and writes
// there. No merge can leave a path that no commit can have.
func checkConflicts(dir int, text string) error {
	place, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
	if err != nil {
		return err
	}
	tree, err := unix.Open(treeOf(dir, place), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if strings.Count(text, "\x00") > maxConflicts {
		return fmt.Errorf("%w: it has too many", errPath)
	}
	for record := range strings.SplitSeq(strings.TrimSuffix(text, "\x00"), "\x00") {
		id, name, found := strings.Cut(record, "\t")
		if text == "" {
			return nil
		}
		id, variant, _ := strings.Cut(id, ".")
		if !found || !isHex(id) || strings.Trim(variant, "0123456789") != "" {
			return fmt.Errorf("%w: a line of it is none of git's", errPath)
		}
		if err := checkPath(name); err != nil {
			return err
		}
		fd, err := unix.Openat2(tree, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %q: %w", errPath, name, err)
		}
		var stat unix.Stat_t
		err = unix.Fstat(fd, &stat)
		if unix.Close(fd); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
			return fmt.Errorf("%w: %q is no file", errPath, name)
		}
	}
	return nil
}

// maxConflicts is how many paths may have conflicts at a time.
const maxConflicts = 4096

// treeOf is the working tree of an open git directory, which is at a place.
func treeOf(dir int, place string) string {
	tree := filepath.Dir(place)
	if text, err := readSmall(dir, "gitdir"); err == nil { // a worktree's
		if tree = filepath.Dir(strings.TrimRight(text, "\n")); !filepath.IsAbs(tree) {
			tree = filepath.Join(place, tree)
		}
	} else if f, err := openSettings(dir, "config"); err == nil { // a submodule's
		for _, s := range Parse(f.text) {
			if strings.EqualFold(s.Key, "core.worktree") {
				if tree = s.Value; !filepath.IsAbs(tree) {
					tree = filepath.Join(place, tree)
				}
			}
		}
	}
	return tree
}

func isHex(id string) bool {
	return (len(id) == 40 || len(id) == 64) && strings.Trim(id, "0123456789abcdef") == ""
}

// checkIndex reads an index with names of objects of either length. It must be right with those
// that the repository has, and with no others: the settings may be written again, and git reads the
// last of several.
func checkIndex(data []byte, formats []string) error {
	if !bytes.HasPrefix(data, []byte("DIRC")) {
		return nil // git refuses it
	}
	if len(formats) == 0 {
		formats = []string{"sha1"}
	}
	for format, length := range lengths {
		err := ParseIndex(data, length)
		is := slices.Contains(formats, format)
		if is && err != nil {
			return err
		}
		if !is && (err == nil || errors.Is(err, errPath) || errors.Is(err, errTree)) {
			return fmt.Errorf("%w: it can be read in two ways", errIndex)
		}
	}
	return nil
}

// lengths are those of the names of objects.
var lengths = map[string]int{"sha1": 20, "sha256": 32}

// formatIn are the formats that settings name for the names of objects.
func formatIn(settings []int) (formats []string) {
	for _, dir := range settings {
		config := "config"
		if text, err := readSmall(dir, "commondir"); err == nil {
			config = strings.TrimRight(text, "\n") + "/config"
		}
		f, err := openSettings(dir, config)
		if err != nil {
			continue
		}
		for _, s := range Parse(f.text) {
			if strings.EqualFold(s.Key, "extensions.objectformat") {
				formats = append(formats, strings.ToLower(s.Value))
			}
		}
		return formats
	}
	return nil
}

// errPath is about a path that no commit can have.
var errPath = errors.New("it has a path that no commit can have")

// errIndex is what git could not read, either: it may be half of one that is being written.
var errIndex = fmt.Errorf("it is no index that git would write: %w", unix.EBADMSG)

// ParseIndex looks at each path in an index (gitformat-index(5)), with names of objects of so many
// bytes.
func ParseIndex(data []byte, hash int) error {
	_, err := parseIndex(data, hash)
	return err
}

func parseIndex(data []byte, hash int) (*indexParser, error) {
	if !bytes.HasPrefix(data, []byte("DIRC")) {
		return nil, nil // git refuses it
	}
	if len(data) < 12+hash {
		return nil, errIndex
	}
	version, count := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	if version < 2 || version > 4 {
		return nil, errIndex
	}
	p := indexParser{data: data[:len(data)-hash], at: 12, hash: hash, version: version}
	least := 62 + hash - 20
	p.starts, p.entries = make([]int, 0, len(data)/least+1), make([]indexEntry, 0, len(data)/least)
	for range count {
		p.starts = append(p.starts, p.at)
		e, err := p.entry()
		if err != nil {
			return nil, err
		}
		if e.name == "" { // in a split index, its path is the shared one's
			if p.split = true; len(p.entries) > 0 {
				return nil, errIndex
			}
			continue
		}
		if err := checkPath(strings.TrimSuffix(e.name, "/")); err != nil {
			return nil, err
		}
		if n := len(p.entries); n > 0 && !p.entries[n-1].before(e) { // git looks entries up by halves
			return nil, errIndex
		}
		p.entries = append(p.entries, e)
	}
	p.starts = append(p.starts, p.at)
	return &p, p.extensions()
}

type indexParser struct {
	data     []byte
	at, hash int
	version  uint32
	previous []byte
	starts   []int        // where each entry starts, and the last one ends
	whole    map[int]bool // where one starts that takes nothing of the name before
	entries  []indexEntry // those with a path
	split    bool         // there are others, whose paths are those of a shared index
	sparse   bool         // there are whole directories among them
	end      int          // of the entries
	more     []extension
}

// An extension is what an index has behind its entries.
type extension struct {
	name string
	text []byte // all of it
}

// An indexEntry is one path in an index.
type indexEntry struct {
	name   string // of a directory in a sparse index, with a slash behind it
	mode   uint32
	id     []byte
	stage  uint16
	intent bool // to add it later
}

// before reports whether an entry stands before another one.
func (e indexEntry) before(other indexEntry) bool {
	if c := strings.Compare(e.name, other.name); c != 0 {
		return c < 0
	}
	return e.stage < other.stage
}

// entry reads one.
func (p *indexParser) entry() (e indexEntry, err error) {
	fixed := 40 + p.hash + 2
	if p.at+fixed+2 > len(p.data) {
		return e, errIndex
	}
	start := p.at
	flags := binary.BigEndian.Uint16(p.data[start+fixed-2:])
	e.mode, e.id, e.stage = binary.BigEndian.Uint32(p.data[start+24:]), p.data[start+40:start+40+p.hash], flags>>12&3
	if flags&0x4000 != 0 {
		e.intent = binary.BigEndian.Uint16(p.data[start+fixed:])&0x2000 != 0
		fixed += 2
	}
	p.at += fixed
	kept := 0
	if p.version == 4 {
		strip, ok := p.varint()
		if !ok || strip > len(p.previous) {
			return e, errIndex
		}
		if kept = len(p.previous) - strip; kept == 0 {
			if p.whole == nil {
				p.whole = map[int]bool{}
			}
			p.whole[start] = true
		}
	}
	end := bytes.IndexByte(p.data[min(p.at, len(p.data)):], 0)
	if end < 0 {
		return e, errIndex
	}
	name := append(bytes.Clone(p.previous[:kept]), p.data[p.at:p.at+end]...)
	if length := int(flags & 0xfff); length != min(len(name), 0xfff) {
		return e, errIndex
	}
	if p.version == 4 {
		p.at += end + 1
		p.previous = name
	} else if p.at = start + (fixed+len(name)+8)&^7; p.at > len(p.data) {
		return e, errIndex
	}
	e.name = string(name)
	if is := e.mode&unix.S_IFMT == unix.S_IFDIR; is {
		p.sparse = true
	} else if strings.HasSuffix(e.name, "/") {
		return e, errPath
	}
	return e, nil
}

// varint is a number as git writes it.
func (p *indexParser) varint() (int, bool) {
	value := 0
	for range 4 {
		if p.at >= len(p.data) {
			return 0, false
		}
		c := p.data[p.at]
		p.at++
		value = value<<7 | int(c&0x7f)
		if c&0x80 == 0 {
			return value, true
		}
		value++
	}
	return 0, false
}

// extensions goes through what is behind the entries. git may read the entries in blocks, each on
// its own, by an extension that says where they are: they must be where they are read here.
func (p *indexParser) extensions() error {
	end := p.at
	p.end = end
	seen := map[string][]byte{}
	last := ""
	for p.at < len(p.data) {
		if p.at+8 > len(p.data) {
			return errIndex
		}
		name, size := string(p.data[p.at:p.at+4]), int(binary.BigEndian.Uint32(p.data[p.at+4:]))
		if p.at += 8; size > len(p.data)-p.at {
			return errIndex
		}
		body := p.data[p.at : p.at+size]
		p.at += size
		p.more = append(p.more, extension{name, p.data[p.at-size-8 : p.at]})
		_, again := seen[name]
		last, seen[name] = name, body
		switch {
		case again,
			name == "EOIE" && (size != 4+p.hash || int(binary.BigEndian.Uint32(body)) != end || p.at != len(p.data)),
			name == "IEOT" && !p.blocks(body),
			name == "REUC" && !p.resolved(body),
			name[0] >= 'a' && name != "link" && name != "sdir":
			return fmt.Errorf("%w: extension %q", errIndex, name)
		}
	}
	if at := len(p.data) - 12 - p.hash; last != "EOIE" && at >= end && string(p.data[at:at+4]) == "EOIE" {
		return errIndex // git finds it there
	}
	_, linked := seen["link"]
	_, sparse := seen["sdir"]
	if p.split && !linked || p.sparse && !sparse {
		return errIndex
	}
	if trees, is := seen["TREE"]; is && !linked {
		return p.checkTrees(trees)
	}
	return nil
}

// resolved looks at the paths that had conflicts: git brings those back when it is asked to.
func (p *indexParser) resolved(body []byte) bool {
	for len(body) > 0 {
		name, rest, found := bytes.Cut(body, []byte{0})
		if !found || checkPath(string(name)) != nil {
			return false
		}
		ids := 0
		for range 3 {
			var mode []byte
			if mode, rest, found = bytes.Cut(rest, []byte{0}); !found || len(mode) == 0 {
				return false
			}
			if string(mode) != "0" {
				ids++
			}
		}
		if len(rest) < ids*p.hash {
			return false
		}
		body = rest[ids*p.hash:]
	}
	return true
}

// blocks reports whether all blocks of entries are where the entries are.
func (p *indexParser) blocks(body []byte) bool {
	if len(body) < 4 || (len(body)-4)%8 != 0 {
		return false
	}
	next := uint32(0)
	for body = body[4:]; len(body) > 0; body = body[8:] {
		offset, n := int(binary.BigEndian.Uint32(body)), binary.BigEndian.Uint32(body[4:])
		if int(next) >= len(p.starts) || p.starts[next] != offset || n > p.count()-next || p.version == 4 && !p.whole[offset] {
			return false
		}
		next += n
	}
	return next == p.count()
}

func (p *indexParser) count() uint32 { return binary.BigEndian.Uint32(p.data[8:]) }

// checkPath says why no commit can have a path.
func checkPath(name string) error {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." || isDotGit(part) {
			return fmt.Errorf("%w: %q", errPath, name)
		}
	}
	return nil
}

// isDotGit reports whether some file system takes a name for .git: letter case, what HFS+ ignores,
// and what NTFS does.
func isDotGit(name string) bool {
	if strings.IndexByte(".gG", name[0]) < 0 && strings.IndexFunc(name, func(r rune) bool { return r >= utf8.RuneSelf || r == '\\' }) < 0 {
		return false // most
	}
	for part := range strings.SplitSeq(name, `\`) {
		part, _, _ = strings.Cut(part, ":")
		part = strings.TrimRight(part, ". ")
		if strings.IndexFunc(part, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
			part = strings.Map(visible, part)
		}
		if strings.EqualFold(part, ".git") || strings.EqualFold(part, "git~1") {
			return true
		}
	}
	return false
}

// visible leaves out what HFS+ ignores in names.
func visible(r rune) rune {
	switch {
	case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		return -1
	}
	return r
}
