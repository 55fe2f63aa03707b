// Package image knows which images there are, where their files lie, and which of them a sandbox
// uses.
//
// An image is a root file system that stands in place of the host's own. Package store makes and
// removes them; it writes a small file for each, last of all, and that file is all that a run
// reads. A run holds a lock on it: who removes an image needs the lock alone.
package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// An Image is what its file says.
type Image struct {
	Name         string   `json:"name"`
	Layer        string   `json:"layer"`            // the topmost: the name of the directory with all files
	Layers       []string `json:"layers"`           // all, the lowest first
	Source       string   `json:"source"`           // what it was imported from
	Digest       string   `json:"digest,omitempty"` // of the archive, or of an OCI image's manifest
	Made         int64    `json:"importedAtUnixMs"`
	Architecture string   `json:"architecture,omitempty"` // as the image says
	Path         string   `json:"path,omitempty"`         // $PATH, as the image says
	Report
}

const (
	namesDirectory = "names"
	suffix         = ".json"
)

// MaxFile bounds the file of an image.
const MaxFile = 1 << 20

// Names is the directory with the files of images, below that of all that has to do with images.
func Names(dir string) string { return filepath.Join(dir, namesDirectory) }

// File is the file of an image.
func File(dir, name string) string { return filepath.Join(dir, namesDirectory, name+suffix) }

// Graph is the directory that containers/storage keeps.
func Graph(dir string) string { return filepath.Join(dir, "storage") }

// Driver is how the storage keeps layers: see package store.
const Driver = "trees"

// Root is the directory with an image's files.
func (i *Image) Root(dir string) string { return filepath.Join(Graph(dir), Driver, "dir", i.Layer) }

// Parse reads the file of an image.
func Parse(name, text string) (*Image, error) {
	var i Image
	err := json.Unmarshal([]byte(text), &i)
	if err == nil && (i.Name != name || len(i.Layer) != 64 || strings.Trim(i.Layer, "0123456789abcdef") != "") {
		err = errors.New("it is not what clai-sandbox image import writes")
	}
	if err != nil {
		return nil, fmt.Errorf("the file of image %s: %w", name, err)
	}
	return &i, nil
}

// A MissingError is an image that is not there.
type MissingError struct{ Name string }

func (e *MissingError) Error() string { return "there is no image " + profile.Printable(e.Name) }

// ErrInUse means that a sandbox uses an image.
var ErrInUse = errors.New("a sandbox uses it, or it is being removed")

// A Hold keeps an image from being removed, or from being used.
type Hold struct{ fd int }

// Close lets go.
func (h *Hold) Close() {
	if h != nil && h.fd >= 0 {
		unix.Close(h.fd)
		h.fd = -1
	}
}

// Use holds an image for a run.
func Use(dir, name string) (*Image, *Hold, error) { return take(dir, name, unix.LOCK_SH) }

// Own holds an image alone, to remove it. The error is ErrInUse if a run has it.
func Own(dir, name string) (*Image, *Hold, error) { return take(dir, name, unix.LOCK_EX) }

func take(dir, name string, how int) (*Image, *Hold, error) {
	if err := profile.CheckImage(name); err != nil {
		return nil, nil, err
	}
	fd, err := unix.Open(File(dir, name), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err == unix.ENOENT {
		return nil, nil, &MissingError{name}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the file of image %s: %w", name, err)
	}
	hold := &Hold{fd}
	i, err := hold.read(name, how)
	if err != nil {
		hold.Close()
		return nil, nil, err
	}
	return i, hold, nil
}

const (
	timeout = 200 * time.Millisecond
	pause   = 2 * time.Millisecond
)

// read locks the file first: one that was removed meanwhile has no name any more.
func (h *Hold) read(name string, how int) (*Image, error) {
	err := unix.Flock(h.fd, how|unix.LOCK_NB)
	for began := time.Now(); err == unix.EWOULDBLOCK && time.Since(began) < timeout; time.Sleep(pause) { // List has it for a moment
		err = unix.Flock(h.fd, how|unix.LOCK_NB)
	}
	if err == unix.EWOULDBLOCK {
		return nil, ErrInUse
	}
	if err != nil {
		return nil, fmt.Errorf("lock image %s: %w", name, err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(h.fd, &stat); err != nil {
		return nil, err
	}
	switch {
	case stat.Nlink == 0:
		return nil, &MissingError{name}
	case stat.Mode&unix.S_IFMT != unix.S_IFREG || int(stat.Uid) != os.Geteuid() || stat.Mode&0o022 != 0 || stat.Size > MaxFile:
		return nil, fmt.Errorf("the file of image %s: not a file of yours that nobody else writes", name)
	}
	text := make([]byte, stat.Size)
	if n, err := unix.Pread(h.fd, text, 0); err != nil || n != len(text) {
		return nil, fmt.Errorf("the file of image %s cannot be read", name)
	}
	return Parse(name, string(text))
}

// A Listed is one image, or why its file cannot be used.
type Listed struct {
	*Image
	Name  string
	InUse bool
	Err   error
}

// List lists the images by their names.
func List(dir string) ([]Listed, error) {
	entries, err := os.ReadDir(Names(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Listed
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), suffix)
		if !is || profile.CheckImage(name) != nil {
			continue
		}
		l := Listed{Name: name}
		var hold *Hold
		if l.Image, hold, l.Err = Use(dir, name); errors.As(l.Err, new(*MissingError)) {
			continue
		}
		hold.Close()
		if l.Err == nil {
			_, alone, err := Own(dir, name)
			alone.Close()
			l.InUse = errors.Is(err, ErrInUse)
		}
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}
