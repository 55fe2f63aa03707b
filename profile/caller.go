package profile

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Caller is who asks for a sandbox, and from where.
type Caller struct {
	UID              int
	Home             string // absolute
	User, Shell      string
	Environ          []string // NAME=VALUE, as os.Environ has it
	WorkingDirectory string
	// Repository is the top of the git repository that the working directory is in, if that is a
	// directory above it. The whole of it is the workspace of whoever names none: a commit, a
	// checkout and a merge write in all of it.
	Repository string
}

// CurrentCaller is the user of this process. The environment says who that is; what it leaves out,
// /etc/passwd does. The error says what is missing, or which variable could be a command's choice.
func CurrentCaller() (Caller, error) {
	c := Caller{UID: os.Getuid(), Environ: os.Environ(), Home: os.Getenv("HOME"), User: os.Getenv("USER"), Shell: os.Getenv("SHELL")}
	if c.User == "" {
		c.User = os.Getenv("LOGNAME")
	}
	if !filepath.IsAbs(c.Home) || c.User == "" || !filepath.IsAbs(c.Shell) {
		name, home, shell := passwdEntry(c.UID)
		if !filepath.IsAbs(c.Home) {
			c.Home = home
		}
		if c.User == "" {
			c.User = name
		}
		if !filepath.IsAbs(c.Shell) {
			c.Shell = shell
		}
	}
	if !filepath.IsAbs(c.Home) {
		return c, errors.New("no home directory: set HOME to one")
	}
	c.Home = filepath.Clean(c.Home)
	var err error
	if c.WorkingDirectory, err = os.Getwd(); err != nil {
		return c, fmt.Errorf("working directory: %w; change to a directory that exists", err)
	}
	c.Repository = c.repository()
	return c, c.checkChosen()
}

// repository looks upwards for a directory with a .git. All of them must be the caller's: git does
// nothing in the repository of somebody else either. Neither the home nor what holds this program's
// own files is one.
func (c Caller) repository() string {
	for dir := c.WorkingDirectory; c.owns(dir) && dir != c.Home && !c.Directories().below(dir); dir = filepath.Dir(dir) {
		if c.owns(filepath.Join(dir, ".git")) {
			if _, never := NeverGrantable(dir); never || dir == c.WorkingDirectory {
				return ""
			}
			return dir
		}
	}
	return ""
}

// owns reports whether there is a directory or a file of the caller's.
func (c Caller) owns(path string) bool {
	var stat unix.Stat_t
	err := unix.Lstat(path, &stat)
	return err == nil && int(stat.Uid) == c.UID && (stat.Mode&unix.S_IFMT == unix.S_IFDIR || stat.Mode&unix.S_IFMT == unix.S_IFREG)
}

// passwdEntry looks a user up in /etc/passwd (passwd(5)). Users from elsewhere have their
// environment.
func passwdEntry(uid int) (name, home, shell string) {
	name, shell = strconv.Itoa(uid), "/bin/sh"
	file, err := os.Open("/etc/passwd")
	if err != nil {
		return name, "", shell
	}
	defer file.Close()
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		fields := strings.Split(scanner.Text(), ":")
		if len(fields) >= 7 && fields[2] == strconv.Itoa(uid) {
			if filepath.IsAbs(fields[6]) {
				shell = fields[6]
			}
			return fields[0], fields[5], shell
		}
	}
	return name, "", shell
}

// Directories are where this program keeps its own files. Empty: there is no such place.
type Directories struct {
	SystemConfig string // the administrator's configuration
	Config       string // the user's
	State        string // grants, what is remembered between runs
	Runtime      string // sockets
	// Usual is where the state is of whoever says nothing else, if State is another and there is
	// one. It belongs to another gateway of the same person.
	Usual string
}

const ownName = "clai-sandbox"

// StateVariable names a directory for the state, in place of the one that the XDG variables give.
// It counts if it is absolute.
const StateVariable = "CLAI_SANDBOX_STATE_DIR"

// Directories are the caller's, by the XDG Base Directory Specification: a relative path in a
// variable counts as none.
func (c Caller) Directories() Directories {
	env := func(name, fallback string) string {
		if value := c.variable(name); filepath.IsAbs(value) {
			return filepath.Join(value, ownName)
		}
		if fallback == "" {
			return ""
		}
		return filepath.Join(c.Home, fallback, ownName)
	}
	state := env("XDG_STATE_HOME", ".local/state")
	if own := c.variable(StateVariable); filepath.IsAbs(own) {
		state = filepath.Clean(own)
	}
	usual := filepath.Join(c.Home, ".local/state", ownName)
	if _, err := os.Lstat(usual); err != nil || usual == state {
		usual = ""
	}
	return Directories{
		SystemConfig: "/etc/" + ownName,
		Config:       env("XDG_CONFIG_HOME", ".config"),
		State:        state,
		Runtime:      env("XDG_RUNTIME_DIR", ""),
		Usual:        usual,
	}
}

// DataDirectory is where the workspaces are that this program makes for agents: unlike its own
// directories, they may be granted.
func (c Caller) DataDirectory() string {
	if data := c.variable("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, ownName)
	}
	return filepath.Join(c.Home, ".local/share", ownName)
}

// UsualState reports whether the state is where the system's account of the user has it, whatever
// the environment says. Where the system does not know the user, the usual name does.
func (d Directories) UsualState() bool {
	const usual = "/.local/state/" + ownName
	_, home, _ := passwdEntry(os.Getuid())
	if home == "" {
		return strings.HasSuffix(d.State, usual)
	}
	return d.State == filepath.Clean(home)+usual
}

// variable is one of the caller's, or empty.
func (c Caller) variable(name string) string {
	for _, entry := range c.Environ {
		if value, found := strings.CutPrefix(entry, name+"="); found {
			return value
		}
	}
	return ""
}

// below reports whether one of them is below a directory, as they are below a home.
func (d Directories) below(dir string) bool {
	return slices.ContainsFunc(d.list(), func(own string) bool { return Within(own, dir) && own != dir })
}

// list are the directories that there are.
func (d Directories) list() []string {
	var list []string
	for _, dir := range []string{d.SystemConfig, d.Config, d.State, d.Runtime, d.Usual} {
		if dir != "" {
			list = append(list, dir)
		}
	}
	return list
}
