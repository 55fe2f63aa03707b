// Package store imports and removes images. What is there, which layers belong to what, and which
// of them are shared, containers/storage keeps; the files of a layer are put there by package
// unpack. An import that is interrupted leaves nothing: what no image has is removed by the next
// command.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containers/storage"
	"github.com/containers/storage/types"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/image"
)

// An Error is why something cannot be done, and what mends it.
type Error struct{ Why, Hint string }

func (e *Error) Error() string { return e.Why }

// A Store is open for changes. Nobody else changes it meanwhile.
type Store struct {
	dir   string
	lock  int
	store storage.Store
	loose bool // an import does not wait for the disk, for tests
}

const (
	lockName   = "lock"
	markerName = "unfinished"
)

// Open opens the store below a directory for changes, and removes what an interrupted import left.
// It waits for whoever else changes it.
func Open(ctx context.Context, dir string) (*Store, error) {
	if err := prepare(dir); err != nil {
		return nil, err
	}
	lock, err := unix.Open(filepath.Join(dir, lockName), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, lockName), err)
	}
	s := &Store{dir: dir, lock: lock}
	for unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			s.Close()
			return nil, &Error{"another import, or removal, has not ended", "try again when it has"}
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err := s.open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Recover removes what an interrupted import left, if one did and nobody is at it. It costs nothing
// where none did.
func Recover(ctx context.Context, dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, markerName)); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	s, err := Open(ctx, dir)
	var busy *Error
	if errors.As(err, &busy) {
		return nil
	}
	if err == nil {
		s.Close()
	}
	return err
}

// prepare makes the directories. Root makes none in a person's state: what it makes there would be
// in the person's way.
func prepare(dir string) error {
	for above := dir; ; above = filepath.Dir(above) {
		var is unix.Stat_t
		err := unix.Lstat(above, &is)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", above, err)
		}
		if int(is.Uid) != os.Geteuid() {
			return &Error{profile.Printable(above) + " is another user's", "images are kept by whoever runs commands in them: import as that user"}
		}
		break
	}
	for _, name := range []string{dir, image.Names(dir)} {
		if err := os.MkdirAll(name, 0o700); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) open() error {
	// The library reads the system's storage.conf, and makes directories that it says, before it
	// looks at what it is given.
	for _, v := range [][2]string{{"CONTAINERS_STORAGE_CONF", os.DevNull}, {"XDG_RUNTIME_DIR", filepath.Join(s.dir, "run")}, {"XDG_DATA_HOME", s.dir}, {"STORAGE_DRIVER", image.Driver}} {
		if err := os.Setenv(v[0], v[1]); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(s.dir, "run"), 0o700); err != nil {
		return err
	}
	var err error
	s.store, err = storage.GetStore(types.StoreOptions{RunRoot: filepath.Join(s.dir, "run"), GraphRoot: image.Graph(s.dir), GraphDriverName: image.Driver})
	if err != nil {
		return fmt.Errorf("open the store of images %s: %w", s.dir, err)
	}
	return s.sweep()
}

// Close gives the store back. What is not finished by now, a later command removes.
func (s *Store) Close() {
	if s.store != nil {
		s.store.Free()
		s.store.Shutdown(true)
		s.store = nil
	}
	unix.Close(s.lock)
}

// begin marks the store: until end, there is something in it that no image has.
func (s *Store) begin() error {
	return os.WriteFile(filepath.Join(s.dir, markerName), nil, 0o600)
}

// sweep removes what no image has, and what nobody can find any more.
func (s *Store) sweep() error {
	marker := filepath.Join(s.dir, markerName)
	if _, err := os.Lstat(marker); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	images, err := s.store.Images()
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, i := range images {
		if !s.named(&i) {
			if _, err := s.store.DeleteImage(i.ID, true); err != nil {
				return fmt.Errorf("remove what is left of an image: %w", err)
			}
			continue
		}
		for layer := i.TopLayer; layer != "" && !used[layer]; {
			used[layer] = true
			l, err := s.store.Layer(layer)
			if err != nil {
				return err
			}
			layer = l.Parent
		}
	}
	if err := s.removeLayers(used); err != nil {
		return err
	}
	if err := s.store.GarbageCollect(); err != nil {
		return err
	}
	left, _ := filepath.Glob(filepath.Join(image.Names(s.dir), ".*.new"))
	for _, name := range append(left, filepath.Join(s.dir, buildName)) {
		if err := os.RemoveAll(name); err != nil {
			return err
		}
	}
	return os.Remove(marker)
}

// named reports whether an image of the store's has its file.
func (s *Store) named(i *storage.Image) bool {
	if len(i.Names) != 1 {
		return false
	}
	text, err := os.ReadFile(image.File(s.dir, i.Names[0]))
	if err != nil {
		return false
	}
	known, err := image.Parse(i.Names[0], string(text))
	return err == nil && known.Layer == i.TopLayer
}

// removeLayers removes the layers that are not used, those on top first.
func (s *Store) removeLayers(used map[string]bool) error {
	layers, err := s.store.Layers()
	if err != nil {
		return err
	}
	layers = slices.DeleteFunc(layers, func(l storage.Layer) bool { return used[l.ID] })
	for len(layers) > 0 {
		parents := map[string]bool{}
		for _, l := range layers {
			parents[l.Parent] = true
		}
		before := len(layers)
		for _, l := range layers {
			if !parents[l.ID] {
				if err := s.store.DeleteLayer(l.ID); err != nil {
					return fmt.Errorf("remove layer %s: %w", l.ID, err)
				}
			}
		}
		layers = slices.DeleteFunc(layers, func(l storage.Layer) bool { return !parents[l.ID] })
		if len(layers) == before {
			return errors.New("the layers go round in a circle")
		}
	}
	return nil
}

// Remove removes an image, with the layers that no other has. A sandbox that uses it keeps it.
func (s *Store) Remove(name string) error {
	_, hold, err := image.Own(s.dir, name)
	if errors.Is(err, image.ErrInUse) {
		return &Error{"a sandbox uses image " + name, "wait until its command has ended"}
	}
	var missing *image.MissingError
	if err != nil && !errors.As(err, &missing) {
		if profile.CheckImage(name) != nil {
			return err
		}
		err = nil // a file that nobody can use goes with the rest
	}
	if err != nil {
		return &Error{err.Error(), "clai-sandbox image list lists them"}
	}
	defer hold.Close()
	if err := s.begin(); err != nil {
		return err
	}
	if err := os.Remove(image.File(s.dir, name)); err != nil {
		return err
	}
	return s.sweep()
}

// publish makes an image known. It is there from then on.
func (s *Store) publish(i *image.Image) error {
	if err := s.sync(i.Root(s.dir)); err != nil {
		return fmt.Errorf("write the image to the disk: %w", err)
	}
	if _, err := s.store.CreateImage("", []string{i.Name}, i.Layer, "", nil); err != nil {
		return err
	}
	text, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	temporary := filepath.Join(image.Names(s.dir), "."+i.Name+".new")
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, temporary, unix.AT_FDCWD, image.File(s.dir, i.Name), unix.RENAME_NOREPLACE)
	}
	if err != nil {
		return fmt.Errorf("write the file of image %s: %w", i.Name, err)
	}
	return os.Remove(filepath.Join(s.dir, markerName))
}

// sync waits until the files of an image are on the disk.
func (s *Store) sync(dir string) error {
	if s.loose {
		return nil
	}
	root, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	return unix.Syncfs(root)
}
