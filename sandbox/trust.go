package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// What runs outside, for every sandbox, is taken only from where nobody else could have put it.

// trustedOwner reports whether a program of this user's may be executed: root's and our own.
func trustedOwner(uid uint32) bool { return int(uid) == os.Getuid() || rootsOwn(uid) }

// rootsOwn reports whether a file of this user's is root's. In a user namespace without root, as in a rootless container,
// root's files seem to be the overflow user's.
func rootsOwn(uid uint32) bool {
	if uid == 0 {
		return true
	}
	overflow, _ := os.ReadFile("/proc/sys/kernel/overflowuid")
	uidMap, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.TrimSpace(string(overflow)) == fmt.Sprint(uid) &&
		!slices.Equal(strings.Fields(string(uidMap)), []string{"0", "0", "4294967295"})
}

// trustPlace refuses a program that somebody else could have put where it is: each directory on the way to it, by the path
// and behind its links, and the program itself, belong to an owner that counts, and others may not write there. In a sticky
// directory they may, but not replace what is not theirs.
func trustPlace(path string, owner func(uid uint32) bool) error {
	w, err := follow(Host{}, path)
	if err != nil {
		return fmt.Errorf("%s: %w", printable(path), err)
	}
	for _, link := range append(w.Links, Link{Path: w.Real}) {
		for at := link.Path; ; at = parent(at) {
			if err := trustObject(at, owner); err != nil {
				return err
			}
			if at == "/" {
				break
			}
		}
	}
	return nil
}

func trustObject(path string, owner func(uid uint32) bool) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	mode, uid := info.Mode(), info.Sys().(*syscall.Stat_t).Uid
	open := mode.Perm()&0o022 != 0 && mode&os.ModeSymlink == 0 && mode&(os.ModeDir|os.ModeSticky) != os.ModeDir|os.ModeSticky
	if open || !owner(uid) {
		return fmt.Errorf("%s belongs to user %d with mode %04o", printable(path), uid, mode.Perm())
	}
	return nil
}
