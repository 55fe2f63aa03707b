// Package processtest helps tests of what starts processes: to wait for them, to find them, and
// with directories that the sandbox's own do not cover.
package processtest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
)

// Directory is a directory that goes with the test. It is not below /tmp, which every sandbox has
// its own of: what is hidden must be hidden by the plan, not by chance.
func Directory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "clai-sandbox-test-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shuttest.RemoveAll(dir) })
	return dir
}

// Until waits until something is so.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10 s until %s", what)
		}
	}
}

// Naming are the processes of this machine with a word in their command line.
func Naming(word string) []string {
	var found []string
	dirs, _ := os.ReadDir("/proc")
	for _, dir := range dirs {
		if _, err := strconv.Atoi(dir.Name()); err != nil {
			continue
		}
		if args, err := os.ReadFile("/proc/" + dir.Name() + "/cmdline"); err == nil && bytes.Contains(args, []byte(word)) {
			found = append(found, dir.Name()+": "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}

// Descriptors counts what this process has open.
func Descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
