package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Files is what a policy sees of the file system of the host that runs the command. Every path is
// absolute.
type Files interface {
	// Real follows every link of a path.
	Real(path string) (string, error)
	// Stat tells of what a path leads to, through links.
	Stat(path string) (fileKind, error)
	// Hash is the hex SHA-256 of a regular file of at most MaxScript bytes.
	Hash(path string) (string, error)
}

// A FileKind is what a path leads to.
type fileKind uint8

const (
	fileOther      fileKind = iota // a device, a socket: nothing to run
	fileDirectory                  //
	fileRegular                    // without the right to execute it
	fileExecutable                 // a regular file that somebody may execute
)

// maxScript bounds the files that an approval is bound to, in bytes.
const maxScript = 16 << 20

// Disk is the file system of this host.
type Disk struct{}

// Real asks the kernel, which walks the path once; where it cannot tell, it is walked link by link.
func (Disk) Real(path string) (string, error) {
	fd, err := syscall.Open(path, unixPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer syscall.Close(fd)
	var buffer [4096]byte
	n, err := syscall.Readlink("/proc/self/fd/"+strconv.Itoa(fd), buffer[:])
	real := string(buffer[:max(n, 0)])
	if err != nil || n == len(buffer) || !filepath.IsAbs(real) || strings.HasSuffix(real, " (deleted)") {
		return filepath.EvalSymlinks(path)
	}
	return real, nil
}

const unixPath = 0x200000 // O_PATH: opens nothing, and needs no right to read

func (Disk) Stat(path string) (fileKind, error) {
	var info syscall.Stat_t
	err := syscall.Stat(path, &info)
	for err == syscall.EINTR {
		err = syscall.Stat(path, &info)
	}
	switch {
	case err != nil:
		return fileOther, &os.PathError{Op: "stat", Path: path, Err: err}
	case info.Mode&syscall.S_IFMT == syscall.S_IFDIR:
		return fileDirectory, nil
	case info.Mode&syscall.S_IFMT != syscall.S_IFREG:
		return fileOther, nil
	case info.Mode&0o111 == 0: // and not access(2): root may execute what anybody may
		return fileRegular, nil
	}
	return fileExecutable, nil
}

func (Disk) Hash(path string) (string, error) {
	// The kernel's own files may be endless, or make a reader wait.
	for _, tree := range [...]string{"/proc/", "/sys/", "/dev/"} {
		if strings.HasPrefix(path, tree) {
			return "", fmt.Errorf("%s is the kernel's own, not a file on a disk", path)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	n, err := io.Copy(hash, io.LimitReader(f, maxScript+1))
	switch {
	case err != nil:
		return "", err
	case n > maxScript:
		return "", fmt.Errorf("%s is larger than %d bytes", path, maxScript)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// List is the names in a directory, sorted, at most limit.
func (Disk) List(dir string, limit int) ([]string, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(limit)
	if err == io.EOF {
		err = nil
	}
	slices.Sort(names)
	return names, err
}
