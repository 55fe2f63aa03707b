package shut

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Where no capability of this machine's opens what is shut, it is held by its owner alone.
func TestAGateRestsOpenToItsOwnerWhereNobodyElseCouldOpenIt(t *testing.T) {
	for kind, want := range map[int64]uint32{
		unix.NFS_SUPER_MAGIC: 0o700, unix.CIFS_SUPER_MAGIC: 0o700, unix.SMB2_SUPER_MAGIC: 0o700, unix.SMB_SUPER_MAGIC: 0o700, unix.FUSE_SUPER_MAGIC: 0o700,
		unix.V9FS_MAGIC: 0o700, unix.AFS_SUPER_MAGIC: 0o700, unix.CEPH_SUPER_MAGIC: 0o700, unix.CODA_SUPER_MAGIC: 0o700,
		unix.EXT4_SUPER_MAGIC: 0, unix.BTRFS_SUPER_MAGIC: 0, unix.XFS_SUPER_MAGIC: 0, unix.TMPFS_MAGIC: 0, unix.OVERLAYFS_SUPER_MAGIC: 0, 0: 0,
	} {
		if got := restsOn(kind); got != want {
			t.Errorf("%#x: %o, want %o", kind, got, want)
		}
	}
	if got := rests(-1); got != 0 {
		t.Errorf("where nothing is known of the file system: %o", got)
	}
}
