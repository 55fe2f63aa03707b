package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// How the mounter puts a tree together: each part is a mount that is nowhere yet; where there are several, they are joined in a file
// system in memory that nobody else sees.

// assemble makes a tree of its parts, and returns its root.
func (m *mounter) assemble(parts []mountPart) (root int, err error) {
	if len(parts) == 0 {
		return -1, errors.New("a tree without parts")
	}
	root, err = m.open(parts[0])
	if err != nil || len(parts) == 1 {
		return root, err
	}
	defer unix.Close(root)
	const place = "tree"
	if err := unix.Mkdirat(m.stage, place, 0o700); err != nil && err != unix.EEXIST {
		return -1, calling("mkdir", err)
	}
	if err := unix.MoveMount(root, "", m.stage, place, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return -1, calling("move_mount", err)
	}
	defer unix.Unmount("/dev/"+place, unix.MNT_DETACH)
	base, err := openExactly(m.stage, place)
	if err != nil {
		return -1, err
	}
	defer unix.Close(base)
	for _, part := range parts[1:] {
		name, ok := strings.CutPrefix(part.Path, strings.TrimSuffix(parts[0].Path, "/")+"/")
		if !ok {
			return -1, fmt.Errorf("%s is not below %s", part.Path, parts[0].Path)
		}
		if err := m.add(base, name, part); err != nil {
			return -1, err
		}
	}
	whole, err := unix.OpenTree(base, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	return whole, calling("open_tree", err)
}

// add puts a part into a tree, at a name below its root.
func (m *mounter) add(base int, name string, part mountPart) error {
	if part.Kind == Seal {
		at, err := openExactly(base, name)
		if err != nil {
			return err
		}
		defer unix.Close(at)
		return calling("mount_setattr", unix.MountSetattr(at, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}))
	}
	if part.Kind == Copy {
		return m.copy(base, name, part)
	}
	object, err := m.open(part)
	if err != nil {
		return err
	}
	defer unix.Close(object)
	var stat unix.Stat_t
	if err := unix.Fstat(object, &stat); err != nil {
		return err
	}
	at, err := openExactly(base, name)
	if errors.Is(err, unix.ENOENT) && part.Make {
		if err = makeWithin(base, name, stat.Mode&unix.S_IFMT == unix.S_IFDIR); err == nil {
			at, err = openExactly(base, name)
		}
	}
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return calling("move_mount", unix.MoveMount(object, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
}

// makeWithin makes a name in a mask of the tree.
func makeWithin(base int, name string, isDir bool) error {
	for at, c := range name {
		if c != '/' {
			continue
		}
		if err := unix.Mkdirat(base, name[:at], 0o755); err != nil && err != unix.EEXIST {
			return calling("mkdir", err)
		}
	}
	if isDir {
		return calling("mkdir", unix.Mkdirat(base, name, 0o755))
	}
	return calling("mknod", unix.Mknodat(base, name, unix.S_IFREG|0o444, 0))
}

// copy puts a copy of one of the host's files into a mask.
func (m *mounter) copy(base int, name string, part mountPart) error {
	if err := makeWithin(base, name, false); err != nil {
		return err
	}
	source, err := openFile(part.Source)
	if err != nil {
		return nil // gone: so it is gone inside as well
	}
	in := os.NewFile(uintptr(source), part.Source)
	defer in.Close()
	target, err := unix.Openat(base, name, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return calling("open", err)
	}
	out := os.NewFile(uintptr(target), name)
	defer out.Close()
	if _, err := io.Copy(out, io.LimitReader(in, maxCopied)); err != nil {
		return err
	}
	return out.Chmod(os.FileMode(part.Mode))
}

// Names of the kernel's that golang.org/x/sys does not have.
const (
	moveMountBeneath = 0x200 // Linux 6.5
	fsmountCloexec   = 1
)

// maxCopied bounds a copied file: those are lists of hosts and the like.
const maxCopied = 16 << 20

// open is one part as a mount that is nowhere yet.
func (m *mounter) open(part mountPart) (int, error) {
	switch {
	case part.Kind == Bind && part.Source == "":
		object := -1
		err := m.within(func() error {
			at, err := openInside(part.Path)
			if err != nil {
				return err
			}
			defer unix.Close(at)
			object, err = unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
			return calling("open_tree", err)
		})
		return object, err
	case part.Kind == Bind:
		return openBind(part)
	case part.Kind == Mask:
		return newMemory(fmt.Sprintf("%04o", part.Mode))
	case part.Kind == Empty:
		if err := unix.Mknodat(m.stage, "empty", unix.S_IFREG|0o444, 0); err != nil && err != unix.EEXIST {
			return -1, calling("mknod", err)
		}
		object, err := unix.OpenTree(m.stage, "empty", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return -1, calling("open_tree", err)
		}
		return limited(object, false)
	}
	return -1, fmt.Errorf("no part of a tree: %v", part.Kind)
}

// openBind is what the host has at a path, if that is what is expected there.
func openBind(part mountPart) (int, error) {
	var want *profile.Expected
	if part.Inode != 0 {
		want = &profile.Expected{Device: part.Device, Inode: part.Inode}
	}
	at, err := pinExpected(part.Source, want)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: part.Source, Err: err}
	}
	defer at.close()
	object, err := unix.OpenTree(int(at), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, &os.PathError{Op: "open_tree", Path: part.Source, Err: err}
	}
	return limited(object, part.Writable)
}

// limited gives a mount what every mount of a sandbox's is held to.
func limited(object int, isWritable bool) (int, error) {
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if !isWritable {
		attributes.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(object, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attributes); err != nil {
		unix.Close(object)
		return -1, calling("mount_setattr", err)
	}
	return object, nil
}

// newMemory is a new file system in memory, mounted nowhere yet.
func newMemory(mode string) (int, error) {
	context, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, calling("fsopen", err)
	}
	defer unix.Close(context)
	if err := unix.FsconfigSetString(context, "mode", mode); err != nil {
		return -1, calling("fsconfig", err)
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return -1, calling("fsconfig", err)
	}
	object, err := unix.Fsmount(context, fsmountCloexec, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	return object, calling("fsmount", err)
}
