package mounts

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// A Mounter is a process in the user namespace that owns a sandbox's mount namespace, with the
// capabilities for mounting there and no others. Most of the time it is in a mount namespace of its
// own, a copy of the host's: there it can take a copy of what the host has at a path. It is a
// trampoline, because only a program with a single thread can enter a user namespace: what it does,
// Go code decides call by call.
//
// It ends when Close is called, and when this process ends. What it has mounted stays as long as
// the sandbox.
type Mounter struct {
	mu     sync.Mutex
	pid    int
	socket int
	stage  int                // names in its own file system in memory that were used
	unused []int              // its descriptors that are of no use any more
	litter []string           // places there that are of no use any more
	sent   []*trampoline.List // whose answers nobody waited for
	lost   bool               // an answer did not come in time
	enter  *trampoline.List   // was sent, and its answer has not come yet
	out    error              // why it is not in its sandbox's namespaces
	there  map[uint64]bool    // see There
	init   int                // pid 1 of the sandbox, by its number outside
	copied map[string]*result // the directories of the files in memory, by the files' paths
	old    bool               // as with a kernel before Linux 6.5, for tests
}

// Descriptors of the mounter.
const (
	socketFD = 3 // where lists come from
	readyFD  = 4 // where the sandbox says that its base is complete
	goFD     = 5 // where it waits for its command to be released

	// Above all that is open while it begins: dup3(2) refuses to make what is there already.
	hostFD    = 40 // the mount namespace of its own
	sandboxFD = 41 // the sandbox's
	stageFD   = 42 // a file system in memory, where trees are put together
	selfFD    = 43 // /proc/self/fd, to name a mount for umount(2)
)

// stagePlace is where the mounter's file system in memory stands: all hosts have it, and nothing
// that is mounted comes from there.
const stagePlace = "/proc"

// timeout bounds the wait for the mounter: it does nothing that waits, but a network file system
// may.
const timeout = 20 * time.Second

// ErrRefused means that this process may not enter the sandbox's namespaces.
var ErrRefused = errors.New("the kernel does not let this process mount in its own sandbox")

// Supported reports whether this kernel has the calls that mounting takes, and lets this process
// make them. Whether it may enter its own sandbox, only trying tells.
func Supported() bool {
	_, err := unix.OpenTree(-1, "", unix.AT_EMPTY_PATH)
	_, _, short := unix.Syscall6(unix.SYS_MOUNT_SETATTR, ^uintptr(0), 0, 0, 0, 0, 0) // too short: EINVAL, before anything else is looked at
	return err == unix.EBADF && short == unix.EINVAL
}

// Start starts the mounter of a sandbox that need not be there yet: it waits for Enter. From ready
// it reads a byte when the base is complete, and to released it writes one when the mounts are
// there. holds are descriptors that it keeps until it ends, or -1.
func Start(ready, released int, holds ...int) (*Mounter, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(ends[1])
	m := &Mounter{socket: ends[0], out: errors.New("it has entered no sandbox")}
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(m.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		unix.Close(m.socket)
		return nil, fmt.Errorf("setsockopt: %w", err)
	}
	program, err := trampoline.Seal("mounter", new(trampoline.List).Server(socketFD))
	if err != nil {
		unix.Close(m.socket)
		return nil, fmt.Errorf("memfd: %w", err)
	}
	defer unix.Close(program)
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(m.socket)
		return nil, err
	}
	defer unix.Close(null)
	files := []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(ends[1])}
	for _, fd := range append([]int{ready, released}, holds...) {
		if fd < 0 {
			fd = null
		}
		files = append(files, uintptr(fd))
	}
	files = append(files, uintptr(program))
	m.pid, _, err = syscall.StartProcess(fmt.Sprintf("/proc/self/fd/%d", len(files)-1), []string{"mounter"},
		&syscall.ProcAttr{Env: []string{}, Files: files, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		unix.Close(m.socket)
		return nil, fmt.Errorf("start the mounter: %w", err)
	}
	return m, nil
}

// Enter has the mounter enter the namespaces of its sandbox, whose pid 1 has this number outside.
// Whether it could, the next call tells.
func (m *Mounter) Enter(init int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.init, m.enter = init, enter(init)
	m.out = m.enter.Send(m.socket)
}

// entered returns when the mounter has entered, or why it could not. Nothing is sent to one that is
// not in its sandbox's namespaces: it would mount on the host.
func (m *Mounter) entered() error {
	if m.enter != nil && m.out == nil {
		var failed *trampoline.CallError
		if _, m.out = m.answer(m.enter); errors.As(m.out, &failed) {
			m.out = errors.Join(ErrRefused, failed.Errno)
		}
		m.enter = nil
	}
	return m.out
}

// capabilities are what the mounter keeps: to mount, to enter, and to make what it mounts on.
const capabilities = 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_SYS_CHROOT | 1<<unix.CAP_SYS_ADMIN

const atCWD = ^uint64(99) // AT_FDCWD

// enter lists the calls that make a process the mounter.
func enter(init int) *trampoline.List {
	l := &trampoline.List{}
	keep := func(number int, as uint64) { l.Call(0, unix.SYS_DUP3, l.Result(number), as, unix.O_CLOEXEC) }
	l.Call(0, unix.SYS_UMASK, 0)
	sandbox := l.Call(0, unix.SYS_OPENAT, atCWD, l.Text(fmt.Sprintf("/proc/%d/ns/mnt", init)), unix.O_RDONLY|unix.O_CLOEXEC)
	keep(sandbox, sandboxFD)
	owner := l.Call(0, unix.SYS_IOCTL, l.Result(sandbox), unix.NS_GET_USERNS)
	l.Call(0, unix.SYS_SETNS, l.Result(owner), unix.CLONE_NEWUSER)
	limitWatching(l)
	l.Call(0, unix.SYS_UNSHARE, unix.CLONE_NEWNS)
	// Nothing goes back to the host; what is mounted there later is seen.
	l.Call(0, unix.SYS_MOUNT, 0, l.Text("/"), 0, unix.MS_REC|unix.MS_SLAVE, 0)
	keep(l.Call(0, unix.SYS_OPENAT, atCWD, l.Text("/proc/self/ns/mnt"), unix.O_RDONLY|unix.O_CLOEXEC), hostFD)
	keep(l.Call(0, unix.SYS_OPENAT, atCWD, l.Text("/proc/self/fd"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC), selfFD)
	memory := newMemory(l, 0o700)
	l.Call(0, unix.SYS_MOVE_MOUNT, l.Result(memory), l.Text(""), atCWD, l.Text(stagePlace), unix.MOVE_MOUNT_F_EMPTY_PATH)
	keep(memory, stageFD)
	l.Call(trampoline.MayFail, unix.SYS_MKNODAT, stageFD, l.Text(emptyName), unix.S_IFREG|0o444, 0)
	// As many descriptors as it may have: each mount takes one for a moment, and many trees one
	// each.
	l.Call(trampoline.MayFail, unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, openFiles(l))
	l.Call(0, unix.SYS_CAPSET, l.Words(unix.LINUX_CAPABILITY_VERSION_3), l.Words(capabilities|capabilities<<32, 0, 0))
	l.Call(0, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	return l
}

// limitWatching leaves a part of what the user may watch to others: a command that takes all of it
// keeps the person's editors and every other sandbox from starting. Each user namespace has limits
// of its own, besides those above it. (The process is in the sandbox's by now: the kernel does not
// let it enter the one it is in, so those of the host are never written.)
func limitWatching(l *trampoline.List) {
	for _, of := range []struct {
		name string
		part int
	}{{"max_inotify_instances", 4}, {"max_inotify_watches", 2}} {
		file := "/proc/sys/user/" + of.name
		text, err := os.ReadFile(file)
		limit, failed := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || failed != nil {
			continue
		}
		value := strconv.Itoa(max(limit/of.part, 1))
		open := l.Call(trampoline.MayFail, unix.SYS_OPENAT, atCWD, l.Text(file), unix.O_WRONLY|unix.O_CLOEXEC)
		l.Call(trampoline.MayFail, unix.SYS_WRITE, l.Result(open), l.Text(value), uint64(len(value)))
		l.Call(trampoline.MayFail, unix.SYS_CLOSE, l.Result(open))
	}
}

// openFiles is the hard limit on open files as both limits.
func openFiles(l *trampoline.List) uint64 {
	var limit unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return l.Words(limit.Max, limit.Max)
}

// emptyName is the stage's empty file, which covers others.
const emptyName = "empty"

// Names of the kernel's that golang.org/x/sys does not have.
const (
	moveMountBeneath = 0x200 // Linux 6.5
	fsmountCloexec   = 1
)

// newMemory lists the calls for a new file system in memory, mounted nowhere yet, and returns the
// one with its root.
func newMemory(l *trampoline.List, mode uint32) int {
	context := l.Call(0, unix.SYS_FSOPEN, l.Text("tmpfs"), unix.FSOPEN_CLOEXEC)
	l.Call(0, unix.SYS_FSCONFIG, l.Result(context), unix.FSCONFIG_SET_STRING, l.Text("mode"), l.Text(fmt.Sprintf("%04o", mode)), 0)
	l.Call(0, unix.SYS_FSCONFIG, l.Result(context), unix.FSCONFIG_CMD_CREATE, 0, 0, 0)
	root := l.Call(0, unix.SYS_FSMOUNT, l.Result(context), fsmountCloexec, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	l.Call(0, unix.SYS_CLOSE, l.Result(context))
	return root
}

// Close ends the mounter. It is not waited for: to take its mounts apart takes the kernel a moment.
func (m *Mounter) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.socket < 0 {
		return
	}
	unix.Close(m.socket)
	m.socket = -1
	unix.Kill(m.pid, unix.SIGKILL)
	go func() {
		for {
			if _, err := unix.Wait4(m.pid, nil, 0, nil); err != unix.EINTR {
				return
			}
		}
	}()
}
