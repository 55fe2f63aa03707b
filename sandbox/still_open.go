package sandbox

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/mounts"
)

// maxHolders bounds how many processes are named.
const maxHolders = 8

// stillOpen finds the processes inside that still have a place of their own in a mount that is not
// there any more: as working directory, as an open file or directory. Unless files are locked, they
// can reach from it what lies below. init is pid 1 inside, by its number outside; there are the
// mounts that were there when the last one was taken away.
func stillOpen(init int, processes []int, there map[uint64]bool, locked bool) []Notice {
	can := "what it has open stays open until it ends"
	if !locked {
		can = "and can read what lies there until it ends"
	}
	all := sync.OnceValue(func() map[uint64]bool { return mountsOf("self", strconv.Itoa(init)) })
	known := func(id uint64) bool { return there[id] || all()[id] }
	var notices []Notice
	for _, pid := range processes {
		place := heldBy(pid, known)
		if place == "" {
			continue
		}
		if len(notices) == maxHolders {
			return append(notices, Notice{Kind: NoticeHeld, Text: "more processes inside hold what was taken away"})
		}
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		notices = append(notices, Notice{Kind: NoticeHeld, Path: place, Text: fmt.Sprintf("process %d (%s) inside still holds %s, which was taken away: %s",
			pid, printable(strings.TrimSpace(string(name))), printable(place), can)})
	}
	return notices
}

// heldBy is a place that a process holds in a mount that is in none of the namespaces.
func heldBy(pid int, known func(id uint64) bool) string {
	base := fmt.Sprintf("/proc/%d/", pid)
	names := []string{"cwd", "root"}
	open, _ := os.ReadDir(base + "fd")
	for _, entry := range open {
		names = append(names, "fd/"+entry.Name())
	}
	for _, name := range names {
		var info unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, base+name, 0, unix.STATX_MNT_ID|unix.STATX_TYPE, &info)
		kind := info.Mode & unix.S_IFMT
		if err != nil || info.Mask&unix.STATX_MNT_ID == 0 || kind != unix.S_IFREG && kind != unix.S_IFDIR || known(info.Mnt_id) {
			continue
		}
		place, err := os.Readlink(base + name)
		if err != nil || strings.HasPrefix(place, "/memfd:") {
			continue
		}
		return place
	}
	return ""
}

// mountsOf are the numbers of the mounts in the namespaces of processes.
func mountsOf(processes ...string) map[uint64]bool {
	all := map[uint64]bool{}
	for _, process := range processes {
		ids, _ := mounts.IDs(process)
		maps.Copy(all, ids)
	}
	return all
}

// endWriters ends the processes inside that have a file of a mount open for writing: as long as one
// has, the kernel does not make the mount read-only.
func endWriters(a *attempt, m mounts.Mounted) (notices []Notice) {
	a.process.While(func(int) {
		for _, pid := range a.processes() {
			if !writesTo(pid, m.ID) {
				continue
			}
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if unix.Kill(pid, unix.SIGKILL) == nil && len(notices) < maxHolders {
				notices = append(notices, Notice{Kind: NoticeHeld, Path: m.Path, Text: fmt.Sprintf("process %d (%s) inside was ended: it had a file open for writing in %s, which it may not write any more",
					pid, printable(strings.TrimSpace(string(name))), printable(m.Path))})
			}
		}
	})
	return notices
}

// writesTo reports whether a process has a file of a mount open for writing.
func writesTo(pid int, mount uint64) bool {
	base := fmt.Sprintf("/proc/%d/fdinfo/", pid)
	open, _ := os.ReadDir(base)
	for _, entry := range open {
		text, _ := os.ReadFile(base + entry.Name())
		var flags, id uint64
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(line, ":")
			switch value = strings.TrimSpace(value); key {
			case "flags":
				flags, _ = strconv.ParseUint(value, 8, 64)
			case "mnt_id":
				id, _ = strconv.ParseUint(value, 10, 64)
			}
		}
		if id == mount && flags&unix.O_PATH == 0 && flags&unix.O_ACCMODE != unix.O_RDONLY {
			return true
		}
	}
	return false
}
