package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// commandPattern is the pattern of an entry for one line as it is written. It names no path, and
// allows no other line.
func commandPattern(text string) string {
	sum := sha256.Sum256([]byte(strings.TrimSpace(text)))
	return commandPrefix + hex.EncodeToString(sum[:])[:16]
}

// AllowAlways is what an answer "always" stores for a line: for each command the real path of its
// program with a hash of its arguments and the working directory, or, where the person chose so in
// as many words, the path alone. Nothing is stored for wrappers and shells; for an interpreter, or
// a program that runs others, only the line as a whole.
//
// As is the command as it is compared the next time: for a shell's line the line alone, else its
// words.
func (r *Evaluation) AllowAlways(text string, as []string, cwd string, pathAlone, strictInline bool) []Entry {
	if r.Denied != nil || strictInline && len(r.Inline) > 0 {
		return nil
	}
	var entries []Entry
	whole := r.Refusal != nil || r.HereDocument
	if !whole {
		entries, whole = storable(r.Commands, cwd, pathAlone)
	}
	if whole {
		// The pattern holds a part of a hash, and no directory: the argument pattern holds both in
		// full.
		entries = append(entries, Entry{Pattern: commandPattern(text), ArgPattern: hashArguments(cwd, as), Source: sourceAllowAlways, Env: r.env, Content: r.contents})
	}
	return entries
}

// storable are the entries for commands, up to the last that needed an answer. It says too whether
// one of them has none.
func storable(commands []*Command, cwd string, pathAlone bool) (entries []Entry, whole bool) {
	last := len(commands) - 1
	for last >= 0 && commands[last].By != ByNothing {
		last--
	}
	if last < 0 {
		last = len(commands) - 1
	}
	for _, c := range commands[:last+1] {
		if c.By == ByShell {
			continue
		}
		// What another command prints is a part of what the answer was given for.
		if c.piped || c.segment.Here != nil {
			whole = true
			continue
		}
		if c.cwd != "" {
			cwd = c.cwd
		}
		list, ok := c.storable(cwd, pathAlone)
		whole = whole || !ok
		for _, e := range list {
			if !slices.ContainsFunc(entries, func(have Entry) bool { return have.Pattern == e.Pattern && have.ArgPattern == e.ArgPattern }) {
				entries = append(entries, e)
			}
		}
	}
	return entries, whole
}

func (c *Command) storable(cwd string, pathAlone bool) ([]Entry, bool) {
	if c.shell {
		if c.Script != "" && c.Denied == nil {
			return c.entryFor(Executable{Path: c.Script, Real: c.Script}, c.inner[c.scriptAt+1:], cwd, pathAlone), true
		}
		// The line of a shell that is refused whatever is stored for its commands is asked for
		// again.
		entries, whole := storable(c.Inner, cwd, pathAlone)
		return entries, !whole && len(c.Inner) > 0 && c.By == ByPayload
	}
	word, real := c.Executable.names()
	if c.opaque || c.Denied != nil || c.Executable.Real == "" || !sameByName(word, real) || interpreter(familyOf(word)) || interpreter(familyOf(real)) {
		return nil, false
	}
	return c.entryFor(c.Executable, c.inner[1:], cwd, pathAlone), true
}

// entryFor is for a program with its arguments in its directory, with the variables that are set
// for it, and as long as its files of code are what they are.
func (c *Command) entryFor(exec Executable, args []string, cwd string, pathAlone bool) []Entry {
	e := Entry{Pattern: exec.Real, Source: sourceAllowAlways, Env: c.env, Content: c.contents}
	if !pathAlone {
		e.ArgPattern = hashArguments(cwd, args)
		return []Entry{e}
	}
	entries := []Entry{e}
	if exec.Path != exec.Real {
		e.Pattern = exec.Path
		entries = append(entries, e)
	}
	return entries
}

// allowsLine says whether a command as a whole was allowed for good. The text alone is not enough:
// the words rg and $(id) have the text of a line in which a shell would run id.
func (l *Lists) allowsLine(text string, as []string, cwd string, content func() string) *Entry {
	pattern := ""
	for i := range l.allow.rules {
		r := &l.allow.rules[i]
		if !r.command || !r.durable() {
			continue
		}
		if pattern == "" {
			pattern = commandPattern(text)
		}
		if strings.TrimSpace(r.Pattern) == pattern && r.hasArgs && r.args.hash != "" && r.args.Match(cwd, as) && r.Env == l.environment(nil) && r.Content == content() {
			entry := r.Entry
			return &entry
		}
	}
	return nil
}
