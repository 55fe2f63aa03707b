package profile

import (
	"fmt"
	"path/filepath"
	"strings"
)

const (
	maxPath      = 4096 // PATH_MAX, its NUL included
	maxComponent = 255  // NAME_MAX
)

const isRelative = "is relative"

// A PathError is a path that makes no sense, whatever is there.
type PathError struct {
	Path string
	Why  string
	Hint string
}

func (e *PathError) Error() string {
	text := fmt.Sprintf("path %s: %s", shorten(e.Path), e.Why)
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// ExpandPath makes a path as typed absolute and clean: "~" and "~/x" are below home. It looks at
// nothing on disk: "/a/../b" is /b also where /a is a symbolic link, as a shell's cd has it. The
// error is a *PathError.
func ExpandPath(typed, home string) (string, error) {
	refuse := func(why, hint string) (string, error) { return "", &PathError{typed, why, hint} }
	path := typed
	switch {
	case typed == "":
		return refuse("is empty", "")
	case strings.IndexByte(typed, 0) >= 0:
		return refuse("holds a NUL byte, which no path can", "")
	case typed == "~" || strings.HasPrefix(typed, "~/"):
		if !filepath.IsAbs(home) {
			return refuse("there is no home directory", "write the whole path")
		}
		path = home + typed[1:]
	case typed[0] == '~':
		return refuse("another user's home is not looked up", "write the whole path")
	case typed[0] != '/':
		return refuse(isRelative, fmt.Sprintf("write the whole path, for example %q", "$PWD/"+strings.TrimPrefix(shortText(typed), "./")))
	}
	if len(path) >= maxPath {
		return refuse(fmt.Sprintf("is %d bytes long; the system allows %d", len(path), maxPath-1), "")
	}
	for name := range strings.SplitSeq(path, "/") {
		if len(name) > maxComponent {
			return refuse(fmt.Sprintf("has a name of %d bytes; the system allows %d", len(name), maxComponent), "")
		}
	}
	return filepath.Clean(path), nil
}

// TypedPath is ExpandPath for a path on a command line, which may be relative to a directory, as in
// a shell.
func TypedPath(typed, directory, home string) (string, error) {
	if typed != "" && typed[0] != '/' && typed[0] != '~' {
		typed = directory + "/" + typed
	}
	return ExpandPath(typed, home)
}

// listedPath is TypedPath for one of an option's many. What begins with "-" is the next option,
// where a path was forgotten.
func listedPath(typed, directory, home string) (string, error) {
	if strings.HasPrefix(typed, "-") {
		return "", &PathError{typed, "looks like an option", "write ./ before it"}
	}
	return TypedPath(typed, directory, home)
}

// Within reports whether path is dir or lies below it, component by component. Both are absolute
// and clean.
func Within(path, dir string) bool {
	if dir == "/" || path == dir {
		return true
	}
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

func shortText(text string) string {
	if len(text) > 40 {
		return text[:40] + "…"
	}
	return text
}

// ParseGrant reads PATH[:ro|:cow|:rw][:explicit], as --grant takes it; read-only if it does not
// say. A relative path is below the directory. The long names of the access are understood as well.
// A path with a colon in its last name needs the access written out: what stands behind the colon
// could be a mistyped access, and would make another path of the one that was meant.
func ParseGrant(text, directory, home string) (Grant, error) {
	path, explicit := strings.CutSuffix(text, ":explicit")
	access := ReadOnly
	if i := strings.LastIndexByte(path, ':'); i >= 0 {
		said, err := ParseAccess(path[i+1:])
		switch {
		case err == nil:
			path, access = path[:i], said
		case !strings.Contains(path[i+1:], "/"):
			return Grant{}, &PathError{text, fmt.Sprintf("%q is no access", shortText(path[i+1:])), "write ro, cow or rw behind the last colon, also where the path itself has one: PATH:ro"}
		}
	}
	path, err := listedPath(path, directory, home)
	if err != nil {
		return Grant{}, err
	}
	return Grant{Path: path, Access: access, Origin: Origin{OriginFlag, "--grant " + printable(text)}, Explicit: explicit}, nil
}
