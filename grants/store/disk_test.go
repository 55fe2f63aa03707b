package store

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants"
)

// inOwnNamespace runs this binary in a role, in a mount namespace of its own where it may mount a
// small disk.
func inOwnNamespace(t *testing.T, role string) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), "STORE_TEST_ROLE="+role, "STORE_TEST_DIR="+t.TempDir())
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Skipf("this machine gives no user namespace to mount a small disk in: %v", err)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestAFullDisk(t *testing.T)     { inOwnNamespace(t, "small disk") }
func TestAReadOnlyDisk(t *testing.T) { inOwnNamespace(t, "read-only disk") }

// onSmallDisk fills a small disk with grants until no more go in. What was stored before stays, and
// what was refused is nowhere; once there is room again, everything goes on.
func onSmallDisk(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=700"); err != nil {
		return err
	}
	s, _, err := Open(dir)
	if err != nil {
		return err
	}
	stored := 0
	var full error
	for full == nil && stored < 10000 {
		if full = s.Apply(Change{Put: []grants.Grant{newGrant("main", fmt.Sprintf("g%05d", stored), "/a")}}); full == nil {
			stored++
		}
	}
	if !errors.Is(full, syscall.ENOSPC) {
		return fmt.Errorf("after %d: %v", stored, full)
	}
	check := func(s *Store, when string) error {
		all, err := s.Grants()
		if err != nil || len(all) != stored {
			return fmt.Errorf("%s: %d stored, want %d; %v", when, len(all), stored, err)
		}
		// The snapshot is complete, or not used.
		if list, err := grants.ReadSnapshot(dir, "main"); err == nil && len(list) != stored {
			return fmt.Errorf("%s: the snapshot shows %d, want %d", when, len(list), stored)
		}
		return nil
	}
	if err := check(s, "full"); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=8m"); err != nil {
		return err
	}
	s, notices, err := Open(dir)
	if err != nil || len(notices) > 0 {
		return fmt.Errorf("with room again: %v %+v", err, notices)
	}
	if err := s.Apply(Change{Put: []grants.Grant{newGrant("main", "last", "/a")}}); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	stored++
	if list, err := grants.ReadSnapshot(dir, "main"); err != nil || len(list) != stored {
		return fmt.Errorf("with room again: the snapshot shows %d, want %d; %v", len(list), stored, err)
	}
	return check(s, "with room again")
}

// onReadOnlyDisk makes the disk read-only under an open store, and opens one on a disk that is.
func onReadOnlyDisk(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32m,mode=700"); err != nil {
		return err
	}
	s, _, err := Open(dir)
	if err != nil {
		return err
	}
	if err := s.Apply(Change{Put: []grants.Grant{newGrant("main", "g1", "/a")}}); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return err
	}
	before, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	_, _, err = Open(dir)
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), filepath.Join(dir, grants.DatabaseName)) {
		return fmt.Errorf("a read-only disk is opened, or not named: %v", err)
	}
	after, err := os.ReadDir(dir)
	if err != nil || len(after) != len(before) {
		return fmt.Errorf("%d files, want %d; %v", len(after), len(before), err)
	}
	// Runs go on with what is stored.
	if list, err := grants.ReadSnapshot(dir, "main"); err != nil || len(list) != 1 {
		return fmt.Errorf("the snapshot shows %d; %w", len(list), err)
	}
	return nil
}
