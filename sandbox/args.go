package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
)

// Args is the plan as bwrap's options, with every source by its path. Run uses the same options
// with descriptors in place of the paths; this form is for people to read, and for a shell to run.
func (p *Plan) Args() []string {
	bare := p.bare()
	return bare.args(func(step Step) (string, string) {
		switch step.Kind {
		case Copy:
			return "", step.Source
		case Empty:
			return "", os.DevNull
		case Private:
			return "--bind", step.Source
		case Device:
			return optionDevice, step.Source
		}
		return bindOption(step.Access), step.Source
	})
}

// bare is the plan without what only the launcher can add: the program of a filtered network would
// be bwrap itself, and directories are not shown entry by entry.
func (p *Plan) bare() Plan {
	bare := *p
	bare.Steps = slices.DeleteFunc(slices.Clone(p.Steps), func(step Step) bool {
		return step.Purpose == Leads || step.Source == ownProgram || step.ofLayer()
	})
	bare.forgetOwn()
	return bare
}

// args writes the options. source gives, for each Bind, the option and its operand; for
// each Copy and Empty, the operand.
func (p *Plan) args(source func(Step) (option, operand string)) []string {
	args := make([]string, 0, 64+4*len(p.Steps)+3*len(p.Environment))
	add := func(words ...string) { args = append(args, words...) }

	// The user namespace by name: for uid 0, bwrap leaves it out silently where it is only implied.
	add("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
	if p.Network != profile.NetworkEnabled {
		add("--unshare-net")
	}
	if !p.NestedNamespaces {
		add("--disable-userns")
	}
	add("--cap-drop", "ALL", "--die-with-parent")

	for _, step := range p.Steps {
		option, operand := "", ""
		if step.Kind == Bind || step.Kind == Copy || step.Kind == Empty || step.Kind == Socket || step.Kind == Device ||
			step.Kind == Private && step.Source != "" {
			option, operand = source(step)
		}
		args = append(args, step.args(option, operand)...)
	}
	for _, v := range p.Environment {
		add("--setenv", v.Name, v.Value)
	}
	add("--chdir", p.WorkingDirectory)
	return args
}

func (s Step) args(option, operand string) []string {
	perms := fmt.Sprintf("%04o", uint32(s.Mode))
	switch s.Kind {
	case Bind, Device:
		return []string{option, operand, s.Path}
	case Socket:
		if operand == "" {
			return nil // only a launcher can listen
		}
		return []string{option, operand, s.Path}
	case Private, Mask:
		if operand != "" {
			return []string{option, operand, s.Path}
		}
		return []string{"--perms", perms, "--tmpfs", s.Path}
	case Dir:
		return []string{"--perms", perms, "--dir", s.Path}
	case Copy:
		return []string{"--perms", perms, "--file", operand, s.Path}
	case Empty:
		return []string{"--perms", perms, "--ro-bind-data", operand, s.Path}
	case Symlink:
		return []string{"--symlink", s.Source, s.Path}
	case Proc:
		return []string{"--proc", s.Path}
	case Dev:
		return []string{"--dev", s.Path}
	case Seal:
		return []string{"--remount-ro", s.Path}
	}
	panic("sandbox: a step without a kind")
}

// optionDevice binds, and leaves devices what they are.
const optionDevice = "--dev-bind"

func bindOption(access profile.Access) string {
	if access == profile.ReadWrite {
		return "--bind"
	}
	return "--ro-bind"
}

// Quote writes a word so that a POSIX shell reads it as exactly that word.
func Quote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@+=,%"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Beyond lists, a line each, what a sandbox of this plan has and that of ShellCommand lacks.
func (p *Plan) Beyond() []string {
	lines := []string{"a system call filter: " + filtered(p)}
	if p.locksFiles() {
		lines = append(lines, "a Landlock layer: nothing is opened but what is shown, and no signals and abstract sockets across the edge")
	}
	for _, step := range p.Steps {
		switch {
		case step.Entries:
			lines = append(lines, "entry by entry, so that what comes later is not seen: "+printable(step.Path))
		case step.strict():
			lines = append(lines, "written to the host when the command has ended, and kept in "+printable(step.Layer)+" until then: "+printable(step.Path))
		case step.Layer != "" && step.Kind == Bind:
			lines = append(lines, "copy on write, changes kept in "+printable(step.Layer)+": "+printable(step.Path))
		case step.Purpose == OwnWork && step.Source != "":
			lines = append(lines, "the session's own workspace, kept in "+printable(step.Source)+": "+printable(step.Path))
		case step.Purpose == OwnHome && step.Source != "":
			lines = append(lines, "the agent's own home, kept in "+printable(step.Source)+": "+printable(step.Path))
		case step.Purpose == Caches && step.Kind == Symlink:
			lines = append(lines, "a cache of the agent's own, kept in "+printable(p.cachesLayer())+": "+printable(step.Path))
		case step.Pinned && step.Purpose == "":
			lines = append(lines, "mounted by descriptor, through no link that a command could have made: "+printable(step.Path))
		}
	}
	for _, held := range p.HeldLimits() {
		lines = append(lines, fmt.Sprintf("limit %s=%s", held.Limit, held.Amount))
	}
	if p.Limits.Timeout > 0 {
		lines = append(lines, "timeout "+p.Limits.Timeout.String())
	}
	if p.Network == profile.NetworkFiltered {
		lines = append(lines, "the way out of the filtered network; without it there is no network")
	}
	for _, port := range p.Published {
		lines = append(lines, fmt.Sprintf("port %d inside, reached at 127.0.0.1:%d", port.Inside, port.Host))
	}
	return append(lines, "a watch, which sets aside what is made that something outside would execute")
}

// ShellCommand is a command line that starts the plan's sandbox from a shell: bare bwrap, without
// this program. It lacks what only the launcher can add: pinned sources, the watch, the seccomp
// filter, Landlock, the timeout, and the way out of a filtered network, which is as disabled there.
func (p *Plan) ShellCommand(bwrap Bwrap, command []string) string {
	var line strings.Builder
	line.WriteString("env -i " + Quote(bwrap.Path))
	copies := 0
	var redirections []string
	bare := p.bare()
	args := bare.args(func(step Step) (string, string) {
		source := step.Source
		switch step.Kind {
		case Bind:
			return bindOption(step.Access), source
		case Private:
			return "--bind", source
		case Device:
			return optionDevice, source
		case Empty:
			source = os.DevNull
		}
		copies++
		fd := strconv.Itoa(copies + 2)
		redirections = append(redirections, fd+"<"+Quote(source))
		return "", fd
	})
	if !bwrap.Has(optionDisableUserns) {
		args = without(args, optionDisableUserns)
	}
	args = append(args, "--new-session", "--")
	for i, word := range append(args, command...) {
		if i < len(args) && strings.HasPrefix(word, "--") && word != "--" {
			line.WriteString(" \\\n ")
		}
		line.WriteString(" " + Quote(word))
	}
	for _, r := range redirections {
		line.WriteString(" \\\n  " + r)
	}
	return line.String()
}

// bindDescriptor binds what a descriptor has open.
func (a *attempt) bindDescriptor(step Step, file descriptor.File, byDescriptor bool) operand {
	fd := a.pass(file)
	if byDescriptor {
		return operand{bindOption(step.Access) + "-fd", fd}
	}
	return operand{bindOption(step.Access), "/proc/self/fd/" + fd}
}
