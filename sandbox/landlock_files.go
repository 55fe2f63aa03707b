package sandbox

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// The second lock on files: a Landlock ruleset from the same plan as the mounts. Should a mount show more than it was meant
// to, the kernel still refuses to open it. Rules are for objects, not for names, and so they hold what no mount can: a
// credential store that comes into being while the command runs has no rule.
//
// The rules for the host's objects are made outside; those for what bwrap makes, and the restriction itself, are the stub's.

// landlockFilesABI is the first version without a hole for us: it can refuse to truncate, and move between directories
// (Linux 6.2).
const landlockFilesABI = 3

// Rights by the first version that knows them.
const (
	landlockRights    = 1<<13 - 1 // execute, write_file, read_file, read_dir, remove_*, make_*
	landlockRefer     = unix.LANDLOCK_ACCESS_FS_REFER
	landlockTruncate  = unix.LANDLOCK_ACCESS_FS_TRUNCATE
	landlockIoctl     = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV // version 5
	landlockReadFile  = unix.LANDLOCK_ACCESS_FS_READ_FILE
	landlockReadDir   = unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockReadOnly  = unix.LANDLOCK_ACCESS_FS_EXECUTE | landlockReadFile | landlockReadDir
	landlockOfDevices = landlockReadFile | landlockReadDir | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | landlockTruncate | landlockIoctl
	landlockOfFiles   = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | landlockReadFile | landlockTruncate | landlockIoctl
)

// maxChildren bounds how many objects get a rule of their own because of a hidden one beside them.
const maxChildren = 2000

// fileRules is a ruleset under construction.
type fileRules struct {
	ruleset  descriptor
	handled  uint64
	children int
	live     bool // what is shown can change: see allowInside
}

// locksFiles reports whether the plan's files get the second lock here.
func (p *Plan) locksFiles() bool {
	// A program in a Landlock domain can mount nothing, also in a namespace of its own.
	return !p.NestedNamespaces && LandlockABI() >= landlockFilesABI
}

// newFileRules makes an empty ruleset: nothing may be opened.
func newFileRules() (*fileRules, error) {
	r := &fileRules{handled: landlockRights | landlockRefer | landlockTruncate}
	if LandlockABI() >= 5 {
		r.handled |= landlockIoctl
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: r.handled}
	if LandlockABI() >= landlockScopeABI {
		// In the same ruleset: one for the scopes alone would refuse every link and move between directories, once there is
		// one for files (LANDLOCK_ACCESS_FS_REFER is denied by what does not mention it).
		attr.Scoped = landlockScopes
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	r.ruleset = descriptor(fd)
	return r, nil
}

// rightsFor are what an access comes to.
func (r *fileRules) rightsFor(access profile.Access) uint64 {
	if access == profile.ReadWrite {
		return r.handled
	}
	return landlockReadOnly
}

// allow adds a rule for an open object, and for all below it where it is a directory.
func (r *fileRules) allow(object int, rights uint64) error {
	var stat unix.Stat_t
	if err := unix.Fstat(object, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= landlockOfFiles
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights & r.handled, Parent_fd: int32(object)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 && errno != unix.EBADFD { // a pipe or a socket: Landlock has no rules for them, and refuses nothing
		return fmt.Errorf("landlock_add_rule: %w", errno)
	}
	return nil
}

// allowStream lets the command open its own streams again, as /dev/stderr, for what they are open for already.
func (r *fileRules) allowStream(stream any) {
	file, ok := stream.(*os.File)
	if !ok || file == nil {
		return
	}
	fd := int(file.Fd())
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return
	}
	rights := uint64(landlockIoctl)
	if flags&unix.O_ACCMODE != unix.O_WRONLY {
		rights |= landlockReadFile
	}
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		rights |= unix.LANDLOCK_ACCESS_FS_WRITE_FILE | landlockTruncate
	}
	r.allow(fd, rights)
}

// allowBind adds the rules of one bind. A read-only directory with hidden paths below it gets none for itself but to be
// listed: each of its children gets one, so that what comes later has none.
func (r *fileRules) allowBind(plan *Plan, step Step, object int) error {
	if step.Access == profile.ReadOnly && step.Purpose == "" && plan.hasHiddenBelow(step.Path) {
		if r.allowChildren(plan, step.Path, object) == nil {
			return nil
		}
	}
	return r.allow(object, r.rightsFor(step.Access))
}

func (p *Plan) hasHiddenBelow(dir string) bool {
	return slices.ContainsFunc(p.Hidden, func(path string) bool { return path != dir && within(path, dir) })
}

func (r *fileRules) allowChildren(plan *Plan, dir string, object int) error {
	entries, err := (Host{}).ReadDir(fmt.Sprintf("/proc/self/fd/%d/.", object))
	if err != nil {
		return err
	}
	if r.children += len(entries); r.children > maxChildren {
		return unix.E2BIG
	}
	for _, entry := range entries {
		path := join(dir, entry.Name)
		if slices.Contains(plan.Hidden, path) {
			continue
		}
		fd, err := unix.Openat(object, entry.Name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // gone by now, or closed to us: then to the command, too
		}
		child := descriptor(fd)
		if !entry.Dir || !plan.hasHiddenBelow(path) || r.allowChildren(plan, path, fd) != nil {
			err = r.allow(fd, landlockReadOnly)
		}
		child.close()
		if err != nil && err != unix.EINVAL { // a link has none, and needs none
			return err
		}
	}
	return nil
}

// allowInside lists for the stub the rules of what bwrap makes. ruleset is its descriptor there.
func (r *fileRules) allowInside(p *stubProgram, plan *Plan, ruleset uint64) {
	allow := func(path string, rights uint64) {
		attr := binary.LittleEndian.AppendUint64(nil, rights&r.handled) // struct landlock_path_beneath_attr
		at := p.put(append(attr, 0, 0, 0, 0))
		open := p.call(stubMayFail, unix.SYS_OPENAT, uint64(0xffff_ff9c) /* AT_FDCWD */, p.text(path), unix.O_PATH|unix.O_CLOEXEC)
		open.store = at + 8
		p.call(stubMayFail, unix.SYS_LANDLOCK_ADD_RULE, ruleset, unix.LANDLOCK_RULE_PATH_BENEATH, at, 0)
	}
	if r.live {
		// One rule, for the root: rules cannot be added when a grant comes. It allows what is mounted below the root at the time,
		// and so nothing that is not: a stream that leads out, or what is held of a grant that was taken away.
		allow("/", r.handled)
		return
	}
	allow("/", landlockReadDir) // names may be listed, as far as the mounts show them
	for _, step := range plan.Steps {
		switch step.Kind {
		case Private:
			allow(step.Path, r.handled)
		case Mask:
			allow(step.Path, landlockReadFile|landlockReadDir)
		case Empty:
			allow(step.Path, landlockReadFile)
		case Proc:
			allow(step.Path, landlockReadFile|landlockReadDir|unix.LANDLOCK_ACCESS_FS_WRITE_FILE|landlockTruncate)
		case Dev:
			allow(step.Path, landlockOfDevices)
		}
	}
}
