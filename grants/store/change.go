package store

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/clairun/clai-sandbox/grants"
)

// A Change is what one transaction does. A change that takes something away gives nothing: Put then holds only grants
// that are shown no more than before (stale now, or used once more).
type Change struct {
	Put     []grants.Grant
	Delete  []grants.Grant
	Records []grants.Record
	Audit   int64 // how far the audit file has come; 0: as before
	// Narrows says that the change takes away, so that the snapshot has to know it first.
	Narrows bool
	// OnlyThere puts nothing that is not there already: what was revoked meanwhile stays away.
	OnlyThere bool
}

// maxRecords bounds what is kept of requests that have ended.
const maxRecords = 10000

// Apply stores a change. After an error nothing of it is stored.
func (s *Store) Apply(c Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	narrows := c.Narrows || len(c.Delete) > 0
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
		if narrows {
			return s.snapshot.Write(s.dir, transaction)
		}
		return nil
	})
	if err != nil {
		s.restore(touched)
		return fmt.Errorf("store: %w", err)
	}
	if !narrows {
		// What was given is stored. Where the snapshot cannot be written, runs see that it is too old, and leave all out.
		_ = s.snapshot.Write(s.dir, transaction)
	}
	return nil
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

// restore takes back what a change that was not stored did to the snapshot. Where even that cannot be written, the
// snapshot is of a transaction that never was, and nobody uses it.
func (s *Store) restore(agents []string) {
	_ = s.db.View(func(tx *bbolt.Tx) error {
		if err := s.setAgents(tx, agents); err != nil {
			return err
		}
		return s.snapshot.Write(s.dir, uint64(tx.ID()))
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
		if err := s.Apply(Change{Put: folded.Grants, Narrows: true, OnlyThere: true}); err != nil {
			return Folded{}, err
		}
	}
	return folded, done()
}
