package files

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"
)

// A Code tells programs why a tool did nothing.
type Code string

const (
	NotFound    Code = "not_found"    // there is no such file, as seen inside the sandbox
	Denied      Code = "denied"       // the file's permissions, or the sandbox, refuse it
	ReadOnly    Code = "read_only"    // it is mounted read-only
	Protected   Code = "protected"    // something outside the sandbox would execute it, or do as it says
	IsDirectory Code = "is_directory" // a file was wanted
	NotRegular  Code = "not_regular"  // a device, pipe or socket
	Exists      Code = "exists"       // something is there, and must not be replaced
	TooLarge    Code = "too_large"    // larger than the tool takes
	NoSpace     Code = "no_space"     // the disk or a quota is full
	Binary      Code = "binary"       // text was wanted
	NoMatch     Code = "no_match"     // the text to replace is not there
	Ambiguous   Code = "ambiguous"    // it is there more than once
	Invalid     Code = "invalid"      // the request makes no sense
	Partial     Code = "partial"      // a change failed half way and could not be undone: Message says what is left
	Failed      Code = "failed"       // anything else that the kernel said
)

// An Error is why a tool did nothing. Only with Partial has something changed.
type Error struct {
	Code    Code   `json:"code" jsonschema:"what kind of failure it is"`
	Path    string `json:"path,omitempty" jsonschema:"the absolute path that it is about"`
	Message string `json:"message" jsonschema:"what is wrong and, where that is known, what to do"`
	Line    int    `json:"line,omitempty" jsonschema:"of no_match: the line of the file that is most like what was looked for; of invalid: the line of the patch"`
	Matches int    `json:"matches,omitempty" jsonschema:"of ambiguous: how often it is there"`
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

func invalid(path, why string) *Error { return &Error{Code: Invalid, Path: path, Message: why} }

// codes are what errnos mean here.
var codes = map[syscall.Errno]Code{
	syscall.ENOENT: NotFound, syscall.ENOTDIR: NotFound,
	syscall.EACCES: Denied, syscall.EPERM: Denied,
	syscall.EROFS:  ReadOnly,
	syscall.EISDIR: IsDirectory,
	syscall.EEXIST: Exists, syscall.ENOTEMPTY: Exists,
	syscall.EFBIG:  TooLarge,
	syscall.ENOSPC: NoSpace, syscall.EDQUOT: NoSpace,
	syscall.ENAMETOOLONG: Invalid, syscall.ELOOP: Invalid, syscall.EINVAL: Invalid,
	syscall.ENXIO: NotRegular,
}

// failure makes an *Error of what the kernel said about a path.
func failure(path string, err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	code, why := Failed, err.Error()
	var errno syscall.Errno
	if errors.As(err, &errno) {
		why = errno.Error()
		if known, ok := codes[errno]; ok {
			code = known
		}
	}
	switch code {
	case NotFound:
		why += ", as seen inside the sandbox"
	case ReadOnly:
		why += ": the sandbox shows it for reading only"
	}
	return &Error{Code: code, Path: path, Message: why}
}

// absolute checks a path and makes it one in the working directory. ".." is taken out by the
// letter, as in a shell.
func absolute(cwd, path string) (string, error) {
	switch {
	case path == "":
		return "", invalid("", "the path is empty")
	case len(path) > maxPath:
		return "", invalid("", "the path is longer than 4096 bytes")
	case strings.ContainsRune(path, 0):
		return "", invalid("", "the path has a NUL byte in it")
	case !utf8.ValidString(path):
		return "", invalid("", "the path is not UTF-8")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	return filepath.Clean(path), nil
}

// regular refuses what is not a file with bytes in it.
func regular(path string, mode fs.FileMode) error {
	switch {
	case mode.IsDir():
		return &Error{Code: IsDirectory, Path: path, Message: "is a directory; glob lists what is in it"}
	case !mode.IsRegular():
		return &Error{Code: NotRegular, Path: path, Message: "is not a regular file but a device, pipe or socket"}
	}
	return nil
}
