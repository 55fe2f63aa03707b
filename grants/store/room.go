package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants"
)

// What takes away must not need room that a command can take: it may be the one that loses
// something. So the database has blocks of its own behind the pages that are in use (fallocate(2)),
// more than any change that takes away writes, and what gives, or only counts, is refused before it
// would use them.

// reservedPages is more than a change that takes away writes: the way to one leaf in each of five
// buckets, and the list of free pages, which is one page for each 500 of them.
const reservedPages = 64

// ErrNoRoom means that a change would have used what is kept for taking away.
var ErrNoRoom = errors.New("the disk is full but for what is kept for revoking")

// reserve makes sure of the blocks behind the pages in use. A file system that keeps none is taken
// as it is.
func (s *Store) reserve(pages uint64) error {
	state, err := grants.ReadDatabaseState(s.path())
	if err != nil {
		return err
	}
	file, err := os.OpenFile(s.path(), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	err = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(state.Pages+pages)*state.PageSize)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	return &os.PathError{Op: "fallocate", Path: s.path(), Err: err}
}

func (s *Store) path() string { return filepath.Join(s.dir, grants.DatabaseName) }

// makeRoom gives the disk back what nobody needs to have: the snapshot, without which runs use
// nothing stored, word of what was used, and what gateways said.
func (s *Store) makeRoom() {
	_ = os.Remove(filepath.Join(s.dir, grants.SnapshotName))
	_ = os.Remove(filepath.Join(s.dir, grants.UsesName))
	for _, name := range []string{"gateway.log"} {
		_ = os.Truncate(filepath.Join(s.dir, name), 0)
	}
}
