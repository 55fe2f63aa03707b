package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxDescendants bounds the walk through a tree of processes that may be growing.
const maxDescendants = 1 << 16

// Descendants lists the processes that pid started, those that they started, and so on: the nearest
// first.
func Descendants(pid int) []int {
	list := Children(pid)
	for i := 0; i < len(list) && len(list) < maxDescendants; i++ {
		list = append(list, Children(list[i])...)
	}
	return list
}

// Children lists the processes that pid started and has not lost, oldest first. Needs a kernel with
// CONFIG_PROC_CHILDREN, as all distributions' have.
func Children(pid int) []int {
	if pid == 0 {
		return nil
	}
	var list []int
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}

// Runs reports whether a process has a thread that is neither stopped nor ended (proc_pid_stat(5)).
// The first thread may have ended before the others.
func Runs(pid int) bool {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		base := fmt.Sprintf("/proc/%d/task/%s/", pid, task.Name())
		stat, _ := os.ReadFile(base + "stat")
		state := bytes.TrimLeft(stat[bytes.LastIndexByte(stat, ')')+1:], " ")
		if len(state) > 0 && !bytes.ContainsRune([]byte("TtZX"), rune(state[0])) && !(state[0] == 'D' && stopPending(base)) {
			return true
		}
	}
	return false
}

// stopPending reports whether a thread that waits in the kernel will stop before it does anything
// else.
func stopPending(base string) bool {
	status, _ := os.ReadFile(base + "status")
	for line := range strings.Lines(string(status)) {
		if text, found := strings.CutPrefix(line, "ShdPnd:"); found {
			set, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			return err == nil && set&(1<<(unix.SIGSTOP-1)) != 0
		}
	}
	return false
}
