package sandbox

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// A file that is open for reading can still be given another mode, owner, time or attribute through
// its descriptor: what counts for those is the mount that it was opened by, and the host's is
// writable. So a regular file that is standard input is bound into the sandbox, read-only, and the
// trampoline opens it there in the place of the descriptor that came from outside. How far it was
// read the launcher takes over afterwards, as the caller's shell goes on reading there.

// inputPlace is where it stands inside.
const inputPlace = "/run/clai-sandbox/stdin"

// An inputFile is the regular file that is standard input, open for reading alone.
type inputFile struct {
	file     *os.File
	path     string
	object   profile.Expected
	offset   int64
	required bool          // the trampoline must be able to open it
	back     *net.UnixConn // where the trampoline sends what it opened
}

// inputOf finds out whether the stream is such a file; nil: it is not. One without a name any more,
// as a shell's own temporary file, nobody else can open, and whatever is done to it goes with it.
// Another user's file that cannot be reached by its name the command could not change either.
func inputOf(stream any) (*inputFile, error) {
	file, ok := stream.(*os.File)
	if !ok || file == nil {
		return nil, nil
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, nil
	}
	in := &inputFile{file: file}
	applies := false
	raw.Control(func(fd uintptr) {
		var stat unix.Stat_t
		flags, flagsErr := unix.FcntlInt(fd, unix.F_GETFL, 0)
		if flagsErr != nil || flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_PATH != 0 || unix.Fstat(int(fd), &stat) != nil ||
			stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink == 0 {
			return
		}
		applies = true
		in.object = profile.Expected{Device: uint64(stat.Dev), Inode: stat.Ino}
		in.required = int(stat.Uid) == os.Getuid()
		in.offset, _ = unix.Seek(int(fd), 0, unix.SEEK_CUR)
		in.path, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	})
	if !applies || err != nil {
		return nil, err
	}
	probe, err := descriptor.PinExpected(in.path, &in.object)
	if err != nil && !in.required {
		return nil, nil // not the caller's file, nor within reach: so it is not the caller's to change
	}
	if err != nil {
		return nil, &SetupError{Path: in.path, Why: "is standard input, and cannot be shown read-only: " + reason(err),
			Hint: "let cat read it: cat FILE | clai-sandbox run …"}
	}
	probe.Close()
	return in, nil
}

// stand adds the file to a plan's steps, before anything is sealed.
func (in *inputFile) stand(steps []Step) []Step {
	if in == nil {
		return steps
	}
	at := slices.IndexFunc(steps, func(s Step) bool { return s.Kind == Seal })
	if at < 0 {
		at = len(steps)
	}
	return slices.Insert(slices.Clone(steps), at, Step{Kind: Bind, Path: inputPlace, Source: in.path, Access: profile.ReadOnly, Origin: baseline,
		Pinned: true, expected: &in.object, Purpose: Protects, file: true})
}

// open lists the calls that put the file as it stands inside in the place of standard input, and
// send it out. fds are two descriptors that must be free, and channel the socket's.
func (in *inputFile) open(p *trampoline.List, channel, fd int) {
	flags := uint32(trampoline.MayFail)
	if in.required {
		flags = 0
	}
	file := p.Call(flags, unix.SYS_OPENAT, 0, p.Text(inputPlace), unix.O_RDONLY|unix.O_CLOEXEC)
	p.Call(flags, unix.SYS_FCNTL, p.Result(file), unix.F_DUPFD_CLOEXEC, uint64(fd))
	p.Call(flags, unix.SYS_LSEEK, uint64(fd), uint64(in.offset), unix.SEEK_SET)
	p.Call(flags, unix.SYS_DUP3, uint64(fd), 0, 0)
	p.Call(flags, unix.SYS_SENDMSG, uint64(channel), rights(p, fd), 0)
}

// inputThroughTrampoline gives the trampoline a way to send the file out.
func (a *attempt) inputThroughTrampoline(p *trampoline.List) error {
	back, theirs, err := descriptor.Channel()
	if err != nil {
		return err
	}
	a.input.back = back
	channel, err := strconv.Atoi(a.pass(theirs))
	if err != nil {
		return err
	}
	a.input.open(p, channel, 3+len(a.files)+9)
	return nil
}

// close ends what open began, where nothing was started.
func (in *inputFile) close() {
	if in != nil && in.back != nil {
		in.back.Close()
	}
}

// finish takes over how far the command has read. The sandbox has ended.
func (in *inputFile) finish() {
	if in == nil || in.back == nil {
		return
	}
	defer in.back.Close()
	inside, err := descriptor.Receive(in.back)
	if err != nil {
		return // no command has run, or none that could open it
	}
	defer unix.Close(inside)
	now, err := unix.Seek(inside, 0, unix.SEEK_CUR)
	if err != nil || now == in.offset {
		return
	}
	if raw, err := in.file.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.Seek(int(fd), now, unix.SEEK_SET) })
	}
}
