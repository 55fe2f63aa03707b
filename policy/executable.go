package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A Machine is the host that will run a command, as the policy sees it.
type Machine struct {
	Files Files
	Path  []string // where a bare name is looked for: the host's own PATH, never a request's
	Home  string
	// Planted reports whether what a path leads to could be a sandboxed command's own work. Such a
	// program is not taken for a bare name. Nil: nothing is.
	Planted func(path string) bool
	Trusted []string // directories whose programs are what their names say: /bin and /usr/bin
	Shell   string   // runs the lines that are built anew: /bin/sh
}

// NewMachine is this host with a given PATH and home directory.
func NewMachine(path, home string) *Machine {
	return &Machine{Files: Disk{}, Path: filepath.SplitList(path), Home: home, Trusted: []string{"/bin", "/usr/bin"}, Shell: "/bin/sh"}
}

// An Executable is what the first word of a command leads to.
type Executable struct {
	Word string `json:"word"` // as it was written
	Path string `json:"path"` // absolute, links not followed
	Real string `json:"real"` // links followed: this is what runs
}

// A NotFoundError says that there is no program for a word.
type NotFoundError struct{ Word, Why string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("%q %s", e.Word, e.Why) }

// Find resolves the first word of a command.
func (m *Machine) Find(word, cwd string) (Executable, error) {
	if word == "" || strings.IndexByte(word, 0) >= 0 {
		return Executable{Word: word}, &NotFoundError{word, "is no program's name"}
	}
	if strings.Contains(word, "/") {
		path := word
		if !filepath.IsAbs(path) {
			if !filepath.IsAbs(cwd) {
				return Executable{Word: word}, &NotFoundError{word, "has no working directory to start from"}
			}
			path = cwd + "/" + word
		}
		return m.resolve(word, path)
	}
	why := "is not on the host's PATH"
	for _, dir := range m.Path {
		// An empty or relative element would be the working directory, which the command's author
		// may write.
		if !filepath.IsAbs(dir) {
			continue
		}
		path := dir + "/" + word
		if kind, err := m.Files.Stat(path); err == nil && kind == fileExecutable {
			e, err := m.real(word, path)
			if err == nil && m.Planted != nil && m.Planted(e.Path) {
				why = "is on the host's PATH only where a command in a sandbox could have put it: name it by its path"
				continue
			}
			return e, err
		}
	}
	return Executable{Word: word}, &NotFoundError{word, why}
}

func (m *Machine) resolve(word, path string) (Executable, error) {
	none := Executable{Word: word}
	kind, err := m.Files.Stat(path)
	switch {
	case err != nil:
		return none, &NotFoundError{word, "does not exist"}
	case kind == fileDirectory:
		return none, &NotFoundError{word, "is a directory"}
	case kind != fileExecutable:
		return none, &NotFoundError{word, "is not executable"}
	}
	return m.real(word, path)
}

func (m *Machine) real(word, path string) (Executable, error) {
	real, err := m.Files.Real(path)
	if err != nil {
		return Executable{Word: word}, &NotFoundError{word, "cannot be resolved"}
	}
	e := Executable{Word: word, Path: filepath.Clean(path), Real: real}
	// Taken by the letter, ".." behind a link leads elsewhere than in the kernel: only the real
	// path is true.
	if strings.Contains(path, "..") && slices.Contains(strings.Split(path, "/"), "..") {
		e.Path = real
	}
	return e, nil
}

// trusts says whether a real path lies right in a trusted directory.
func (m *Machine) trusts(real string) bool {
	dir := filepath.Dir(real)
	for _, t := range m.Trusted {
		if t == dir {
			return true
		}
		if r, err := m.Files.Real(t); err == nil && r == dir {
			return true
		}
	}
	return false
}

// otherNames are the names that a path has through another trusted directory: /bin/ls is
// /usr/bin/ls where /bin is a link.
func (m *Machine) otherNames(path string) []string {
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	var list []string
	for _, t := range m.Trusted {
		if t == dir {
			continue
		}
		if r, err := m.Files.Real(t); err == nil && r == dir {
			list = append(list, t+"/"+base)
		}
	}
	return list
}

// names are the names by which a program counts as one of the special ones: a link does not hide
// what it leads to.
func (e Executable) names() (string, string) { return baseOf(e.Word), baseOf(e.Real) }

func baseOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// familyOf is a program's name without its version: python3.11 is python.
func familyOf(base string) string {
	base = strings.TrimSuffix(strings.ToLower(base), ".exe")
	return strings.TrimRight(base, "0123456789.-_")
}
