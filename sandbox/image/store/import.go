package store

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/image"
	"github.com/clairun/clai-sandbox/sandbox/image/unpack"
)

// Import makes an image of an archive, an OCI layout or a directory. Either all of it is there
// afterwards, or nothing.
func (s *Store) Import(ctx context.Context, source, name string, budget unpack.Budget) (i *image.Image, err error) {
	if err := profile.CheckImage(name); err != nil {
		return nil, &Error{err.Error(), "choose another name"}
	}
	if _, err := os.Lstat(image.File(s.dir, name)); err == nil {
		return nil, &Error{"there is an image " + name, "remove it first: clai-sandbox image remove " + name}
	}
	fd, err := unix.Open(source, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &Error{profile.Printable(source) + ": " + err.Error(), "an image is imported from an archive, an OCI layout or a directory"}
	}
	file := os.NewFile(uintptr(fd), source)
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer func() {
		if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = &Error{err.Error(), "it is cut off, or no tar archive, as it is or compressed by gzip, zstd or bzip2"}
		}
		if err != nil {
			err = errors.Join(err, s.sweep())
		}
	}()
	m := &maker{ctx: ctx, store: s, budget: &budget, image: &image.Image{Name: name, Made: time.Now().UnixMilli()}}
	if m.image.Source, err = filepath.Abs(source); err != nil {
		return nil, err
	}
	switch {
	case info.Mode().IsRegular():
		err = m.archive(file)
	case !info.IsDir():
		err = &Error{profile.Printable(source) + " is no archive, OCI layout or directory", "write an archive to a file first"}
	default:
		var layout bool
		if layout, err = isLayout(fd); err == nil && layout {
			err = m.layout(fd)
		} else if err == nil {
			err = m.directory(fd)
		}
	}
	if err == nil {
		err = m.finish()
	}
	if err == nil {
		err = s.publish(m.image)
	}
	return m.image, err
}

// maker makes one image.
type maker struct {
	ctx    context.Context
	store  *Store
	budget *unpack.Budget
	image  *image.Image
}

// layer makes one layer on top of those that the image has, or takes the one that is there already
// by that id. An empty id is for one that no other image shares.
func (m *maker) layer(id string, fill func(root int) error) error {
	if id != "" {
		if l, err := m.store.store.Layer(id); err == nil && l.Metadata != "" && l.Parent == m.image.Layer {
			return m.known(l.ID, l.Metadata)
		}
	}
	l, err := m.store.store.CreateLayer(id, m.image.Layer, nil, "", false, nil)
	if err != nil {
		return fmt.Errorf("make a layer: %w", err)
	}
	m.image.Layer, m.image.Layers = l.ID, append(m.image.Layers, l.ID)
	root, err := unix.Open(m.image.Root(m.store.dir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	if err := fill(root); err != nil {
		return err
	}
	about, err := m.about()
	if err != nil {
		return err
	}
	return m.store.store.SetMetadata(l.ID, about)
}

func (m *maker) unpack(root int, source unpack.Source, layer bool) error {
	return unpack.Into(m.ctx, root, source, layer, m.budget, &m.image.Report)
}

func (m *maker) directory(fd int) error {
	own, err := unpack.Beneath(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	source, err := unpack.NewDirectory(own)
	if err != nil {
		unix.Close(own)
		return err
	}
	defer source.Close()
	return m.layer("", func(root int) error { return m.unpack(root, source, false) })
}

func (m *maker) archive(file io.Reader) error {
	sum := sha256.New()
	raw := io.TeeReader(file, sum)
	return m.layer("", func(root int) error {
		plain, err := decompress(raw)
		if err != nil {
			return err
		}
		defer plain.Close()
		if err := m.unpack(root, tar.NewReader(m.budget.Reader(m.ctx, plain)), false); err != nil {
			return err
		}
		if err := drain(m.ctx, raw); err != nil {
			return err
		}
		if isThere(root, "oci-layout") && isThere(root, "index.json") || isThere(root, "manifest.json") && !isThere(root, "usr") && !isThere(root, "bin") {
			return &Error{"the archive holds an image, and is not its files", "unpack it into a directory, and import that; or import what docker export writes"}
		}
		m.image.Digest = digestOf(sum)
		return nil
	})
}

func digestOf(h hash.Hash) string { return fmt.Sprintf("sha256:%x", h.Sum(nil)) }

// drain reads what is left of a file, for its digest.
func drain(ctx context.Context, r io.Reader) error {
	_, err := io.Copy(io.Discard, &stopping{ctx, r})
	return err
}

type stopping struct {
	ctx context.Context
	r   io.Reader
}

func (s *stopping) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.r.Read(p)
}

// maxWindow is how much an archive may make a decompressor remember.
const maxWindow = 128 << 20

// decompress finds out by its beginning how an archive is compressed.
func decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(6)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(b)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	case bytes.HasPrefix(magic, []byte("BZh")):
		return io.NopCloser(bzip2.NewReader(b)), nil
	case bytes.HasPrefix(magic, []byte("\xfd7zXZ\x00")):
		return nil, &Error{"the archive is compressed by xz", "unpack it first, in a sandbox: clai-sandbox run -- xz -dc <FILE >FILE.tar"}
	}
	return io.NopCloser(b), nil
}

func isThere(root int, name string) bool {
	var stat unix.Stat_t
	return unix.Fstatat(root, name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// hosts is what /etc/hosts has where an image has none.
const hosts = "127.0.0.1\tlocalhost\n::1\tlocalhost\n"

// finish gives the image the files that a sandbox mounts on, as container engines do, and looks
// whether there is anything in it.
func (m *maker) finish() error {
	root, err := unix.Open(m.image.Root(m.store.dir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	if m.image.Entries == 0 {
		return &Error{profile.Printable(m.image.Source) + " holds no files", "import a root file system"}
	}
	if err := unix.Mkdirat(root, "etc", 0o755); err != nil && err != unix.EEXIST {
		return err
	}
	etc, err := unpack.Beneath(root, "etc", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return &unpack.EntryError{Name: "etc", Why: "not a directory", Err: err}
	}
	defer unix.Close(etc)
	for name, text := range map[string]string{"resolv.conf": "", "hosts": hosts} {
		var stat unix.Stat_t
		err := unix.Fstatat(etc, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG {
			continue
		}
		if err := unpack.Remove(etc, name); err != nil {
			return err
		}
		fd, err := unix.Openat(etc, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, []byte(text))
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}
