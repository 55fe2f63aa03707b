package landlock

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// FilesABI is the first version without a hole for us: it can refuse to truncate, and move between
// directories (Linux 6.2).
const FilesABI = 3

// ioctlABI is the first version that can refuse ioctl(2) on devices (Linux 6.10).
const ioctlABI = 5

// What a rule allows. A kernel that does not know a right of them does not refuse it either.
const (
	ReadFile  = unix.LANDLOCK_ACCESS_FS_READ_FILE
	ReadDir   = unix.LANDLOCK_ACCESS_FS_READ_DIR
	ReadOnly  = unix.LANDLOCK_ACCESS_FS_EXECUTE | ReadFile | ReadDir
	Processes = ReadFile | ReadDir | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE // in a /proc
	Devices   = Processes | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	Files     = Devices&^ReadDir | unix.LANDLOCK_ACCESS_FS_EXECUTE // all that a rule for a file can allow
	ReadWrite = 1<<13 - 1 | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// A Rule allows what is at a path inside, and below it where it is a directory.
type Rule struct {
	Path   string
	Rights uint64
}

// A Ruleset is one under construction.
type Ruleset struct {
	File    descriptor.File // the caller's, to be closed
	handled uint64
	kept    descriptor.File
}

// NewRuleset makes an empty ruleset: nothing may be opened.
func NewRuleset() (*Ruleset, error) {
	r := &Ruleset{handled: ReadWrite}
	if ABI() < ioctlABI {
		r.handled &^= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: r.handled}
	if ABI() >= ScopeABI {
		// In the same ruleset: one for the scopes alone would refuse every link and move between
		// directories, once there is one for files (LANDLOCK_ACCESS_FS_REFER is denied by what does
		// not mention it).
		attr.Scoped = scopes
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	r.File = descriptor.File(fd)
	return r, nil
}

// Keep keeps the ruleset open here, until Close: the rules that are added inside are in it.
func (r *Ruleset) Keep() error {
	fd, err := unix.FcntlInt(uintptr(r.File), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	r.kept = descriptor.File(fd)
	return nil
}

// Kept is the ruleset's descriptor after Keep.
func (r *Ruleset) Kept() int { return int(r.kept) }

// Close closes what Keep has opened.
func (r *Ruleset) Close() {
	if r != nil {
		r.kept.Close()
	}
}

// allow adds a rule for an open object, and for all below it where it is a directory.
func (r *Ruleset) allow(object int, rights uint64) error {
	var stat unix.Stat_t
	if err := unix.Fstat(object, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= Files
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights & r.handled, Parent_fd: int32(object)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.File), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 && errno != unix.EBADFD { // a pipe or a socket: Landlock has no rules for them, and refuses nothing
		return fmt.Errorf("landlock_add_rule: %w", errno)
	}
	return nil
}

// AllowStream lets the command open its own streams again, as /dev/stderr, for what they are open
// for already.
func (r *Ruleset) AllowStream(stream any) {
	file, ok := stream.(*os.File)
	if !ok || file == nil {
		return
	}
	fd := int(file.Fd())
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return
	}
	rights := uint64(unix.LANDLOCK_ACCESS_FS_IOCTL_DEV)
	if flags&unix.O_ACCMODE != unix.O_WRONLY {
		rights |= ReadFile
	}
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		rights |= unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	r.allow(fd, rights)
}

// AllowInside lists for the trampoline the calls that add rules: nothing else has one. ruleset is
// the ruleset's descriptor there. What is not at a path needs no rule.
func (r *Ruleset) AllowInside(p *trampoline.List, rules []Rule, ruleset uint64) {
	for _, rule := range rules {
		// The filter, which is in force by now, has no openat2(2).
		open := p.Call(trampoline.MayFail, unix.SYS_OPENAT, trampoline.AtCWD, p.Text(rule.Path), unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW)
		at := p.Put(append(binary.LittleEndian.AppendUint64(nil, rule.Rights&r.handled), 0, 0, 0, 0)) // struct landlock_path_beneath_attr
		p.Store(open, at+8)
		p.Call(trampoline.MayFail, unix.SYS_LANDLOCK_ADD_RULE, ruleset, unix.LANDLOCK_RULE_PATH_BENEATH, at, 0)
		p.Call(trampoline.MayFail, unix.SYS_CLOSE, p.Result(open))
	}
}
