package sandbox

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
)

// insideDirectory is where a sandbox has what is this program's.
const insideDirectory = "/run/clai-sandbox/"

// ShowProgram shows a program read-only at /run/clai-sandbox/NAME inside, and returns that path:
// source on the host, which has no symbolic link in its path, or where that is empty the program
// that carries the plan out. It is executed there as any other command of the plan, and can do no
// more than one.
func (p *Plan) ShowProgram(name, source string) string {
	step := Step{Kind: Bind, Path: insideDirectory + name, Source: source, Access: profile.ReadOnly, Origin: baseline, Pinned: true, file: true}
	if source == "" {
		step.Source, step.Pinned = ownProgram, false
	}
	p.insert(step)
	return step.Path
}

// StandIn mounts the program that carries the plan out over a program of the system's, inside:
// whoever starts the latter starts the former. The path is that of the file itself, without a
// symbolic link in it.
func (p *Plan) StandIn(path string) {
	p.insert(Step{Kind: Bind, Path: path, Source: ownProgram, Access: profile.ReadOnly, Origin: baseline, file: true})
}

// insert adds a step where none is for its path, in Build's order: the shallowest first.
func (p *Plan) insert(step Step) {
	if slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Path == step.Path }) {
		return
	}
	at := slices.IndexFunc(p.Steps, func(s Step) bool { return depth(s.Path) > depth(step.Path) || s.Kind == Seal })
	p.Steps = slices.Insert(slices.Clone(p.Steps), at, step)
}

// openProgram opens the file that this process executes, to be bound. bwrap looks for the path of
// what it binds, and has no capability to do so in other users' directories: where they let nobody
// in, the file is open for reading, to be copied.
func openProgram() (file descriptor.File, reachable bool, err error) {
	flags := unix.O_PATH
	path, err := os.Readlink(ownProgram)
	if reachable = err == nil && searchable(path); !reachable {
		flags = unix.O_RDONLY
	}
	fd, err := unix.Open(ownProgram, flags|unix.O_CLOEXEC, 0)
	return descriptor.File(max(fd, 0)), reachable, err
}

// searchable reports whether this process's user may look into the directories above a path without
// any capability.
func searchable(path string) bool {
	for path != "/" {
		path = parent(path)
		var info unix.Stat_t
		if unix.Stat(path, &info) != nil {
			return false
		}
		bit := uint32(unix.S_IXOTH)
		switch {
		case int(info.Uid) == os.Getuid():
			bit = unix.S_IXUSR
		case int(info.Gid) == os.Getgid():
			bit = unix.S_IXGRP
		}
		if info.Mode&bit == 0 {
			return false
		}
	}
	return true
}
