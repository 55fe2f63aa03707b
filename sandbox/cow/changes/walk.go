package changes

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// What a change is.
type Kind string

const (
	Added    Kind = "added"
	Changed  Kind = "changed"
	Deleted  Kind = "deleted"
	Mode     Kind = "mode"     // nothing but the permissions
	Replaced Kind = "replaced" // by something of another type
)

// A Change is what commands did to one path.
type Change struct {
	Path string // below the directory of the layer
	Kind Kind
	Type string // what is there now: file, directory, link, FIFO, socket, device; of what was deleted, what it was
	Was  string // of Replaced: the type before
	Mode uint32 // the permissions now, setuid among them; of what was deleted, 0
	// OldMode are the permissions on the host, if there is something.
	OldMode uint32
	Size    int64
	Entries int    // of a deleted directory: how many are in it
	Target  string // of a link
	From    string // of Added: what was deleted elsewhere and has the same content, so that this is probably a new name
	// Note says who executes this, or does as it says, outside of any sandbox; empty if nobody is
	// known to.
	Note string
	rank int
	// Conflict says why it is not applied unless it is named.
	Conflict string
	// Never says why it cannot be applied at all.
	Never string
	// Merged means that the host changed the file, too, in other lines: what is applied, and shown,
	// is both.
	Merged bool
	// Verdict is what the layer's rules say, if it has any, and Rule is which one, or why none.
	// Held is why a rule never applies it.
	Verdict    profile.Verdict
	Rule, Held string

	upper, lower *object
	// implicit: it is deleted, but has no mark of its own, as the directory that it was in was made
	// anew.
	implicit bool
	origin   string // the overlay's handle of what was copied
}

const (
	maxEntries = 1_000_000 // in one layer, or in a directory that was deleted
	maxPath    = 4000      // bytes: a longer one cannot be opened in one step
	maxCompare = 64 << 20  // bytes of a file that are compared
)

var errTooMany = errors.New("there are too many entries")

// A Review is all that was changed in one layer.
type Review struct {
	Changes []Change // what is executed elsewhere comes first
	// Unseen says what was not looked at, with the reason: too deep, too many, not readable.
	Unseen []string

	same []string   // in the upper directory, and no change
	dirs []upperDir // all directories in the upper one
}

type upperDir struct {
	path   string
	opaque bool // it hides what the host's has
	lower  bool // the host has it, too
}

// frame is a directory that is to be looked through.
type frame struct {
	upperDir
	conflict string // what holds for all in it
}

type walker struct {
	ctx          context.Context
	upper, lower int // the two directories, open
	since        int64
	applied      map[string]applied
	review       *Review
	left         int // entries
	queue        []frame
	inodes       map[uint64]bool // of the host's that a change is about
	unreadable   map[string]string
	layer        *opened
	veiled       []string
}

// compare holds the upper directory against the host's. What it met is in the review also if it
// ends early.
func (o *opened) compare(ctx context.Context, veiled []string) (*Review, error) {
	w := &walker{ctx: ctx, upper: o.upper, lower: o.lower, since: o.Since, applied: o.applied, review: &Review{}, left: maxEntries,
		inodes: map[uint64]bool{}, unreadable: map[string]string{}, layer: o, veiled: veiled}
	rules := o.Rules
	w.queue = []frame{{upperDir: upperDir{path: ".", lower: true}}}
	for len(w.queue) > 0 {
		f := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		if err := w.directory(f); err != nil {
			return w.review, err
		}
	}
	w.originals()
	bare := w.mark(protected(rules), veiled)
	w.review.renames(w)
	if rules != nil {
		if err := w.judge(rules, bare); err != nil {
			return w.review, err
		}
	}
	w.review.sort()
	return w.review, nil
}

func (w *walker) unseen(name, why string) {
	if len(w.review.Unseen) < 100 {
		w.review.Unseen = append(w.review.Unseen, name+": "+why)
	}
}

// directory looks at the entries of one. The error ends the walk.
func (w *walker) directory(f frame) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	up, err := openDirectory(w.upper, f.path)
	if err != nil {
		w.unseen(f.path, reason(err))
		w.unreadable[f.path] = "cannot be read: " + reason(err)
		return nil
	}
	defer unix.Close(up)
	low := -1
	if f.lower {
		if low, err = openDirectory(w.lower, f.path); err != nil {
			w.unseen(f.path, "the original: "+reason(err))
			return nil
		}
		defer unix.Close(low)
	}
	entries, err := names(up, w.left)
	if w.left -= len(entries); err != nil {
		return err
	}
	w.review.dirs = append(w.review.dirs, f.upperDir)
	for _, name := range entries {
		if err := w.entry(f, up, low, name); err != nil {
			return err
		}
	}
	if f.opaque && f.lower {
		return w.madeAnew(f, low, entries)
	}
	return nil
}

// madeAnew lists what a directory had that was removed and made again.
func (w *walker) madeAnew(f frame, low int, have []string) error {
	old, err := names(low, w.left)
	if w.left -= len(old); err != nil {
		return err
	}
	slices.Sort(have)
	for _, name := range old {
		if _, found := slices.BinarySearch(have, name); found {
			continue
		}
		if object, err := lookAt(low, name); err == nil {
			if err := w.deleted(join(f.path, name), f, &object, true); err != nil {
				return err
			}
		}
	}
	return nil
}

func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

// entry compares one name of the upper directory with what the host has.
func (w *walker) entry(f frame, up, low int, name string) error {
	c := Change{Path: join(f.path, name), Conflict: f.conflict}
	if len(c.Path) > maxPath {
		w.unseen(c.Path[:80]+"…", "the path is too long")
		return nil
	}
	if w.left -= len(c.Path) >> 8; w.left < 0 { // long paths count for more, so that the memory is bounded
		return errTooMany
	}
	upper, err := lookAt(up, name)
	if err != nil {
		w.unseen(c.Path, reason(err))
		return nil
	}
	c.upper = &upper
	if low >= 0 {
		switch lower, err := lookAt(low, name); {
		case err == nil:
			c.lower = &lower
			c.OldMode = lower.permission()
		case err != unix.ENOENT:
			w.unseen(c.Path, "the original: "+reason(err))
			return nil
		}
	}
	marked := false
	if upper.regular() && upper.Size == 0 {
		_, marked = attribute(up, name, "user.overlay.whiteout")
	}
	if upper.whiteout() || marked {
		if c.lower == nil {
			w.review.same = append(w.review.same, c.Path)
			return nil
		}
		return w.deleted(c.Path, f, c.lower, false)
	}
	c.Type, c.Mode, c.Size = upper.word(), upper.permission(), upper.Size
	if upper.link() {
		if c.Target, err = linkTarget(up, name); err != nil {
			w.unseen(c.Path, reason(err))
			return nil
		}
		c.Mode = 0
	}
	w.compare(&c, up, low, name)
	if err := w.conflict(&c, up, name); err != nil {
		return err
	}
	if upper.directory() {
		value, _ := attribute(up, name, opaqueName)
		below := frame{upperDir{c.Path, value == "y", c.lower != nil && c.lower.directory()}, c.Conflict}
		if c.Kind == Mode || c.Kind == Replaced { // says nothing about what is in it
			below.conflict = f.conflict
		}
		w.queue = append(w.queue, below)
		if c.Kind == "" {
			return nil // it is seen only as what it holds
		}
	}
	if c.Kind == "" {
		w.inodes[c.lower.Inode] = true
		w.review.same = append(w.review.same, c.Path)
		return nil
	}
	w.review.Changes = append(w.review.Changes, c)
	return nil
}

// compare says what kind of change it is. None is "".
func (w *walker) compare(c *Change, up, low int, name string) {
	switch {
	case !c.upper.regular() && !c.upper.directory() && !c.upper.link():
		c.Kind = Added
		c.Never = "a " + c.Type + " is not brought to the host"
	case c.lower == nil:
		c.Kind = Added
	case c.lower.kind() != c.upper.kind():
		c.Kind, c.Was = Replaced, c.lower.word()
	case c.upper.link():
		if target, err := linkTarget(low, name); err != nil || target != c.Target {
			c.Kind = Changed
		}
	case c.upper.directory():
		if c.upper.permission() != c.lower.permission() {
			c.Kind = Mode
		}
	default:
		if !w.equal(c, up, low, name) {
			c.Kind = Changed
		} else if c.upper.permission() != c.lower.permission() {
			c.Kind = Mode
		}
	}
	if c.upper.regular() {
		if _, partial := attribute(up, name, "user.overlay.metacopy"); partial {
			c.Never = "its content is not in the layer"
		}
	}
}

// equal compares two files. A large one is taken for changed.
func (w *walker) equal(c *Change, up, low int, name string) bool {
	if c.upper.Size != c.lower.Size || c.upper.Size > maxCompare {
		return false
	}
	a, err := openFile(up, name)
	if err != nil {
		c.Never = "cannot be read: " + reason(err)
		return false
	}
	defer a.Close()
	b, err := openFile(low, name)
	if err != nil {
		return false
	}
	defer b.Close()
	return sameContent(w.ctx, a, b)
}

func sameContent(ctx context.Context, a, b io.Reader) bool {
	var left, right [64 << 10]byte
	for ctx.Err() == nil {
		n, errA := io.ReadFull(a, left[:])
		m, errB := io.ReadFull(b, right[:])
		if n != m || !bytes.Equal(left[:n], right[:m]) {
			return false
		}
		if errA != nil || errB != nil {
			return errA == errB
		}
	}
	return false
}

// conflict looks whether the host changed it, too.
func (w *walker) conflict(c *Change, up int, name string) error {
	switch {
	case c.Kind == "" || c.Conflict != "":
	case c.lower == nil:
		if origin, copied := attribute(up, name, "user.overlay.origin"); copied && c.Kind == Added {
			c.origin = origin
			if c.upper.directory() {
				c.Conflict = goneMeanwhile
			}
		}
	case c.Kind == Replaced && c.lower.directory():
		w.inodes[c.lower.Inode] = true
		entries, why, err := w.lowerTree(c.Path, *c.lower)
		if err != nil {
			return err
		}
		c.Entries, c.Conflict = entries, why
	default:
		w.inodes[c.lower.Inode] = true
		if c.Conflict = w.later(c.Path, *c.lower); c.Conflict != "" && c.Kind == Changed && c.Type == "file" && !isVeiled(w.veiled, c.Path) {
			w.merge(c)
		}
	}
	return nil
}

// merge looks whether a file that the host changed, too, can be brought together with that.
func (w *walker) merge(c *Change) {
	content, mode, clashes, err := w.layer.merged(c)
	switch {
	case len(clashes) > 0:
		c.Conflict += ", in the same lines"
	case err == errModes:
		c.Conflict += ": " + err.Error()
	case err != nil:
	default:
		c.Conflict, c.Merged = "", true
		c.Held = "the host changed it, too: both are merged"
		if host, err := text(w.lower, c.Path); err == nil && bytes.Equal(host, content) && mode == c.lower.permission() {
			c.Kind = "" // the layer has nothing that the host has not
		}
	}
}

const goneMeanwhile = "the original was deleted on the host"

// originals finds files that were copied from an original that is not there any more. A file that a
// command gave another name, or one name more, has its original elsewhere.
func (w *walker) originals() {
	for i := range w.review.Changes {
		c := &w.review.Changes[i]
		if why := w.unreadable[c.Path]; why != "" {
			c.Never = why
		}
		if c.origin == "" || c.Conflict != "" {
			continue
		}
		found := false
		const handle = 21 // where the file system's part begins, which has the inode's number in one of two places
		for at := handle; at+4 <= len(c.origin) && at < handle+8; at += 4 {
			found = found || w.inodes[uint64(binary.NativeEndian.Uint32([]byte(c.origin[at:at+4])))]
		}
		if !found {
			c.Conflict = goneMeanwhile
		}
	}
}

// later says whether the host's object was changed since the layer began, other than by an earlier
// apply.
func (w *walker) later(name string, lower object) string {
	if lower.Changed < w.since {
		return ""
	}
	if done, ok := w.applied[name]; ok && done.Inode == lower.Inode && done.Changed == lower.Changed {
		return ""
	}
	return "the original was changed on the host meanwhile"
}

// deleted adds a path that is gone.
func (w *walker) deleted(name string, f frame, lower *object, implicit bool) error {
	c := Change{Path: name, Kind: Deleted, Type: lower.word(), OldMode: lower.permission(), Size: lower.Size, lower: lower, implicit: implicit, Conflict: f.conflict}
	if lower.directory() {
		c.Size = 0
		entries, why, err := w.lowerTree(name, *lower)
		if err != nil {
			return err
		}
		c.Entries = entries
		if c.Conflict == "" {
			c.Conflict = why
		}
	} else {
		w.inodes[lower.Inode] = true
		if c.Conflict == "" {
			c.Conflict = w.later(name, *lower)
		}
	}
	w.review.Changes = append(w.review.Changes, c)
	return nil
}

// lowerTree counts what is in a directory of the host's, and says what of it was changed meanwhile.
func (w *walker) lowerTree(name string, top object) (int, string, error) {
	objects, err := tree(w.ctx, w.lower, name, w.left)
	switch {
	case errors.Is(err, errTooMany), w.ctx.Err() != nil:
		return 0, "", err
	case err != nil:
		return len(objects), "the original: " + reason(err), nil
	}
	w.left -= len(objects)
	objects["."] = top
	for _, o := range objects {
		w.inodes[o.Inode] = true
	}
	for below, o := range objects {
		if why := w.later(path.Join(name, below), o); why != "" {
			return len(objects) - 1, fmt.Sprintf("%s (%s)", why, below), nil
		}
	}
	return len(objects) - 1, "", nil
}

// tree is all that is below a directory, by the paths in it.
func tree(ctx context.Context, root int, name string, most int) (map[string]object, error) {
	all := map[string]object{}
	queue := []string{"."}
	for len(queue) > 0 {
		if err := ctx.Err(); err != nil {
			return all, err
		}
		dir := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		fd, err := openDirectory(root, path.Join(name, dir))
		if err != nil {
			return all, err
		}
		list, err := names(fd, most-len(all))
		for _, entry := range list {
			o, statErr := lookAt(fd, entry)
			if statErr == unix.ENOENT {
				continue
			}
			if statErr != nil && err == nil {
				err = statErr
			}
			all[join(dir, entry)] = o
			if o.directory() {
				queue = append(queue, join(dir, entry))
			}
		}
		unix.Close(fd)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func (r *Review) sort() {
	slices.SortFunc(r.Changes, func(a, b Change) int {
		if a.rank != b.rank {
			return b.rank - a.rank
		}
		return strings.Compare(a.Path, b.Path)
	})
}

// reason is an error of the kernel's, without the path that is said already.
func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}
