package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/clairun/clai-sandbox/grants"
)

// A Store is an open database. Its methods may be called at the same time.
type Store struct {
	dir string
	db  *bbolt.DB

	mu       sync.Mutex // held over a change: the snapshot follows the order of the transactions
	snapshot grants.Snapshot
	// unwritten says that the snapshot could not be written last time: there is none, or an old one
	// that nobody uses.
	unwritten bool
	// owed is what was taken away and could not be stored. It comes before anything else.
	owed []Change
}

// lockTimeout is how long Open waits for another process to close the database.
const lockTimeout = time.Second

// Open opens the database in the state directory, and makes it if there is none. The notices tell
// of a database that was damaged. The error says that nothing can be stored: another process has it
// open, the disk is read-only or full, or it was written by a later version.
func Open(dir string) (*Store, []grants.Notice, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("state directory: %w", err)
	}
	s := &Store{dir: dir}
	var notices []grants.Notice
	path := filepath.Join(dir, grants.DatabaseName)
	db, err := openChecked(path, hasSnapshot(dir))
	var damaged *DamagedError
	if errors.As(err, &damaged) {
		var notice grants.Notice
		if db, notice, err = replaceDamaged(dir, damaged); err == nil {
			notices = append(notices, notice)
		}
	}
	if err != nil {
		return nil, nil, explain(path, err)
	}
	s.db = db
	if err := syncDirectory(dir); err != nil { // a new file's name is to survive a power cut as its content does
		return nil, nil, errors.Join(explain(path, err), db.Close())
	}
	if err := s.fillSnapshot(); err != nil {
		return nil, nil, errors.Join(explain(path, err), db.Close())
	}
	if err := s.reserve(reservedPages); err != nil && !errors.Is(err, ErrNoRoom) {
		return nil, nil, errors.Join(explain(path, err), db.Close())
	}
	return s, notices, nil
}

// Close closes the database. The snapshot stays, for runs.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db.Close()
}

// OpenError means that nothing can be stored.
type OpenError struct {
	Path string
	Err  error
	Hint string
}

func (e *OpenError) Error() string { return fmt.Sprintf("open %s: %v", e.Path, e.Err) }
func (e *OpenError) Unwrap() error { return e.Err }

func explain(path string, err error) error {
	e := &OpenError{Path: path, Err: err}
	var newer *NewerError
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		e.Err, e.Hint = errors.New("another process has it open"), "is another gateway running?"
	case errors.As(err, &newer):
		e.Hint = "use the version that wrote it, or move the file away to begin anew"
	}
	return e
}

// fillSnapshot makes the snapshot from all that is stored.
func (s *Store) fillSnapshot() error {
	all, err := s.Grants()
	if err != nil {
		return err
	}
	byAgent := map[string][]grants.Grant{}
	for _, g := range all {
		byAgent[g.Agent] = append(byAgent[g.Agent], g)
	}
	for agent, list := range byAgent {
		if err := s.snapshot.Set(agent, list); err != nil {
			return err
		}
	}
	// On a full disk the one that is there may do: it is of this transaction, or nobody uses it.
	s.writeSnapshot(s.transaction())
	return nil
}

// Grants returns all that is stored, agent by agent.
func (s *Store) Grants() ([]grants.Grant, error) {
	var all []grants.Grant
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(grantsBucket).ForEachBucket(func(agent []byte) error {
			list, err := grantsOf(tx, string(agent))
			all = append(all, list...)
			return err
		})
	})
	return all, err
}

// Records returns what became of requests, the latest first.
func (s *Store) Records(limit int) ([]grants.Record, error) {
	list := []grants.Record{}
	err := s.db.View(func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(requestsBucket).Cursor()
		for key, value := cursor.Last(); key != nil && len(list) < limit; key, value = cursor.Prev() {
			var r grants.Record
			if err := decode(requestsBucket, key, value, &r); err != nil {
				return err
			}
			list = append(list, r)
		}
		return nil
	})
	return list, err
}

// Done returns the changes that are known by the names under which they were asked for, the oldest
// first.
func (s *Store) Done() ([]grants.Done, error) {
	var list []grants.Done
	err := s.db.View(func(tx *bbolt.Tx) error { return forEachDone(tx, func(d grants.Done) { list = append(list, d) }) })
	return list, err
}

func forEachDone(tx *bbolt.Tx, do func(grants.Done)) error {
	bucket := tx.Bucket(doneBucket)
	if bucket == nil {
		return nil
	}
	return bucket.ForEach(func(key, value []byte) error {
		var d grants.Done
		if err := decode(doneBucket, key, value, &d); err != nil {
			return err
		}
		do(d)
		return nil
	})
}

// AuditPosition is how far the audit file had come at the last change that it was told of.
func (s *Store) AuditPosition() (int64, error) {
	var at auditPosition
	err := s.db.View(func(tx *bbolt.Tx) error {
		value := tx.Bucket(auditBucket).Get(positionKey)
		if value == nil {
			return nil
		}
		return decode(auditBucket, positionKey, value, &at)
	})
	return at.Bytes, err
}

type auditPosition struct {
	Bytes int64 `json:"bytes"`
}

func syncDirectory(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}
