package socket

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxGenerations bounds the parents that are followed, and maxLooks how often that is begun anew.
const (
	maxGenerations = 256
	maxLooks       = 16
)

var (
	// errUnsettled means that the process and its parents changed each time that they were looked
	// at.
	errUnsettled = errors.New("its parents change all the time")
	// errEndless means that there are more of them than are followed: whoever adds some, hides none
	// of those behind them.
	errEndless = errors.New("it has too many parents")
	// errHidden means that a process of which only the number is known has a parent that is not
	// told.
	errHidden = errors.New("its parent is hidden")
)

// Descends reports whether a process is one of others or descends from one, by the parents that the
// kernel names now. A process whose parent has ended has another one; where that other is to be the
// same ancestor, the ancestor has made itself one for orphans (PR_SET_CHILD_SUBREAPER). What lies
// behind a parent that is hidden from this process (hidepid of proc(5), before Linux 6.13) is not
// known, and counts for none of them. An error means that it cannot be told: the process may have
// ended.
func Descends(pid int, ancestors ...int) (bool, error) { return descends(pid, ParentOf, ancestors) }

func descends(pid int, parentOf func(int) (int, error), ancestors []int) (bool, error) {
	var before []int
	for range maxLooks {
		line, err := lineage(pid, parentOf)
		if err == errEndless || err != nil && len(line) <= 1 {
			return false, err // or the process itself is gone
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
func lineage(pid int, parentOf func(int) (int, error)) (line []int, err error) {
	for pid > 0 {
		if len(line) == maxGenerations {
			return line, errEndless
		}
		line = append(line, pid)
		switch pid, err = parentOf(pid); {
		case err == errHidden && len(line) > 1:
			return line, nil
		case err != nil:
			return line, err
		}
	}
	return line, nil
}

// ParentOf is the number of a process's parent; 0: it has none here.
func ParentOf(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission):
		return hiddenParentOf(pid)
	case err != nil: // such as too many open files, which says nothing about the process
		return 0, err
	}
	// The name stands in parentheses and may hold anything.
	_, rest, _ := strings.Cut(string(text[max(strings.LastIndexByte(string(text), ')'), 0):]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0, errUnsettled
	}
	return strconv.Atoi(fields[1])
}

// hiddenParentOf asks about a process that /proc does not show: it has ended, or is another user's,
// or lets nobody trace it.
func hiddenParentOf(pid int) (int, error) {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(process)
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_PID}
	switch err := unix.IoctlPidfdInfo(process, &info); err {
	case nil:
		return int(info.Ppid), nil
	case unix.ESRCH:
		return 0, err
	}
	return 0, errHidden // before Linux 6.13
}
