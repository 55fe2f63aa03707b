package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
)

// A cgroup counts what all processes of a sandbox take together, which an rlimit cannot. One is
// made for a run with a limit on memory or processes, next to the launcher's own (version 2, where
// the parent has been delegated to the caller) or in it (version 1, which is root's), and removed
// after the run. Nothing inside can leave it: /sys is read-only there.

// cgroupLimits are the limits that a cgroup can hold, by the controller that does.
var cgroupLimits = []struct {
	limit      profile.Limit
	controller string
}{
	{profile.LimitMemory, "memory"},
	{profile.LimitProcesses, "pids"},
	{profile.LimitCPUPercent, "cpu"},
}

// A Tree is where the cgroups are, which are the launcher's own, and who makes others.
type Tree struct {
	Root, Membership string
	uid              int
	busctl           string // the program that asks systemd, or empty
}

// Host is this machine's.
func Host() Tree {
	return Tree{"/sys/fs/cgroup", "/proc/self/cgroup", os.Getuid(), systemBusctl}
}

// A Place is a cgroup in which another can be made.
type Place struct {
	Dir     string
	Version int
	// bounds are the limits of the cgroups that a process leaves on its way from the launcher's
	// own.
	bounds bounds
}

// bounds are limits that the new cgroup gets, whatever the plan says, or lets be: nobody asked for
// more than the launcher itself may take. 0 is none.
type bounds struct{ memory, processes int64 }

// places finds for each of the limits that are set a place where a new cgroup would hold it. Those
// of version 2 are one: a process is in one cgroup of that version.
func (t Tree) places(limits profile.Limits) map[profile.Limit]Place {
	var controllers []string
	byController := map[string]profile.Limit{}
	for _, c := range cgroupLimits {
		if limits.Of(c.limit) > 0 {
			controllers = append(controllers, c.controller)
			byController[c.controller] = c.limit
		}
	}
	if controllers == nil {
		return nil
	}
	text, err := os.ReadFile(t.Membership)
	if err != nil {
		return nil
	}
	found := map[profile.Limit]Place{}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		names, path, _ := strings.Cut(rest, ":")
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			continue // "/.." is a cgroup outside of the launcher's cgroup namespace
		}
		if names == "" {
			place, held := t.delegated(path, controllers)
			for _, c := range held {
				found[byController[c]] = place
			}
			continue
		}
		for _, c := range controllers {
			if dir := filepath.Join(t.Root, c, path); slices.Contains(strings.Split(names, ","), c) && writable(dir) {
				found[byController[c]] = Place{Dir: dir, Version: 1}
			}
		}
	}
	return found
}

// delegated finds the nearest cgroup of version 2, at or above the launcher's own, that passes the
// controllers on to what is made in it, and that the caller may move processes within. If none has
// all, one that has the first of them.
func (t Tree) delegated(path string, controllers []string) (Place, []string) {
	for ; len(controllers) > 0; controllers = controllers[:len(controllers)-1] {
		place := Place{Version: 2}
		for p := path; ; p = filepath.Dir(p) {
			place.Dir = filepath.Join(t.Root, p)
			passed, err := os.ReadFile(filepath.Join(place.Dir, "cgroup.subtree_control"))
			lacks := func(c string) bool { return !slices.Contains(strings.Fields(string(passed)), c) }
			needed := append(place.bounds.controllers(), controllers...)
			if err == nil && !slices.ContainsFunc(needed, lacks) && writable(place.Dir) {
				return place, controllers
			}
			if p == "/" || !place.bounds.narrow(place.Dir) {
				break
			}
		}
	}
	return Place{}, nil
}

// controllers are those that the bounds take.
func (b bounds) controllers() (list []string) {
	for _, c := range cgroupLimits {
		if b.byLimit()[c.limit] > 0 {
			list = append(list, c.controller)
		}
	}
	return list
}

// uncarried are the files of a cgroup's other limits, and what is in them where there is none.
var uncarried = map[string]string{"memory.high": "max", "memory.swap.max": "max", "cpu.max": "max", "io.max": "", "cpuset.cpus": "", "cpuset.mems": ""}

// narrow adds the limits of a cgroup that is left. It reports false if it has one that cannot be
// taken along.
func (b *bounds) narrow(dir string) bool {
	first := func(file string) string { // the first word
		text, _ := os.ReadFile(filepath.Join(dir, file))
		word, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		return word
	}
	for file, none := range uncarried {
		if word := first(file); word != none && word != "" {
			return false
		}
	}
	for file, bound := range map[string]*int64{"memory.max": &b.memory, "pids.max": &b.processes} {
		n, err := strconv.ParseInt(first(file), 10, 64)
		if err == nil && (*bound == 0 || n < *bound) {
			*bound = max(n, 1)
		}
	}
	return true
}

func (b bounds) byLimit() map[profile.Limit]int64 {
	return map[profile.Limit]int64{profile.LimitMemory: b.memory, profile.LimitProcesses: b.processes}
}

// amounts are a plan's limits as the new cgroup gets them.
func (b bounds) amounts(limits profile.Limits) profile.Limits {
	for limit, bound := range b.byLimit() {
		if amount := &limits.Amounts[limit]; bound > 0 && (*amount == 0 || bound < *amount) {
			*amount = bound
		}
	}
	return limits
}

// writable reports whether the caller may make a cgroup in dir and move processes between those
// below it.
func writable(dir string) bool {
	return unix.Access(dir, unix.W_OK|unix.X_OK) == nil && unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) == nil
}

// settings are the files of a new cgroup and what is written into them, in this order.
func settings(limit profile.Limit, version int, amount int64) []setting {
	n := strconv.FormatInt(amount, 10)
	switch {
	case limit == profile.LimitProcesses:
		return []setting{{"pids.max", n, false}}
	case limit == profile.LimitCPUPercent:
		period, quota := strconv.Itoa(cpuPeriod), strconv.FormatInt(amount*cpuPeriod/100, 10)
		if version == 1 {
			return []setting{{"cpu.cfs_period_us", period, false}, {"cpu.cfs_quota_us", quota, false}}
		}
		return []setting{{"cpu.max", quota + " " + period, false}}
	case version == 1:
		return []setting{{"memory.limit_in_bytes", n, false}, {"memory.memsw.limit_in_bytes", n, true}}
	}
	// All of the sandbox ends, not one process of it that the kernel picks: half a command is worse
	// than none.
	return []setting{{"memory.max", n, false}, {"memory.swap.max", "0", true}, {"memory.oom.group", "1", true}}
}

// cpuPeriod is the time, in microseconds, in which a sandbox gets its share of the processors.
const cpuPeriod = 100_000

type setting struct {
	file, value string
	optional    bool // not every kernel has it
}

// A Cgroup holds one sandbox: a directory in each hierarchy that does.
type Cgroup struct {
	dirs  []string
	Holds map[profile.Limit]Place // with the new directory
	// amounts are what it holds: the plan's, or less where the launcher itself is held to less.
	amounts profile.Limits
}

// Prefix begins the names of our cgroups.
const Prefix = "clai-sandbox-"

// NewCgroup makes a cgroup with limits. Without places there is none.
func NewCgroup(places map[profile.Limit]Place, limits profile.Limits) (*Cgroup, error) {
	if len(places) == 0 {
		return nil, nil
	}
	name := fmt.Sprintf("%s%d-%x", Prefix, os.Getpid(), time.Now().UnixNano())
	g := &Cgroup{Holds: map[profile.Limit]Place{}, amounts: limits}
	for limit, place := range withBounds(places) {
		dir := filepath.Join(place.Dir, name)
		if !slices.Contains(g.dirs, dir) {
			sweep(place.Dir)
			if err := unix.Mkdir(dir, 0o755); err != nil {
				g.Remove()
				return nil, &fs.PathError{Op: "mkdir", Path: dir, Err: err}
			}
			g.dirs = append(g.dirs, dir)
		}
		g.Holds[limit] = Place{Dir: dir, Version: place.Version}
		g.amounts = place.bounds.amounts(g.amounts)
		if err := configure(dir, settings(limit, place.Version, g.amounts.Of(limit))); err != nil {
			g.Remove()
			return nil, err
		}
	}
	return g, nil
}

// withBounds adds the limits that nobody set but that the launcher itself has in the cgroups that a
// process leaves.
func withBounds(places map[profile.Limit]Place) map[profile.Limit]Place {
	all := maps.Clone(places)
	for _, place := range places {
		for limit, bound := range place.bounds.byLimit() {
			if _, set := all[limit]; bound > 0 && !set {
				all[limit] = place
			}
		}
	}
	return all
}

func configure(dir string, settings []setting) error {
	for _, s := range settings {
		err := write(dir, s.file, s.value)
		if err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

func write(dir, file, value string) error {
	path := filepath.Join(dir, file)
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		d := descriptor.File(fd)
		err = d.Write([]byte(value))
		d.Close()
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func (g *Cgroup) has(limit profile.Limit) bool {
	if g == nil {
		return false
	}
	_, has := g.Holds[limit]
	return has
}

// Amount is how much of it the cgroup allows, or 0.
func (g *Cgroup) Amount(limit profile.Limit) int64 {
	if !g.has(limit) {
		return 0
	}
	return g.amounts.Of(limit)
}

// Join moves a process into the cgroup. What it starts from then on is in it, too.
func (g *Cgroup) Join(pid int) error {
	if g == nil {
		return nil
	}
	for _, dir := range g.dirs {
		if err := write(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// Reached counts how often the limit was: processes that were killed for memory, processes that
// were not started.
func (g *Cgroup) Reached(limit profile.Limit) int64 {
	if !g.has(limit) {
		return 0
	}
	place := g.Holds[limit]
	file, key := "memory.events", "oom_kill"
	switch {
	case limit == profile.LimitProcesses:
		file, key = "pids.events", "max"
	case place.Version == 1:
		file = "memory.oom_control"
	}
	text, err := os.ReadFile(filepath.Join(place.Dir, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == key {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n
		}
	}
	return 0
}

// Remove takes the cgroup away. Its processes have ended, and the kernel may be a moment behind.
// What stays all the same, because a process hangs in the kernel, a later run sweeps.
func (g *Cgroup) Remove() {
	if g == nil {
		return
	}
	for _, dir := range g.dirs {
		for range 20 {
			if err := unix.Rmdir(dir); err != unix.EBUSY && err != unix.EINTR {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	g.dirs = nil
}

const (
	// sweepAge is how old a cgroup of ours is at least when it is swept: a younger one may be about
	// to be joined.
	sweepAge = time.Minute
	// maxSwept bounds what one run sweeps.
	maxSwept = 100
)

// sweep removes what runs left that were killed. A cgroup with a process in it the kernel does not
// remove.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	swept := 0
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), Prefix) || swept == maxSwept {
			continue
		}
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > sweepAge {
			swept++
			unix.Rmdir(filepath.Join(dir, entry.Name()))
		}
	}
}
