package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants"
)

func TestTakingAwayNeedsNoRoom(t *testing.T)             { inOwnNamespace(t, "taking") }
func TestTakingAwayWhenNothingCanBeWritten(t *testing.T) { inOwnNamespace(t, "owing") }

// fill takes all of a disk, as a command in its workspace may, to the last byte.
func fill(dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, "ballast"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	for size := 1 << 16; size > 0; {
		if _, err := file.Write(make([]byte, size)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				return err
			}
			size /= 2
		}
	}
	return nil
}

// onDiskThatIsFilled takes everything away that was given on a disk that a command fills again
// after each step, with the store opened anew now and then.
func onDiskThatIsFilled(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		return err
	}
	s, _, err := Open(dir)
	if err != nil {
		return err
	}
	const many = 300
	left := map[string]grants.Grant{}
	for i := range many {
		g := newGrant([]string{"main", "other", "third"}[i%3], fmt.Sprintf("g%03d", i), fmt.Sprint("/p/", i))
		if err := s.Apply(Change{Put: []grants.Grant{g}, Records: []grants.Record{newRecord(g.ID)}, Audit: int64(i + 1)}); err != nil {
			return err
		}
		left[g.ID] = g
	}
	var queue []grants.Grant
	for _, g := range left {
		queue = append(queue, g)
	}
	for taken := 0; taken < len(queue); taken++ {
		g := queue[taken]
		if err := fill(dir); err != nil {
			return err
		}
		switch {
		case taken%50 == 49: // the next gateway
			if err := s.Close(); err != nil {
				return err
			}
			var notices []grants.Notice
			if s, notices, err = Open(dir); err != nil || len(notices) > 0 {
				return fmt.Errorf("opened on a full disk after %d: %v %v", taken, err, notices)
			}
		case taken == 120: // what gives comes to an end
			for i := 0; err == nil; i++ {
				more := newGrant("main", fmt.Sprintf("more%04d", i), fmt.Sprint("/more/", i))
				if err = s.Apply(Change{Put: []grants.Grant{more}}); err == nil {
					left[more.ID], queue = more, append(queue, more)
				}
				if i == 5000 {
					return errors.New("what gives goes on and on")
				}
			}
			if !errors.Is(err, ErrNoRoom) {
				return fmt.Errorf("what gives uses what is kept for taking away: %v", err)
			}
		}
		if err := s.Apply(Change{Delete: []grants.Grant{g}, Audit: int64(many + taken)}); err != nil {
			return fmt.Errorf("after %d: %w", taken, err)
		}
		delete(left, g.ID)
		if list, err := grants.ReadSnapshot(dir, g.Agent); err == nil {
			for _, shown := range list {
				if _, there := left[shown.ID]; !there {
					return fmt.Errorf("the snapshot shows %s, which was taken away", shown.ID)
				}
			}
		}
	}
	if all, err := s.Grants(); err != nil || len(all) != 0 {
		return fmt.Errorf("%d are left, %w", len(all), err)
	}
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		return err
	}
	if err := s.Apply(Change{Put: []grants.Grant{newGrant("main", "more", "/a")}}); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	if list, err := grants.ReadSnapshot(dir, "main"); err != nil || len(list) != 1 {
		return fmt.Errorf("with room again: %v %w", list, err)
	}
	return s.Close()
}

// onDiskThatRefuses takes away where nothing at all can be written: what was taken is not shown,
// nothing is given until it is stored, and it is stored when it can be.
func onDiskThatRefuses(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		return err
	}
	s, _, err := Open(dir)
	if err != nil {
		return err
	}
	one, two := newGrant("main", "g1", "/a"), newGrant("main", "g2", "/b")
	if err := s.Apply(Change{Put: []grants.Grant{one, two}}); err != nil {
		return err
	}
	// No writing beyond the first byte of a file; who is past that gets EFBIG. (A stand-in for a
	// disk that is at fault.)
	limit := unix.Rlimit{Cur: 1, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	var owed *OwedError
	if err := s.Apply(Change{Delete: []grants.Grant{one}}); !errors.As(err, &owed) {
		return fmt.Errorf("%v", err)
	}
	if list, err := grants.ReadSnapshot(dir, "main"); err == nil && len(list) != 0 {
		return fmt.Errorf("shown all the same: %v", list)
	}
	if err := s.Apply(Change{Put: []grants.Grant{newGrant("main", "g3", "/c")}}); !errors.As(err, &owed) {
		return fmt.Errorf("given before what was taken is stored: %v", err)
	}
	limit.Cur = unix.RLIM_INFINITY
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if err := s.Settle(); err != nil {
		return err
	}
	list, err := grants.ReadSnapshot(dir, "main")
	if err != nil || len(list) != 1 || list[0].ID != "g2" {
		return fmt.Errorf("%v %w", list, err)
	}
	return nil
}

// A directory in the place of one of our files keeps nobody from revoking.
func TestWhatStandsInTheSnapshotsPlaceIsSetAside(t *testing.T) {
	for _, name := range []string{grants.SnapshotName, grants.SnapshotName + ".new"} {
		dir := t.TempDir()
		s, _, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		g := newGrant("main", "g1", "/a")
		if err := s.Apply(Change{Put: []grants.Grant{g}}); err != nil {
			t.Fatal(err)
		}
		os.Remove(filepath.Join(dir, name))
		os.MkdirAll(filepath.Join(dir, name, "full"), 0o700)
		if err := s.Apply(Change{Delete: []grants.Grant{g}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if list, err := grants.ReadSnapshot(dir, "main"); err != nil || len(list) != 0 {
			t.Errorf("%s: %v %v", name, list, err)
		}
		s.Close()
		if kept, _ := filepath.Glob(filepath.Join(dir, name+".no-file-"+time.Now().UTC().Format("2006")+"*")); len(kept) != 1 {
			t.Errorf("%s: kept as %v", name, kept)
		}
	}
}
