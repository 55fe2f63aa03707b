package descriptor

import (
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/links"
)

// pinBySteps pins as Pin does where there is no openat2(2): a sandbox's filter refuses it, as its
// mode is in memory, so that a sandbox in a sandbox has none. Each component is opened in the
// directory that was opened before it, and none may be a symbolic link.
func pinBySteps(path string) (File, error) {
	at, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	for name, after := links.CutComponent(path); err == nil && name != ""; name, after = links.CutComponent(after) {
		var next int
		var stat unix.Stat_t
		if next, err = unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(at)
			at = next
			err = unix.Fstat(at, &stat)
		}
		if err == nil && stat.Mode&unix.S_IFMT == unix.S_IFLNK {
			err = unix.ELOOP
		}
		if err != nil {
			unix.Close(at)
		}
	}
	if err != nil {
		return 0, err
	}
	return File(at), nil
}
