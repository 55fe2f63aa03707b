package sandbox

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// The Landlock layer on files: a ruleset from the same plan as the mounts. Should a mount show more than it was meant
// to, the kernel still refuses to open it. The trampoline makes the rules inside, for the very objects that stand at the paths
// of the plan, right before it becomes the command.

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

// fileRules is a ruleset under construction.
type fileRules struct {
	ruleset descriptor.File
	handled uint64
	kept    descriptor.File // the ruleset, for a session's server
	live    bool            // what is shown can change: see allowInside
}

// locksFiles reports whether the plan's files get the Landlock layer here.
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
	r.ruleset = descriptor.File(fd)
	return r, nil
}

// keep keeps the ruleset open here: the rules that are added inside are in it.
func (r *fileRules) keep() error {
	fd, err := unix.FcntlInt(uintptr(r.ruleset), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	r.kept = descriptor.File(fd)
	return nil
}

// rightsFor are what an access comes to.
func (r *fileRules) rightsFor(access profile.Access) uint64 {
	if access > profile.ReadOnly {
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

// allowInside lists for the trampoline the rules of what the sandbox shows, by its paths inside: nothing else has a rule.
// ruleset is its descriptor there.
func (r *fileRules) allowInside(p *trampoline.List, plan *Plan, ruleset uint64) {
	allow := func(path string, rights uint64) {
		// The filter, which is in force by now, has no openat2(2).
		open := p.Call(trampoline.MayFail, unix.SYS_OPENAT, atCWD, p.Text(path), unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW)
		at := p.Put(append(binary.LittleEndian.AppendUint64(nil, rights&r.handled), 0, 0, 0, 0)) // struct landlock_path_beneath_attr
		p.Store(open, at+8)
		p.Call(trampoline.MayFail, unix.SYS_LANDLOCK_ADD_RULE, ruleset, unix.LANDLOCK_RULE_PATH_BENEATH, at, 0)
		p.Call(trampoline.MayFail, unix.SYS_CLOSE, p.Result(open))
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
		case Bind, Socket:
			switch rights := r.rightsFor(step.Access); {
			case step.Purpose == Protects || step.Purpose == Anchors || within(step.Path, "/proc"):
				// Below something that has a rule.
			case step.file || step.Kind == Socket:
				allow(step.Path, rights&landlockOfFiles)
			default:
				allow(step.Path, rights)
			}
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
