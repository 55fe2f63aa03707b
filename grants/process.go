package grants

import (
	"fmt"
	"os"
	"strings"
)

// StartOf is when a process was started, in the kernel's own count (proc_pid_stat(5)), or empty if
// there is none: with the number, it names one process among all.
func StartOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name stands in parentheses and may hold anything.
	_, rest, _ := strings.Cut(string(text[max(strings.LastIndexByte(string(text), ')'), 0):]), " ")
	fields := strings.Fields(rest)
	const state, start = 0, 19
	if len(fields) <= start || fields[state] == "Z" {
		return ""
	}
	return fields[start]
}
