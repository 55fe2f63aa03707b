package sandbox

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
)

// inside is the file system as the command will find it: a plan laid over the host's tree. It
// answers before anything is mounted, because a sandbox shows nothing that the plan does not name.
type inside struct {
	plan *Plan
	host Tree
}

// decides returns the step that makes path what it is: the last one in mounting order at or above
// it. It is nil on the empty root. A seal changes nothing but writing.
func (p *Plan) decides(path string) *Step {
	for i := len(p.Steps) - 1; i >= 0; i-- {
		if step := &p.Steps[i]; step.Kind != Seal && within(path, step.Path) {
			return step
		}
	}
	return nil
}

func (in inside) Lstat(path string) (Object, error) {
	step := in.plan.decides(path)
	switch {
	case step != nil && step.Source == ownProgram:
		return Object{Mode: 0o755}, nil // a file, wherever it is
	case step != nil && step.Layer != "" && step.Kind == Bind && !step.strict():
		return in.layered(step, path)
	case step != nil && step.Kind == Bind:
		object, err := in.host.Lstat(step.on(path))
		if err != nil && step.Image && in.hasBelow(path) {
			return Object{Mode: fs.ModeDir | 0o755}, nil // what leads through an image to something else
		}
		return object, err
	case step != nil && step.Kind == Private && step.Source != "" && !in.hasBelow(path):
		return in.kept(step.Source + strings.TrimPrefix(path, step.Path))
	case step != nil && step.Path == path && step.Kind == Symlink:
		return Object{Mode: fs.ModeSymlink | 0o777}, nil
	case step != nil && step.Path == path && step.Kind == Socket:
		return Object{Mode: fs.ModeSocket | 0o600}, nil
	case step != nil && step.Path == path && (step.Kind == Copy || step.Kind == Empty):
		return Object{Mode: step.Mode}, nil
	case step != nil && step.Kind == Device:
		return in.host.Lstat(step.Source)
	case inProcesses(path):
		// The sandbox has its own processes. What the host has under these names is not looked at:
		// there are links from there to wherever a process is.
		return Object{Mode: fs.ModeDir | 0o555}, nil
	case step != nil && (step.Kind == Proc || step.Kind == Dev):
		if name, below := strings.CutPrefix(path, "/dev/"); step.Kind == Dev && below && !in.hasBelow(path) {
			if name, _, _ = strings.Cut(name, "/"); !slices.Contains(ownDevices, name) {
				return Object{}, &fs.PathError{Op: "lstat", Path: path, Err: syscall.ENOENT}
			}
		}
		return in.host.Lstat(path) // much the same there; nothing of it comes from the host's files
	case in.hasBelow(path):
		return Object{Mode: fs.ModeDir | 0o755}, nil
	}
	return Object{}, &fs.PathError{Op: "lstat", Path: path, Err: syscall.ENOENT}
}

// layered looks at what is seen copy on write: what commands changed, over what the host has.
// Whether they made a directory above anew is not looked at, so something may be taken for there
// that they removed with all around it.
func (in inside) layered(step *Step, path string) (Object, error) {
	changed, err := in.kept(step.changed(path))
	switch {
	case err != nil || path == step.Path:
		return in.host.Lstat(step.on(path))
	case changed.Mode&fs.ModeCharDevice != 0: // what stands for a removed file
		return Object{}, &fs.PathError{Op: "lstat", Path: path, Err: syscall.ENOENT}
	}
	return changed, nil
}

// kept looks at what is kept of this program's for commands, where no path leads.
func (in inside) kept(path string) (Object, error) {
	at, done, err := shut.Reach(path)
	if err != nil {
		return Object{}, err
	}
	defer done()
	return in.host.Lstat(at)
}

// keptLink reads a link there.
func (in inside) keptLink(path string) (string, error) {
	at, done, err := shut.Reach(path)
	if err != nil {
		return "", err
	}
	defer done()
	return in.host.Readlink(at)
}

// changed is where a change of what is at path is kept.
func (s *Step) changed(path string) string {
	return join(s.Layer, mounts.LayerUpper) + strings.TrimPrefix(path, s.Path)
}

// inProcesses reports whether a path is in /proc, and about processes.
func inProcesses(path string) bool {
	name, below := strings.CutPrefix(path, "/proc/")
	name, _, _ = strings.Cut(name, "/")
	return below && (name == "self" || name == "thread-self" || strings.Trim(name, "0123456789") == "")
}

// hasBelow reports whether a step is at path or below it, so that path is at least a directory that
// leads there.
func (in inside) hasBelow(path string) bool {
	return path == "/" || slices.ContainsFunc(in.plan.Steps, func(step Step) bool { return within(step.Path, path) })
}

func (in inside) Readlink(path string) (string, error) {
	if step := in.plan.decides(path); step != nil && step.Kind == Symlink && step.Path == path {
		return step.Source, nil
	}
	if step := in.plan.decides(path); step != nil && step.Source != "" && (step.Kind == Private || step.Purpose == Skills) {
		return in.keptLink(step.Source + strings.TrimPrefix(path, step.Path))
	}
	if step := in.plan.decides(path); step != nil && step.Kind == Bind && step.Layer != "" && !step.strict() {
		if text, err := in.keptLink(step.changed(path)); err == nil {
			return text, nil
		}
	}
	return in.host.Readlink(in.source(path))
}

func (in inside) ReadDir(path string) ([]Entry, error) { return in.host.ReadDir(in.source(path)) }
func (in inside) ReadFile(path string, limit int) (string, error) {
	return in.host.ReadFile(in.source(path), limit)
}

// source is where the host has what a bind shows at a path.
func (in inside) source(path string) string {
	if step := in.plan.decides(path); step != nil && step.Kind == Bind && step.Source != ownProgram {
		return step.on(path)
	}
	return path
}

// A PathStatus is what a command inside can do with one path, and why.
type PathStatus struct {
	Path     string         `json:"path" jsonschema:"as asked for, absolute"`
	Resolved string         `json:"resolved" jsonschema:"where it leads inside, as far as it leads"`
	Visible  bool           `json:"visible" jsonschema:"whether the command sees something there"`
	Access   profile.Access `json:"access" jsonschema:"what the sandbox lets the command do there; the file's own permissions may still refuse it"`
	Rule     *Step          `json:"rule,omitempty" jsonschema:"the mount that decides; not there for the sandbox's own empty root"`
	Why      string         `json:"why" jsonschema:"for a person"`
	OnHost   bool           `json:"onHost" jsonschema:"whether the host has the path; if it does and the sandbox does not, a grant would show it"`
}

// Look answers for one absolute path whether it can be seen inside, and which rule decides. A
// file's own permissions may still refuse what the sandbox allows.
func (p *Plan) Look(host Tree, path string) PathStatus {
	w, err := follow(inside{p, host}, path)
	_, hostErr := follow(withoutProcesses{host}, path)
	status := PathStatus{Path: path, Resolved: w.Real, Visible: err == nil, OnHost: hostErr == nil}
	if err != nil {
		status.Resolved = strings.TrimSuffix(w.Real, "/") + "/" + strings.Join(w.Rest, "/")
	}
	status.Rule = p.decides(status.Resolved)
	if status.Rule != nil && status.Rule.Purpose == Hides {
		status.Visible, err = false, syscall.ENOENT // what stands there is not what was asked for
	}
	status.Access, status.Why = p.judge(status)
	if !status.Visible && !errors.Is(err, syscall.ENOENT) {
		status.Why = reason(err)
	}
	return status
}

// withoutProcesses is a tree as anybody sees it, whichever processes there are.
type withoutProcesses struct{ Tree }

func (t withoutProcesses) Lstat(path string) (Object, error) {
	if inProcesses(path) {
		return Object{}, &fs.PathError{Op: "lstat", Path: path, Err: syscall.ENOENT}
	}
	return t.Tree.Lstat(path)
}

// judge says what may be done at a path, and words it.
func (p *Plan) judge(s PathStatus) (profile.Access, string) {
	step := s.Rule
	switch {
	case step == nil && s.Visible:
		return profile.ReadOnly, "a directory of the sandbox's own that leads to something granted"
	case step == nil && s.OnHost:
		return profile.NoAccess, "nothing grants it: --grant or fs_request_grant can"
	case step == nil:
		return profile.NoAccess, "it does not exist"
	}
	switch step.Kind {
	case Bind:
		if rule, is := p.Protection.awaits(s.Resolved); is && !s.Visible && step.Access == profile.ReadWrite {
			return profile.ReadOnly, "set aside if a command makes it, because something outside would execute it or do as it says: --unprotect " + Quote(rule) +
				" leaves it writable"
		}
		if !s.Visible {
			return profile.NoAccess, "it does not exist in what " + step.Path + " shows"
		}
		if step.Settings {
			return step.Access, "git's settings: a command writes a copy of its own, and what does no harm is carried over to the host's file after the run"
		}
		if step.Purpose == Protects {
			name := "NAME leaves a name writable"
			if rule, is := p.Protection.awaits(step.Path); is {
				name = Quote(rule) + " leaves it writable"
			} else if strings.HasSuffix(step.Path, "/.git/hooks") {
				name = ".git/hooks leaves it writable"
			}
			return step.Access, "protected, because something outside executes it or does as it says: --unprotect " + name
		}
		return step.Access, step.Access.String() + " through " + step.Path
	case Private:
		if step.Purpose == OwnWork {
			return ifVisible(s, profile.ReadWrite), "in the session's own workspace"
		}
		if step.Purpose == OwnHome && step.Source != "" {
			return ifVisible(s, profile.ReadWrite), "in the agent's own home, which lasts and which no other agent sees"
		}
		if s.Resolved == step.Path || s.Visible {
			return profile.ReadWrite, "private to this sandbox, and empty at its start"
		}
		return profile.NoAccess, step.Path + " is private to the sandbox and empty at its start"
	case Mask, Empty:
		switch {
		case step.Purpose == Hides:
			return profile.NoAccess, "hidden: only a grant of its own shows it, --grant " + Quote(s.Path) + ":ro"
		case s.Resolved == step.Path:
			return profile.ReadOnly, "covered: an empty directory stands here"
		}
		return profile.NoAccess, "covered by the empty directory " + step.Path
	}
	switch {
	case !s.Visible:
		return profile.NoAccess, "it does not exist"
	case step.Kind == Device:
		return profile.ReadWrite, "a device of this machine: " + step.Origin.String()
	case step.Kind == Dev:
		return profile.ReadWrite, "one of the sandbox's own few devices"
	}
	return profile.ReadOnly, "the sandbox's own"
}

func ifVisible(s PathStatus, access profile.Access) profile.Access {
	if s.Visible {
		return access
	}
	return profile.NoAccess
}

// checkWorkingDirectory refuses a working directory that the command could not be in.
func (p *Plan) checkWorkingDirectory(host Tree) error {
	w, err := follow(inside{p, host}, p.WorkingDirectory)
	switch {
	case err != nil:
		return &SetupError{Path: p.WorkingDirectory, Why: "cannot be the working directory: " + reason(err) + " inside the sandbox",
			Hint: "grant it with --grant, or choose another with --cwd DIR"}
	case !w.Object.Mode.IsDir():
		return &SetupError{Path: p.WorkingDirectory, Why: "cannot be the working directory: not a directory", Hint: "choose another with --cwd DIR"}
	}
	return nil
}

// Find looks a command up as execvp(3) will inside: a name without a slash in the PATH of the
// sandbox, anything else from the working directory. The error is a *CommandError.
func (p *Plan) Find(host Tree, name string) error {
	view := inside{p, host}
	if name == "" {
		return &CommandError{Name: name, Why: "an empty command"}
	}
	if strings.Contains(name, "/") {
		if !path.IsAbs(name) {
			name = path.Join(p.WorkingDirectory, name)
		}
		return p.executable(view, name)
	}
	failure := &CommandError{Name: name, Why: "command not found inside the sandbox"}
	for _, dir := range strings.Split(p.variable("PATH"), ":") {
		if !path.IsAbs(dir) {
			dir = path.Join(p.WorkingDirectory, dir)
		}
		err := p.executable(view, join(path.Clean(dir), name))
		if err == nil {
			return nil
		}
		if found := err.(*CommandError); found.Found {
			failure = found // as execvp does: remember it, look on
		}
	}
	if !failure.Found {
		failure.Hint = p.hiddenCommand(host, name)
	}
	return failure
}

// executable says why the command at an absolute path could not be started, if it could not.
func (p *Plan) executable(view inside, name string) error {
	w, err := follow(view, name)
	switch {
	case err != nil && (errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR)):
		failure := &CommandError{Name: name, Why: "no such file inside the sandbox"}
		if _, err := follow(view.host, name); err == nil && p.Rootfs == nil {
			failure.Why = "exists on the host, but nothing grants it to the sandbox"
			failure.Hint = "grant it, for example with --grant " + Quote(parent(name)) + ":ro"
		}
		return failure
	case err != nil:
		return &CommandError{Name: name, Found: true, Why: reason(err)}
	case w.Object.Mode.IsDir():
		return &CommandError{Name: name, Found: true, Why: "is a directory"}
	case w.Object.Mode.IsRegular() && w.Object.Mode.Perm()&0o111 == 0:
		return &CommandError{Name: name, Found: true, Why: "not executable", Hint: "chmod +x " + Quote(name)}
	}
	return nil
}

// hiddenCommand tells of a command that the host has in a directory that the sandbox does not show.
func (p *Plan) hiddenCommand(host Tree, name string) string {
	if p.Rootfs != nil {
		return "image " + p.Rootfs.Name + " does not have it in $PATH"
	}
	for _, dir := range strings.Split(p.variable("PATH"), ":") {
		if w, err := follow(host, join(path.Clean(dir), name)); path.IsAbs(dir) && err == nil && w.Object.Mode.IsRegular() {
			dir = parent(w.Real)
			return "the host has it in " + printable(dir) + ", which nothing grants: --grant " + Quote(dir) + ":ro"
		}
	}
	return ""
}

func (p *Plan) variable(name string) string {
	for _, v := range p.Environment {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}
