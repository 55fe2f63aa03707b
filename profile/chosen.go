package profile

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/clairun/clai-sandbox/profile/written"
)

// Variables that name programs elsewhere than where they are looked for.
const (
	BwrapVariable  = "CLAI_SANDBOX_BWRAP"
	DaemonVariable = "CLAI_SANDBOX_DAEMON"
)

// choosing are the variables that choose what this program believes, where it is, and what it
// executes.
var choosing = []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", StateVariable, "XDG_RUNTIME_DIR", "XDG_DATA_HOME", BwrapVariable, DaemonVariable}

const moveIt = "unset it, or move what it names out of there"

// checkChosen refuses an environment in which one of them leads to where a command in a sandbox
// could write. It need not be the person's: programs of agents take variables from a file of the
// project that they are started in, and pass them on. What commands could write is told by the
// usual account, too, whatever the environment says of the state.
func (c Caller) checkChosen() error {
	for _, name := range choosing {
		where := c.variable(name)
		if !filepath.IsAbs(where) {
			continue
		}
		if c.inProject(where) {
			return &ConfigError{File: "the environment", Key: name, Why: "is " + Printable(where) + ", in the very project that this is called in", Hint: moveIt}
		}
		accounts, err := c.accounts()
		if err != nil {
			return err
		}
		for _, path := range []string{filepath.Clean(where), settledPath(where)} {
			if slices.ContainsFunc(accounts, func(list written.List) bool { return list.Holds(path, byPath) }) {
				return &ConfigError{File: "the environment", Key: name, Why: "is " + Printable(where) + ", where a command in a sandbox could write, so that it may be such a command's choice", Hint: moveIt}
			}
		}
	}
	return nil
}

// CouldBeChosen reports whether a command in a sandbox, or a project, could have chosen what is at
// a path.
func (c Caller) CouldBeChosen(path string) bool {
	accounts, err := c.accounts()
	return err != nil || c.inProject(path) || slices.ContainsFunc(accounts, func(list written.List) bool {
		return list.Holds(filepath.Clean(path), byPath) || list.Holds(settledPath(path), byPath)
	})
}

// inProject reports whether a path is in the working directory, or in the repository that this is
// in: a project that was cloned may choose it, before any command wrote. The home is no project,
// nor is what holds it.
func (c Caller) inProject(path string) bool {
	top := c.WorkingDirectory
	if top == "" || Within(c.Home, top) || slices.ContainsFunc([]string{".config", ".local/state", ".local/share"}, func(usual string) bool { return path == filepath.Join(c.Home, usual) }) {
		return false
	}
	for dir := top; c.owns(dir) && !Within(c.Home, dir); dir = filepath.Dir(dir) {
		if c.owns(filepath.Join(dir, ".git")) {
			top = dir
			break
		}
	}
	return Within(filepath.Clean(path), top) || Within(settledPath(path), top)
}

// accounts are of what commands could write, as the environment says where that is, and where it
// usually is.
func (c Caller) accounts() (list []written.List, err error) {
	_, home, _ := passwdEntry(c.UID)
	states := []string{c.Directories().State}
	for _, home := range []string{c.Home, home} {
		if filepath.IsAbs(home) {
			states = append(states, filepath.Join(home, ".local/state", ownName))
		}
	}
	slices.Sort(states)
	for _, state := range slices.Compact(states) {
		account, err := written.Read(filepath.Join(state, WrittenName))
		if err != nil && !errors.Is(err, fs.ErrPermission) { // the home of somebody else says nothing of us
			return nil, err
		}
		list = append(list, account)
	}
	return list, nil
}

// byPath has a directory known by its path alone.
func byPath(string) (device, inode uint64) { return 0, 0 }

// settledPath is where a path leads, as far as there is something.
func settledPath(path string) string {
	for at, rest := filepath.Clean(path), ""; ; at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if at == "/" {
			return path
		}
	}
}
