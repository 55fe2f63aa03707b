package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/aside"
)

// DamagedError means that the database cannot be trusted as a whole, so that nothing in it is.
type DamagedError struct{ Err error }

func (e *DamagedError) Error() string { return "the database is damaged: " + e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

func hasSnapshot(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, grants.SnapshotName))
	return err == nil
}

// openChecked opens the database, brings its schema up to date, and reads everything in it once.
// The structure is checked before; should something of it be wrong all the same, a fault on the
// mapped file is caught here.
func openChecked(path string, hadSnapshot bool) (db *bbolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			// What was opened stays so until this process ends: its lock is on the file that is now
			// moved away.
			db, err = nil, &DamagedError{fmt.Errorf("%v", r)}
		}
	}()
	if err := checkFile(path, hadSnapshot); err != nil {
		return nil, err
	}
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		if isDamage(err) {
			err = &DamagedError{err}
		}
		return nil, err
	}
	if err = migrate(db, migrations); err == nil {
		err = readAll(db)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

func isDamage(err error) bool {
	return errors.Is(err, berrors.ErrInvalid) || errors.Is(err, berrors.ErrVersionMismatch) || errors.Is(err, berrors.ErrChecksum)
}

// checkFile looks at a file before bbolt does.
func checkFile(path string, hadSnapshot bool) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		if hadSnapshot { // bbolt would take it for a new one
			return &DamagedError{errors.New("it is empty")}
		}
		return nil
	}
	if err := checkPages(path); err != nil {
		var unreadable *fs.PathError
		if errors.As(err, &unreadable) {
			return err
		}
		return &DamagedError{err}
	}
	return nil
}

// readAll reads every value once. The totals find a page that lost some.
func readAll(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{grantsBucket, requestsBucket, auditBucket} {
			if tx.Bucket(name) == nil {
				return &DamagedError{fmt.Errorf("it has no %s", name)}
			}
		}
		err := tx.Bucket(grantsBucket).ForEach(func(agent, value []byte) error {
			if value != nil {
				return &DamagedError{errors.New("a value stands among the agents")}
			}
			_, err := grantsOf(tx, string(agent))
			return err
		})
		if err != nil {
			return err
		}
		err = tx.Bucket(requestsBucket).ForEach(func(key, value []byte) error {
			return decode(requestsBucket, key, value, &grants.Record{})
		})
		if err != nil {
			return err
		}
		if err := forEachDone(tx, func(grants.Done) {}); err != nil {
			return err
		}
		err = tx.Bucket(auditBucket).ForEach(func(key, value []byte) error {
			return decode(auditBucket, key, value, &auditPosition{})
		})
		if err != nil {
			return err
		}
		return checkTotals(tx)
	})
}

// replaceDamaged keeps the damaged database under a dated name and begins a new one with what the
// snapshot has.
func replaceDamaged(dir string, damaged *DamagedError) (*bbolt.DB, grants.Notice, error) {
	path := filepath.Join(dir, grants.DatabaseName)
	saved, snapshotErr := grants.ReadWholeSnapshot(dir)
	kept, err := aside.Put(path, "damaged", time.Now())
	if err != nil {
		return nil, grants.Notice{}, err
	}
	db, err := openChecked(path, false)
	if err != nil {
		return nil, grants.Notice{}, err
	}
	text := fmt.Sprintf("%v; it is kept as %s", damaged, profile.Printable(kept))
	if snapshotErr == nil {
		err = db.Update(func(tx *bbolt.Tx) error { return Change{Put: saved}.write(tx) })
		text += fmt.Sprintf(", and %d grants were taken over from the snapshot: look through them with clai-sandbox grants list", len(saved))
	} else {
		text += fmt.Sprintf(", and no grants are stored any more (snapshot: %v)", snapshotErr)
	}
	if err != nil {
		db.Close()
		return nil, grants.Notice{}, err
	}
	return db, grants.Notice{Kind: grants.NoticeStore, Path: kept, Text: text}, nil
}
