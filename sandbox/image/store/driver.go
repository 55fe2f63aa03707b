package store

import (
	"context"
	"os"
	"path/filepath"

	graphdriver "github.com/containers/storage/drivers"
	"github.com/containers/storage/drivers/vfs"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/image"
	"github.com/clairun/clai-sandbox/sandbox/image/unpack"
)

func init() { graphdriver.MustRegister(image.Driver, newDriver) }

// driver is containers/storage's vfs, but for one thing: a layer shares its files with the one
// below by hard links. A layer is a directory with all files of its image, so that a sandbox shows
// it by plain binds, without an overlay and without rights; nobody writes the files, and the same
// file is on the disk once. (vfs copies each, by a program in a chroot, which takes root.)
type driver struct {
	graphdriver.Driver
	home string
}

func newDriver(home string, options graphdriver.Options) (graphdriver.Driver, error) {
	v, err := vfs.Init(home, options)
	if err != nil {
		return nil, err
	}
	return &driver{v, home}, nil
}

func (d *driver) String() string { return image.Driver }

func (d *driver) CreateReadWrite(id, parent string, options *graphdriver.CreateOpts) error {
	return d.Create(id, parent, options)
}

func (d *driver) Create(id, parent string, options *graphdriver.CreateOpts) error {
	// vfs's own would give it to root, which only root can.
	if err := os.Mkdir(filepath.Join(d.home, "dir", filepath.Base(id)), 0o755); err != nil {
		return err
	}
	to, err := d.open(id)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if err := unix.Fchmod(to, 0o755); err != nil || parent == "" {
		return err
	}
	from, err := d.open(parent)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	return unpack.Clone(context.Background(), from, to)
}

func (d *driver) open(id string) (int, error) {
	dir, err := d.Get(id, graphdriver.MountOpts{})
	if err != nil {
		return -1, err
	}
	return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}
