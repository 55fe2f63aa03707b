package profile

import (
	"encoding/hex"
	"strconv"

	"golang.org/x/sys/unix"
)

// An Object is one file or directory, by what the kernel tells it from all others by. A file system
// gives the number of an inode that was deleted to the next one that is made, so that the number
// alone is a name for whatever stands there later: when it was born, and the generation in its file
// handle, tell the two apart. The zero value is none.
type Object struct {
	Device uint64 `json:"device,string,omitempty"`
	Inode  uint64 `json:"inode,string,omitempty"`
	// Born is when it was made, in nanoseconds since 1970, where the file system remembers.
	Born string `json:"born,omitempty"`
	// Handle is its file handle in hexadecimal, where those of the file system stay the same as
	// long as the object is there.
	Handle string `json:"handle,omitempty"`

	mode uint32 // its type, as in stat(2)
}

// Exists reports whether there was an object.
func (o Object) Exists() bool { return o.Inode != 0 }

// Same reports whether both are one object, or both none. What only one of them says tells nothing.
func (o Object) Same(other Object) bool {
	agree := func(a, b string) bool { return a == "" || b == "" || a == b }
	return o.Device == other.Device && o.Inode == other.Inode && agree(o.Born, other.Born) && agree(o.Handle, other.Handle)
}

// Is reports whether it is of a kind, as in unix.S_IFDIR.
func (o Object) Is(kind uint32) bool { return o.Exists() && o.mode&unix.S_IFMT == kind }

// lastingHandles are the file systems, as statfs(2) calls them, whose file handles name an inode
// and its generation for as long as it is there. Those of FUSE name what its server has in memory.
var lastingHandles = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: true,
}

// ObjectOf is the object of an open file, which may be opened with O_PATH.
func ObjectOf(fd int) (Object, error) {
	var stat unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &stat); err != nil {
		return Object{}, err
	}
	o := Object{Device: unix.Mkdev(stat.Dev_major, stat.Dev_minor), Inode: stat.Ino, mode: uint32(stat.Mode)}
	if stat.Mask&unix.STATX_BTIME != 0 && stat.Btime.Sec != 0 {
		o.Born = strconv.FormatInt(stat.Btime.Sec*1e9+int64(stat.Btime.Nsec), 10)
	}
	var system unix.Statfs_t
	if unix.Fstatfs(fd, &system) == nil && lastingHandles[int64(system.Type)] {
		if handle, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH); err == nil {
			o.Handle = hex.EncodeToString(handle.Bytes())
		}
	}
	return o, nil
}
