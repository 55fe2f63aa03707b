package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// Kept lists the directories of the state that are an agent's: its homes, its layers, its sandbox
// workspaces.
func Kept(state, agent string) []string {
	list := []string{}
	for _, dir := range []string{homesOf(state, agent), layersOf(state, agent)} {
		if _, err := os.Lstat(dir); err == nil {
			list = append(list, dir)
		}
	}
	entries, _ := os.ReadDir(filepath.Join(state, sandboxesName))
	for _, entry := range entries {
		dir := filepath.Join(state, sandboxesName, entry.Name())
		if about, err := readAbout(dir); err == nil && about.Agent == agent && entry.Name()[0] != '.' {
			list = append(list, dir)
		}
	}
	return list
}

func layersOf(state, agent string) string { return filepath.Join(state, "layers", agent) }

// Purge removes what Kept lists, or nothing of it if a sandbox uses some. first is done when it is
// known that none does, and before anything is removed; if it fails, nothing is.
func Purge(state, agent string, first func() error) (removed []string, err error) {
	if err := profile.CheckAgent(agent); err != nil {
		return nil, err
	}
	list := Kept(state, agent)
	var locks []int
	defer func() {
		for _, lock := range locks {
			unix.Close(lock)
		}
	}()
	for _, dir := range list {
		for _, name := range locksOf(dir) {
			lock, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
			if err == unix.ENOENT {
				continue
			}
			if err == nil {
				locks = append(locks, lock)
				err = unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB)
			}
			if err != nil {
				return nil, fmt.Errorf("%s is in use, and nothing was removed: %w; end the sandboxes of agent %s first", profile.Printable(name), err, agent)
			}
		}
	}
	if err := first(); err != nil {
		return nil, err
	}
	for i, dir := range list {
		gone := filepath.Join(filepath.Dir(dir), fmt.Sprintf(".gone-%d-%d", os.Getpid(), i))
		if err := os.Rename(dir, gone); err != nil {
			return removed, err
		}
		removeTree(gone)
		if _, err := os.Lstat(gone); !errors.Is(err, fs.ErrNotExist) {
			return removed, fmt.Errorf("%s cannot be removed", profile.Printable(gone))
		}
		removed = append(removed, dir)
	}
	return removed, nil
}

// locksOf are the locks of a directory of an agent's: beside each home, in each layer, in a sandbox
// workspace's directory. What commands wrote is not looked at.
func locksOf(dir string) []string {
	kind := filepath.Base(filepath.Dir(dir))
	if kind == sandboxesName {
		return []string{filepath.Join(dir, lockName)}
	}
	var list []string
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		switch {
		case kind == "layers":
			list = append(list, filepath.Join(dir, entry.Name(), lockName))
		case strings.HasSuffix(entry.Name(), ".lock"):
			list = append(list, filepath.Join(dir, entry.Name()))
		}
	}
	return list
}
