package process

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox/links"
)

// What runs outside, for every sandbox, is taken only from where nobody else could have put it.

// TrustedOwner reports whether a program of this user's may be executed: root's and our own.
func TrustedOwner(uid uint32) bool { return int(uid) == os.Getuid() || RootsOwn(uid) }

// RootsOwn reports whether a file of this user's is root's. In a user namespace without root, as in
// a rootless container, root's files seem to be the overflow user's.
func RootsOwn(uid uint32) bool {
	if uid == 0 {
		return true
	}
	overflow, _ := os.ReadFile("/proc/sys/kernel/overflowuid")
	uidMap, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.TrimSpace(string(overflow)) == fmt.Sprint(uid) &&
		!slices.Equal(strings.Fields(string(uidMap)), []string{"0", "0", "4294967295"})
}

// TrustPlace refuses a program that somebody else could have put where it is: each directory on the
// way to it, by the path and behind its links, and the program itself, belong to an owner that
// counts, and others may not write there. In a sticky directory they may, but not replace what is
// not theirs.
func TrustPlace(path string, owner func(uid uint32) bool) error {
	w, err := links.Follow(links.Host{}, path)
	if err != nil {
		return fmt.Errorf("%s: %w", text.Name(path), err)
	}
	for _, link := range append(w.Links, links.Link{Path: w.Real}) {
		for at := link.Path; ; at = links.Parent(at) {
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
		return fmt.Errorf("%s belongs to user %d with mode %04o", text.Name(path), uid, mode.Perm())
	}
	return nil
}

// TrustProgram refuses a program that others could have replaced: it is executed outside the
// sandbox.
func TrustProgram(path string) error {
	if err := TrustPlace(path, TrustedOwner); err != nil {
		return fmt.Errorf("%w, so it is not executed", err)
	}
	return nil
}
