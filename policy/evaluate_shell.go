package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

func shellName(exec Executable) string {
	word, real := exec.names()
	for _, base := range [...]string{real, word} {
		for _, name := range canonicalNames(base) {
			if isShell(name) {
				return name
			}
		}
	}
	return ""
}

// multiplexed is busybox or toybox. An entry for its path would allow all that it can do, so only
// an entry whose argument pattern names the applet counts, and never for a shell.
func (e *evaluator) multiplexed(c *Command, u unwrapped, exec Executable, grows bool) {
	c.opaque = true
	e.denyAnyWord(c, c.inner)
	if c.Denied != nil {
		return
	}
	c.Why = "busybox and toybox do what their argument says: only an entry with an argument pattern allows an applet"
	applet := baseOf(exec.Word)
	if isMultiplexer(applet) && len(c.inner) > 1 {
		applet = c.inner[1]
	}
	if isShell(applet) || isWrapper(applet) || interpreter(familyOf(applet)) || baseOf(exec.Word) != baseOf(exec.Real) {
		return
	}
	r := match(&e.lists.allow, e.machine, e.use(exec, c.inner[1:], grows))
	if r != nil && r.hasArgs && len(u.Outer) == 0 {
		c.opaque = false
		c.allow(ByAllowlist, r)
		c.Inline = understand([]string{applet}, c.inner[slices.Index(c.inner, applet):], e.circumstance(c)).inline
		c.rebuilt = append([]string{exec.Real}, c.inner[1:]...)
	}
}

// carry looks at the commands in the arguments of find and xargs: each must be allowed by itself.
func (e *evaluator) carry(c *Command, name string, depth int) {
	list, own, ok := carriedCommands(name, c.inner)
	if !ok {
		c.By, c.opaque, c.Why = ByNothing, true, "the command that it would run is not clear"
		e.denyAnyWord(c, c.inner)
		return
	}
	c.Inline = understand([]string{name}, own, e.circumstance(c)).inline
	shift := 0
	for _, part := range list {
		inner := e.command(c.inner[part.from:part.to], depth+1, part.grows)
		c.Inner = append(c.Inner, inner)
		switch {
		case inner.Denied != nil:
			c.Denied, c.By, c.Why = inner.Denied, ByNothing, inner.Why
		case inner.By == ByNothing || inner.By == ByPayload:
			c.By, c.Why = ByNothing, "the command that it would run is not allowed: "+inner.Why
		default:
			c.Durable = c.Durable && inner.Durable
			at := part.from + shift
			words := append(append([]string{}, c.rebuilt[:at]...), inner.rebuilt...)
			c.rebuilt = append(words, c.rebuilt[at+part.to-part.from:]...)
			shift += len(inner.rebuilt) - (part.to - part.from)
		}
	}
}

// shell is a command that starts a shell. No entry for the shell's own path allows what it is told
// to do.
func (e *evaluator) shell(c *Command, use ShellUse, exec Executable, depth int, grows bool) {
	c.shell, c.scriptAt = true, use.Script
	switch {
	case c.Denied != nil:
	case use.Inline:
		e.payload(c, use, depth, grows)
	case use.Script == 0 || use.Unclear:
		c.Why, c.opaque = use.Name+" would read its commands from its input, or has flags that change what it reads", true
		e.denyAnyWord(c, c.inner)
	default:
		e.script(c, use, exec, grows)
	}
}

// payload is the line behind -c. It counts where it is a list of commands, each of which is
// allowed, and where nothing but the line decides what runs. A shell around a single command only
// hides it: the command alone is what an entry is for.
func (e *evaluator) payload(c *Command, use ShellUse, depth int, grows bool) {
	segments, refusal := e.lists.read(e.machine, use.Payload, e.cwd)
	if refusal != nil {
		c.Why, c.opaque = fmt.Sprintf("in the line for %s, %v", use.Name, refusal), true
		return
	}
	satisfied, durable, portable := true, true, true
	defer func(cwd string) { e.cwd, e.found = cwd, nil }(e.cwd)
	for i, s := range segments {
		inner := e.segment(s, depth+1)
		inner.piped = i > 0 && segments[i-1].Operator == Pipe
		c.Inner = append(c.Inner, inner)
		satisfied = satisfied && inner.By != ByNothing && inner.By != ByPayload && !s.HereDocument
		durable = durable && inner.Durable
		portable = portable && s.Portable
		if inner.Denied != nil {
			c.Denied = inner.Denied
		}
	}
	switch {
	case c.Denied != nil:
		c.Why = fmt.Sprintf("the deny entry %s forbids it", quote(c.Denied.Pattern))
	case !use.Exact:
		c.Why = fmt.Sprintf("%s has more arguments than -c and a line", use.Name)
	case depth > 0 || grows || len(c.Wrappers) > 0:
		c.Why = "a shell within another command"
	case !readsLikeSh(use.Name) && !portable:
		c.Why = use.Name + " reads quotes otherwise than sh"
	case !readsLikeSh(use.Name) && use.Name != "zsh" && use.Name != "fish":
		c.Why = use.Name + " is not a shell whose lines are analysed"
	case len(segments) == 1:
		c.Why = "a shell around one command: an entry is for the command alone"
	case !satisfied:
		c.Why = "not every command of its line is allowed"
	default:
		c.allow(ByPayload, nil)
		c.Durable = durable
		// The host's own sh runs what was analysed, not the shell that was named.
		c.rebuilt = []string{e.machine.Shell, "-c", joined(c.Inner)}
	}
}

// script is a shell with the name of a file: the file is what an entry allows.
func (e *evaluator) script(c *Command, use ShellUse, shell Executable, grows bool) {
	name := c.inner[use.Script]
	path := name
	if !filepath.IsAbs(path) {
		path = e.cwd + "/" + path
	}
	kind, err := e.machine.Files.Stat(path)
	if err != nil || kind != fileRegular && kind != fileExecutable || !strings.Contains(name, "/") {
		c.Why, c.opaque = fmt.Sprintf("%s is not the path of a script", quote(name)), true
		return
	}
	real, err := e.machine.Files.Real(path)
	if err != nil || !e.machine.trusts(shell.Real) {
		c.Why, c.opaque = "the shell is not one of the system's", true
		return
	}
	script := Executable{Word: name, Path: filepath.Clean(path), Real: real}
	if strings.Contains(path, "..") {
		script.Path = real
	}
	c.Script = real
	args := c.inner[use.Script+1:]
	as := e.bound(c, script, args, grows)
	if r := denies(e.lists.deny, e.machine, as); r != nil {
		c.deny(r)
		return
	}
	if r := match(&e.lists.allow, e.machine, as); r != nil && !r.any {
		c.allow(ByAllowlist, r)
		c.rebuilt = append([]string{shell.Real, real}, args...)
		return
	}
	c.Why = fmt.Sprintf("no entry allows the script %s", real)
}

// wrapped puts the wrappers back that do something, by their real paths. They must be the system's
// own; env does nothing.
func (e *evaluator) wrapped(c *Command, u unwrapped) {
	if c.By == ByNothing || c.rebuilt == nil {
		return
	}
	var outer []string
	for i, words := range u.Outer {
		if u.Wrappers[i] == "env" {
			continue
		}
		exec, err := e.find(words[0])
		if err != nil || !e.machine.trusts(exec.Real) || baseOf(exec.Real) != u.Wrappers[i] {
			c.By, c.Why = ByNothing, fmt.Sprintf("the wrapper %s is not one of the system's programs", words[0])
			return
		}
		outer = append(append(outer, exec.Real), words[1:]...)
	}
	c.rebuilt = append(outer, c.rebuilt...)
}
