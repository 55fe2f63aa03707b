package changes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Shown is what a person looked at: of each change, by its path, what it was then. Without one,
// nil, nobody looked.
type Shown map[string]Fingerprint

// A Fingerprint is of one change. Digest is of what it is and of the files' times; the kernel's
// time of change is nothing that a command sets. But what a process has mapped it may write without
// a change of times (mmap(2)), so Content is of the very bytes that were shown or, where they
// cannot be, that were there; empty: only a line in a list was shown.
type Fingerprint struct{ Digest, Content string }

// Shown is all of a review, as lines in a list.
func (r *Review) Shown() Shown {
	s := Shown{}
	for i := range r.Changes {
		c := &r.Changes[i]
		s[c.Path] = Fingerprint{Digest: c.digest()}
	}
	return s
}

// Add takes a change that a person is shown with its lines.
func (s Shown) Add(c *Change, d Difference) { s[c.Path] = Fingerprint{c.digest(), d.Content} }

// lacks says why a change is none that was shown, or nothing.
func (s Shown) lacks(c *Change) string {
	switch sight, is := s[c.Path]; {
	case s == nil, sight.Digest == c.digest():
		return ""
	case !is:
		return "it was not shown"
	}
	return errShown.Error()
}

var errShown = errors.New("it was changed after it was shown")

// unlike reports whether a content is another one than what was shown at a path.
func (s Shown) unlike(path string, content io.Reader) (bool, error) {
	want := s[path].Content
	if want == "" {
		return false, nil
	}
	is, err := contentOf(content)
	return is != want, err
}

func contentOf(r io.Reader) (string, error) {
	sum := sha256.New()
	_, err := io.Copy(sum, r)
	return hex.EncodeToString(sum.Sum(nil)[:16]), err
}

// digest is of what a person sees of a change: what it is, and the file's identity and times; of
// the host's file where that is shown, too.
func (c *Change) digest() string {
	text := fmt.Sprintf("%q %s %s %o %s %t", c.Path, c.Kind, c.Type, c.Mode, c.Was, c.Merged)
	add := func(o *object) {
		if o != nil && !o.directory() {
			text += fmt.Sprintf(" %d %o %d %d %d %d %d", o.Inode, o.Mode, o.UID, o.GID, o.Size, o.Written, o.Changed)
		}
	}
	add(c.upper)
	if c.Merged || c.Conflict != "" {
		add(c.lower)
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

const (
	shownPrefix = "shown-"
	maxKept     = 16 // of a layer
)

// A ShownError says that nothing was kept under a digest.
type ShownError struct{ Digest string }

func (e *ShownError) Error() string {
	return fmt.Sprintf("nothing was shown under %q, or so much since that it is forgotten", e.Digest)
}

// KeepShown keeps what was shown with the layer, and returns the digest under which FindShown has
// it.
func (l Layer) KeepShown(s Shown) (string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	digest := hex.EncodeToString(sum[:8])
	if err := writeWhole(l.Dir, shownPrefix+digest, text); err != nil {
		return "", err
	}
	kept, err := filepath.Glob(filepath.Join(l.Dir, shownPrefix+strings.Repeat("[0-9a-f]", len(digest))))
	if err != nil || len(kept) <= maxKept {
		return digest, err
	}
	age := func(path string) time.Time {
		info, err := os.Lstat(path)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(kept, func(a, b string) int { return age(a).Compare(age(b)) })
	for _, path := range kept[:len(kept)-maxKept] {
		err = errors.Join(err, os.Remove(path))
	}
	return digest, err
}

// FindShown is what was kept under a digest. The error may be a *ShownError.
func (l Layer) FindShown(digest string) (Shown, error) {
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) != 8 {
		return nil, &ShownError{digest}
	}
	text, err := os.ReadFile(filepath.Join(l.Dir, shownPrefix+digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &ShownError{digest}
	}
	if err != nil {
		return nil, err
	}
	s := Shown{}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:8]) != digest || json.Unmarshal(text, &s) != nil {
		return nil, &ShownError{digest}
	}
	return s, nil
}
