package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"github.com/clairun/clai-sandbox/grants"
)

// A Change is what one transaction does. A change that takes something away gives nothing: Put then
// holds only grants that are shown no more than before (stale now, or used once more).
type Change struct {
	Put     []grants.Grant
	Delete  []grants.Grant
	Records []grants.Record
	Audit   int64        // how far the audit file has come; 0: as before
	Done    *grants.Done // under which name it was asked for, if under any
	// Narrows says that the change takes away, so that the snapshot has to know it first.
	Narrows bool
	// OnlyThere puts nothing that is not there already: what was revoked meanwhile stays away.
	OnlyThere bool
}

// maxRecords bounds what is kept of requests that have ended.
const maxRecords = 10000

// takes reports whether the change takes something away.
func (c Change) takes() bool { return c.Narrows || len(c.Delete) > 0 }

// An OwedError means that something was taken away and that this could not be stored. Until it is,
// no run uses anything stored, and nothing is given.
type OwedError struct{ Err error }

func (e *OwedError) Error() string { return "not stored yet: " + e.Err.Error() }
func (e *OwedError) Unwrap() error { return e.Err }

// Apply stores a change. After an error nothing of one that gives is stored. What takes away uses
// room that is kept for it; if even so it cannot be stored, the error is an *OwedError, and it
// comes first with the next change.
func (s *Store) Apply(c Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.takes() {
		if err := s.settle(); err != nil {
			return err
		}
		if err := s.reserve(2 * reservedPages); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		return s.write(c)
	}
	s.owed = append(s.owed, c)
	return s.settle()
}

// Settle stores what is owed, if anything is, and the snapshot, if it is not there.
func (s *Store) Settle() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settle()
}

// settle stores what was taken away.
func (s *Store) settle() error {
	for len(s.owed) > 0 {
		err := s.write(s.owed[0])
		if isFull(err) {
			s.makeRoom()
			err = s.write(s.owed[0])
		}
		if err != nil {
			_ = os.Remove(filepath.Join(s.dir, grants.SnapshotName)) // it shows what is taken away
			return &OwedError{err}
		}
		s.owed = s.owed[1:]
	}
	if s.unwritten {
		s.writeSnapshot(s.transaction())
	}
	return nil
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// transaction is the number of the database's last.
func (s *Store) transaction() (n uint64) {
	_ = s.db.View(func(tx *bbolt.Tx) error { n = uint64(tx.ID()); return nil })
	return n
}

// write makes a change in one transaction, and replaces the snapshot: before it, where it takes
// away, and else after it.
func (s *Store) write(c Change) error {
	touched := c.agents()
	var transaction uint64
	err := s.db.Update(func(tx *bbolt.Tx) error {
		transaction = uint64(tx.ID())
		if err := c.write(tx); err != nil {
			return err
		}
		if err := s.setAgents(tx, touched); err != nil {
			return err
		}
		if c.takes() {
			return s.withdrawSnapshot(transaction)
		}
		return nil
	})
	if err != nil {
		s.restore(touched)
		return fmt.Errorf("store: %w", err)
	}
	if !c.takes() || s.unwritten {
		// What was given is stored. Where the snapshot cannot be written, runs see that it is too
		// old, and leave all out.
		s.writeSnapshot(transaction)
	}
	return nil
}

// writeSnapshot replaces the snapshot, or remembers that it has to be.
func (s *Store) writeSnapshot(transaction uint64) {
	s.unwritten = s.snapshot.Write(s.dir, transaction) != nil
}

// withdrawSnapshot makes sure that runs do not see any more what is taken away: by a new snapshot,
// or by none.
func (s *Store) withdrawSnapshot(transaction uint64) error {
	if s.writeSnapshot(transaction); !s.unwritten {
		return nil
	}
	err := os.Remove(filepath.Join(s.dir, grants.SnapshotName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// agents are those whose grants the change touches.
func (c Change) agents() []string {
	var list []string
	for _, g := range c.Put {
		list = append(list, g.Agent)
	}
	for _, g := range c.Delete {
		list = append(list, g.Agent)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (c Change) write(tx *bbolt.Tx) error {
	n, err := readTotals(tx)
	if err != nil {
		return err
	}
	if err := c.writeGrants(tx, &n.Grants); err != nil {
		return err
	}
	if err := c.writeRecords(tx, &n.Records); err != nil {
		return err
	}
	if err := c.writeDone(tx); err != nil {
		return err
	}
	if c.Audit != 0 {
		if err := put(tx.Bucket(auditBucket), auditBucket, positionKey, auditPosition{c.Audit}); err != nil {
			return err
		}
	}
	return put(tx.Bucket(metaBucket), metaBucket, totalsKey, n)
}

func (c Change) writeGrants(tx *bbolt.Tx, total *int) error {
	all := tx.Bucket(grantsBucket)
	for _, g := range c.Put {
		if c.OnlyThere && (all.Bucket([]byte(g.Agent)) == nil || all.Bucket([]byte(g.Agent)).Get([]byte(g.ID)) == nil) {
			continue
		}
		if !g.Access.Grantable() { // what is of a domain is stored elsewhere
			return fmt.Errorf("grant %s is of no path", g.ID)
		}
		bucket, err := all.CreateBucketIfNotExists([]byte(g.Agent))
		if err != nil {
			return err
		}
		if bucket.Get([]byte(g.ID)) == nil {
			*total++
		}
		if err := put(bucket, grantPlace(g.Agent), []byte(g.ID), g); err != nil {
			return err
		}
	}
	for _, g := range c.Delete {
		bucket := all.Bucket([]byte(g.Agent))
		if bucket == nil || bucket.Get([]byte(g.ID)) == nil {
			continue
		}
		*total--
		if err := bucket.Delete([]byte(g.ID)); err != nil {
			return err
		}
		if key, _ := bucket.Cursor().First(); key == nil {
			if err := all.DeleteBucket([]byte(g.Agent)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c Change) writeRecords(tx *bbolt.Tx, total *int) error {
	bucket := tx.Bucket(requestsBucket)
	for _, r := range c.Records {
		n, err := bucket.NextSequence()
		if err != nil {
			return err
		}
		if err := put(bucket, requestsBucket, binary.BigEndian.AppendUint64(nil, n), r); err != nil {
			return err
		}
		*total++
		if n > maxRecords {
			*total--
			if err := bucket.Delete(binary.BigEndian.AppendUint64(nil, n-maxRecords)); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxDone bounds how many changes are known by their names.
const maxDone = 1000

func (c Change) writeDone(tx *bbolt.Tx) error {
	if c.Done == nil {
		return nil
	}
	bucket, err := tx.CreateBucketIfNotExists(doneBucket)
	if err != nil {
		return err
	}
	n, err := bucket.NextSequence()
	if err != nil {
		return err
	}
	if n > maxDone {
		if err := bucket.Delete(binary.BigEndian.AppendUint64(nil, n-maxDone)); err != nil {
			return err
		}
	}
	return put(bucket, doneBucket, binary.BigEndian.AppendUint64(nil, n), *c.Done)
}

// setAgents makes the snapshot's part about some agents as the transaction has it.
func (s *Store) setAgents(tx *bbolt.Tx, agents []string) error {
	for _, agent := range agents {
		list, err := grantsOf(tx, agent)
		if err == nil {
			err = s.snapshot.Set(agent, list)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// restore takes back what a change that was not stored did to the snapshot. Where even that cannot
// be written, the snapshot is of a transaction that never was, and nobody uses it.
func (s *Store) restore(agents []string) {
	_ = s.db.View(func(tx *bbolt.Tx) error {
		err := s.setAgents(tx, agents)
		if err == nil && len(s.owed) == 0 {
			s.writeSnapshot(uint64(tx.ID()))
		}
		return err
	})
}

// Folded is what CountUses made of the word that runs left.
type Folded struct {
	Grants []grants.Grant // that were used, or found changed
	Stale  []grants.Grant // those of them that are stale now and were not before
}

// CountUses stores what runs wrote into the file of uses, and empties it.
func (s *Store) CountUses(now time.Time) (Folded, error) {
	uses, done, err := takeUses(s.dir)
	if err != nil || len(uses) == 0 {
		return Folded{}, err
	}
	all, err := s.Grants()
	if err != nil {
		return Folded{}, err
	}
	byID := make(map[string]*grants.Grant, len(all))
	for i := range all {
		byID[all[i].ID] = &all[i]
	}
	var folded Folded
	touched := map[string]bool{}
	for _, use := range uses {
		g := byID[use.Grant]
		if g == nil {
			continue
		}
		touched[g.ID] = true
		switch {
		case use.Stale && g.Stale == "":
			g.Stale = "it changed since it was granted"
			folded.Stale = append(folded.Stale, *g)
		case !use.Stale:
			g.Uses++
			g.LastUsedAtUnixMs = max(g.LastUsedAtUnixMs, min(use.AtUnixMs, now.UnixMilli()))
			if !g.Object.Exists() || g.Object.Born+g.Object.Handle == "" && g.Object.Same(use.Object) {
				g.Object = use.Object // what came to stand there, or is known better now, and from now on must
			}
		}
	}
	for id := range touched {
		folded.Grants = append(folded.Grants, *byID[id])
	}
	if len(folded.Grants) > 0 {
		if err := s.reserve(2 * reservedPages); err != nil && len(folded.Stale) == 0 {
			return Folded{}, err // counting can wait
		}
		if err := s.Apply(Change{Put: folded.Grants, Narrows: true, OnlyThere: true}); err != nil {
			return Folded{}, err
		}
	}
	return folded, done()
}
