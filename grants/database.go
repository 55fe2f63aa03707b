package grants

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"os"

	"golang.org/x/sys/unix"
)

// bbolt begins its file with two pages, and writes to one and the other in turn what its last
// transaction was. The layout is that of version 2, which all releases write: a page header of 16
// bytes, then magic, version, page size and flags (4 bytes each), the root bucket (16), the free
// list, the number of pages in use, the transaction (8 each), and the checksum of all these
// (FNV-1a).
const (
	boltMagic       = 0xED0CDAED
	boltVersion     = 2
	boltPageHeader  = 16
	boltPageSize    = 8
	boltRoot        = 16
	boltFreelist    = 32
	boltPages       = 40
	boltTransaction = 48
	boltChecksum    = 56
)

// A DatabaseState is what a bbolt file says about itself.
type DatabaseState struct {
	Transaction uint64 // the last that was completed
	Pages       uint64 // in use
	PageSize    int64
	Root        uint64 // the page at which everything begins
	Freelist    uint64 // the page that lists the free ones
}

// ReadDatabaseState reads the state past the lock of whoever has the database open.
func ReadDatabaseState(path string) (DatabaseState, error) {
	var state DatabaseState
	file, err := openOwn(path)
	if err != nil {
		return state, err
	}
	defer unix.Close(file)
	found := false
	second := int64(os.Getpagesize())
	for _, page := range []int64{0, 1} {
		meta := make([]byte, boltChecksum+8)
		if n, err := pread(file, meta, page*second+boltPageHeader); err != nil || n < len(meta) {
			continue
		}
		order := binary.NativeEndian
		hash := fnv.New64a()
		hash.Write(meta[:boltChecksum])
		if order.Uint32(meta) != boltMagic || order.Uint32(meta[4:]) != boltVersion || order.Uint64(meta[boltChecksum:]) != hash.Sum64() {
			continue
		}
		second = int64(order.Uint32(meta[boltPageSize:]))
		if transaction := order.Uint64(meta[boltTransaction:]); !found || transaction > state.Transaction {
			state = DatabaseState{transaction, order.Uint64(meta[boltPages:]), second, order.Uint64(meta[boltRoot:]), order.Uint64(meta[boltFreelist:])}
		}
		found = true
	}
	if !found {
		return state, errors.New("the database is damaged: it has no page that says which transaction was its last")
	}
	return state, nil
}
