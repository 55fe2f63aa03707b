package socket

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// maxGenerations bounds the parents that are followed, and maxLooks how often that is begun anew.
const (
	maxGenerations = 4096
	maxLooks       = 16
)

// errUnsettled means that the process and its parents changed each time that they were looked at.
var errUnsettled = errors.New("its parents change all the time")

// Descends reports whether a process is one of others or descends from one, by the parents that the kernel names now. A process whose parent has
// ended has another one; where that other is to be the same ancestor, the ancestor has made itself one for orphans (PR_SET_CHILD_SUBREAPER).
// What lies behind a parent that is hidden from this process (hidepid of proc(5)) is not known, and counts for none of them.
// An error means that it cannot be told: the process may have ended.
func Descends(pid int, ancestors ...int) (bool, error) {
	var before []int
	for range maxLooks {
		line, err := lineage(pid)
		if err != nil && len(line) <= 1 {
			return false, err // the process itself is gone
		}
		// Twice the same: no parent has ended between two looks, and given its number away.
		if err == nil && slices.Equal(line, before) {
			return slices.ContainsFunc(line, func(pid int) bool { return slices.Contains(ancestors, pid) }), nil
		}
		before = line
	}
	return false, errUnsettled
}

// lineage is a process and its parents, up to the first that has none here, or that is hidden.
func lineage(pid int) (line []int, err error) {
	for pid > 0 && len(line) < maxGenerations {
		line = append(line, pid)
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		switch {
		case err != nil && len(line) > 1 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH):
			return line, nil
		case err != nil:
			return line, err
		}
		// The name stands in parentheses and may hold anything.
		_, rest, _ := strings.Cut(string(text[max(strings.LastIndexByte(string(text), ')'), 0):]), " ")
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			return line, errUnsettled
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return line, err
		}
	}
	return line, nil
}
