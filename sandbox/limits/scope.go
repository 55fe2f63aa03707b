package limits

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

// A user's own systemd has cgroups that are the user's, but a process that came in by ssh or on a
// console stands beside them, and only systemd may move it there. So where a limit takes a cgroup,
// this process asks to be moved into a transient scope, as systemd-run --user --scope does for what
// it runs. The scope goes when this process ends.

const (
	// scopeTimeout bounds the wait for systemd.
	scopeTimeout = 2 * time.Second
	systemBusctl = "/usr/bin/busctl"
	// scopePrefix begins the scopes' names, as the XDG conventions have it. It is not Prefix: they
	// are systemd's.
	scopePrefix = "app-clai-sandbox-"
)

// Reach is places, with those that a scope would open up. scoped says that it takes one.
func (t Tree) Reach(limits profile.Limits) (places map[profile.Limit]Place, scoped bool) {
	places = t.places(limits)
	offered := map[profile.Limit]Place{}
	for _, c := range cgroupLimits {
		if limits.Of(c.limit) > 0 && t.userManagerHas(c.controller) {
			offered[c.limit] = Place{Dir: t.userManager(), Version: 2}
			_, held := places[c.limit]
			scoped = scoped || !held && c.limit != profile.LimitProcesses // which the rlimit holds as well
		}
	}
	if scoped && t.offersScope() {
		return offered, true
	}
	return places, false
}

// userManager is the cgroup of the caller's own systemd.
func (t Tree) userManager() string {
	return filepath.Join(t.Root, t.userSlice(), fmt.Sprintf("user@%d.service", t.uid))
}

func (t Tree) userSlice() string { return fmt.Sprintf("/user.slice/user-%d.slice", t.uid) }

func (t Tree) userManagerHas(controller string) bool {
	content, _ := os.ReadFile(filepath.Join(t.userManager(), "cgroup.controllers"))
	for name := range strings.FieldsSeq(string(content)) {
		if name == controller {
			return true
		}
	}
	return false
}

// offersScope reports whether systemd would move this process, and whether that takes it out of no
// limit.
func (t Tree) offersScope() bool {
	own, slice := t.unified(), t.userSlice()
	if !strings.HasPrefix(own, slice+"/") || !writable(t.userManager()) {
		return false
	}
	var left bounds
	for p := own; p != slice; p = filepath.Dir(p) {
		if !left.narrow(filepath.Join(t.Root, p)) || left != (bounds{}) {
			return false
		}
	}
	return t.busctl != "" && isSocketOf(t.uid, filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "bus"))
}

// unified is the launcher's own cgroup of version 2, or empty.
func (t Tree) unified() string {
	content, _ := os.ReadFile(t.Membership)
	for line := range strings.Lines(string(content)) {
		if path, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); found && filepath.IsAbs(path) && filepath.Clean(path) == path {
			return path
		}
	}
	return ""
}

// isSocketOf reports whether path is a socket that belongs to a user.
func isSocketOf(uid int, path string) bool {
	info, err := os.Lstat(path)
	return err == nil && filepath.IsAbs(path) && info.Mode()&os.ModeSocket != 0 && int(info.Sys().(*syscall.Stat_t).Uid) == uid
}

// enterScope has systemd move this process into a new scope, and returns when it is there.
func (t Tree) enterScope() error {
	name := fmt.Sprintf("%s%d-%x.scope", scopePrefix, os.Getpid(), time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(context.Background(), scopeTimeout)
	defer cancel()
	said := process.KeepAtMost(1 << 10)
	cmd := exec.CommandContext(ctx, t.busctl, "--user", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
		"org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", "7",
		"PIDs", "au", "1", strconv.Itoa(os.Getpid()),
		"Description", "s", "clai-sandbox run",
		"CollectMode", "s", "inactive-or-failed", // nothing of it stays
		"MemoryAccounting", "b", "true", "TasksAccounting", "b", "true", "CPUWeight", "t", "100", // the cgroup above passes these controllers on
		"TasksMax", "t", strconv.FormatUint(math.MaxUint64, 10), // or it would be the user's DefaultTasksMax, which nobody asked for
		"0")
	cmd.Env = []string{"XDG_RUNTIME_DIR=" + os.Getenv("XDG_RUNTIME_DIR")} // the bus of this user that was looked at, and no other
	cmd.Stderr, cmd.WaitDelay = said, time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", t.busctl, err, text.Name(firstLine(said.String())))
	}
	for !strings.HasSuffix(t.unified(), "/"+name) {
		if ctx.Err() != nil {
			return fmt.Errorf("systemd made no scope in %v", scopeTimeout)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// Ready is places, after this process has moved where it must to have them.
func (t Tree) Ready(limits profile.Limits) (map[profile.Limit]Place, error) {
	places, scoped := t.Reach(limits)
	if !scoped {
		return places, nil
	}
	if err := t.enterScope(); err != nil {
		return nil, err
	}
	if places = t.places(limits); len(places) == 0 {
		return nil, errors.New("no cgroup can be made beside it")
	}
	return places, nil
}

// firstLine bounds what a program said.
func firstLine(said string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	return line[:min(len(line), 500)]
}
