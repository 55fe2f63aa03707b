package mounts

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

const howSize = 24 // struct open_how

// how is a struct open_how that opens an object itself, and follows no symbolic link on the way.
func (s *script) how() uint64 {
	return s.list.Words(unix.O_PATH|unix.O_CLOEXEC, 0, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
}

const statxSize = 256 // struct statx

// statx asks what an open object is.
func (s *script) statx(open *result) *result {
	buffer := s.list.Put(make([]byte, statxSize))
	r := s.call(trampoline.MayFail, unix.SYS_STATX, open, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_MNT_ID, buffer)
	r.buffer, r.data = buffer, make([]byte, statxSize)
	return r
}

// An identity is what statx(2) says of an object.
type identity struct {
	Object
	isDir bool
	mount uint64 // the mount's id; 0: this kernel does not say (before Linux 5.8)
	root  bool   // it is the mount's root
}

// identify reads a struct statx.
func identify(stat []byte) identity {
	is := identity{
		Object: Object{Inode: binary.LittleEndian.Uint64(stat[32:]),
			Device: unix.Mkdev(binary.LittleEndian.Uint32(stat[136:]), binary.LittleEndian.Uint32(stat[140:]))},
		isDir: binary.LittleEndian.Uint16(stat[28:])&unix.S_IFMT == unix.S_IFDIR,
		root:  binary.LittleEndian.Uint64(stat[8:])&unix.STATX_ATTR_MOUNT_ROOT != 0,
	}
	if binary.LittleEndian.Uint32(stat)&unix.STATX_MNT_ID != 0 {
		is.mount = binary.LittleEndian.Uint64(stat[144:])
	}
	return is
}
