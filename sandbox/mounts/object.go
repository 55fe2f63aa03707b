package mounts

import (
	"encoding/binary"
	"encoding/hex"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

const howSize = 24 // struct open_how

// how is a struct open_how that opens an object itself, and follows no symbolic link on the way.
func (s *script) how() uint64 {
	if s.openHow == 0 {
		s.openHow = s.list.Words(unix.O_PATH|unix.O_CLOEXEC, 0, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	}
	return s.openHow
}

// howItself is how, for what may be a link that is mounted.
func (s *script) howItself() uint64 {
	return s.list.Words(unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
}

const statxSize = 256 // struct statx

// statx asks what an open object is.
func (s *script) statx(open *result) *result {
	buffer := s.list.Put(emptyStatx[:])
	r := s.call(trampoline.MayFail, unix.SYS_STATX, open, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_BTIME|unix.STATX_MNT_ID, buffer)
	return r.fills(buffer, statxSize)
}

var emptyStatx [statxSize]byte

const handleSize = 8 + 128 // struct file_handle with the longest handle

// handle asks for an open object's file handle.
func (s *script) handle(open *result) *result {
	text := make([]byte, handleSize)
	binary.NativeEndian.PutUint32(text, handleSize-8)
	buffer := s.list.Put(text)
	mount := s.list.Put(make([]byte, 8))
	return s.call(trampoline.MayFail, unix.SYS_NAME_TO_HANDLE_AT, open, "", buffer, mount, unix.AT_EMPTY_PATH).fills(buffer, handleSize)
}

// An identity is what statx(2) says of an object.
type identity struct {
	Object
	isDir             bool
	isRegular, isLink bool
	mount             uint64 // the mount's id; 0: this kernel does not say (before Linux 5.8)
	root              bool   // it is the mount's root
}

// identify reads a struct statx.
func identify(stat []byte) identity {
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(stat[at:]) }
	is := identity{
		Object:    Object{Inode: binary.NativeEndian.Uint64(stat[32:]), Device: unix.Mkdev(word(136), word(140))},
		isDir:     binary.NativeEndian.Uint16(stat[28:])&unix.S_IFMT == unix.S_IFDIR,
		isRegular: binary.NativeEndian.Uint16(stat[28:])&unix.S_IFMT == unix.S_IFREG,
		isLink:    binary.NativeEndian.Uint16(stat[28:])&unix.S_IFMT == unix.S_IFLNK,
		root:      binary.NativeEndian.Uint64(stat[8:])&unix.STATX_ATTR_MOUNT_ROOT != 0,
	}
	if word(0)&unix.STATX_BTIME != 0 {
		is.Born = int64(binary.NativeEndian.Uint64(stat[80:]))*1e9 + int64(word(88))
	}
	if word(0)&unix.STATX_MNT_ID != 0 {
		is.mount = binary.NativeEndian.Uint64(stat[144:])
	}
	return is
}

// is reports whether what statx(2) and name_to_handle_at(2) say is of this object.
func (o *Object) is(found identity, handle []byte) bool {
	if o == nil || o.Inode == 0 {
		return true
	}
	if o.Device != found.Device || o.Inode != found.Inode || o.Born != 0 && found.Born != 0 && o.Born != found.Born {
		return false
	}
	if o.Handle == "" {
		return true
	}
	size := min(int(binary.NativeEndian.Uint32(handle)), len(handle)-8)
	return hex.EncodeToString(handle[8:8+size]) == o.Handle
}
