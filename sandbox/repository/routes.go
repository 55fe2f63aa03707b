package repository

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Where the person's git goes by habit is theirs: which address a branch is fetched from and pushed
// to, which branch of the other side is merged into it, what the name of a remote repository stands
// for. A command's settings are carried over as far as all of that stays what it was. What went
// nowhere may get a place to go to, and once it has one, a later command does not change that,
// either. So one rule holds for one run and for many, and nothing has to be remembered: before and
// after are compared, whatever keys say it.

// Around is what else says where git goes, besides the file that is changed.
type Around struct {
	// Has reports whether a branch is there. Of one that is gone, everything may go. Nil: all are
	// there.
	Has func(branch string) bool
	// Person is what the files of settings say that count in all repositories.
	Person []Setting
	// Worktree says that the file is one working tree's. git writes there nothing of this kind, and
	// so nothing is carried over.
	Worktree bool
}

// routes are what settings say of where git goes.
type routes struct {
	values  map[string][]string
	remotes []string // the names of remote repositories, in the files' order
}

func routesOf(person []Setting, d document) routes {
	r := routes{values: map[string][]string{}}
	for _, s := range append(slices.Clone(person), d.settings()...) {
		r.values[s.Key] = append(r.values[s.Key], s.Value)
		if name, is := strings.CutPrefix(sectionOf(s.Key), "remote."); is && !slices.Contains(r.remotes, name) {
			r.remotes = append(r.remotes, name)
		}
	}
	return r
}

// last is the value of a key that counts, of those that have one.
func (r routes) last(keys ...string) string {
	for _, key := range keys {
		if values := r.values[key]; len(values) > 0 {
			return values[len(values)-1]
		}
	}
	return ""
}

// fetched is the address from which git fetches by a name, pushed are those to which it pushes. A
// name that no remote repository has is an address itself.
func (r routes) fetched(name string) []string {
	if urls := r.values["remote."+name+".url"]; len(urls) > 0 {
		return urls[:1]
	}
	return []string{name}
}

func (r routes) pushed(name string) []string {
	for _, key := range []string{".pushurl", ".url"} {
		if urls := r.values["remote."+name+key]; len(urls) > 0 {
			return urls
		}
	}
	return []string{name}
}

// merged are the branches of the other side that are merged into one by default.
func (r routes) merged(branch string) []string {
	if remote := r.last("branch." + branch + ".remote"); remote == "" || remote == "." {
		return nil
	}
	return r.values["branch."+branch+".merge"]
}

// byDefault is the remote repository of a branch for which none is set: the only one, or origin.
func (r routes) byDefault() string {
	switch {
	case len(r.remotes) == 1:
		return r.remotes[0]
	case slices.Contains(r.remotes, "origin"):
		return "origin"
	}
	return ""
}

// usual is byDefault, or the one that was the only one before others were added.
func (r routes) usual() string {
	if len(r.remotes) > 0 && !slices.Contains(r.remotes, "origin") {
		return r.remotes[0]
	}
	return r.byDefault()
}

// crossing is a look at both.
type crossing struct {
	before, after routes
	changed       map[string]bool // the keys
	keys          map[string]bool // of those, the ones that lead elsewhere
}

// elsewhere are the changed keys by which git would go elsewhere after than before.
func elsewhere(before, after document, around *Around) map[string]bool {
	c := crossing{before: routesOf(around.Person, before), after: routesOf(around.Person, after), changed: map[string]bool{}, keys: map[string]bool{}}
	was, is := before.values(), after.values()
	for _, key := range keys(before, after) {
		c.changed[key] = !slices.Equal(was[key], is[key])
	}
	maps.DeleteFunc(c.changed, func(_ string, changed bool) bool { return !changed })
	if around.Worktree {
		for key := range c.changed {
			if section, _, _ := strings.Cut(key, "."); section == "remote" || section == "branch" || key == "checkout.defaultremote" || key == "push.default" {
				c.keys[key] = true
			}
		}
		return c.keys
	}
	for _, name := range c.before.remotes {
		c.remote(name)
	}
	branches := map[string]bool{"": true} // one of which nothing is said
	for key := range c.changed {
		section := sectionOf(key)
		if name, is := strings.CutPrefix(section, "branch."); is {
			branches[name] = true
		}
		if name, is := strings.CutPrefix(section, "remote."); is && nameOf(key) == "fetch" {
			c.refspecs(name)
		}
	}
	for _, r := range []routes{c.before, c.after} { // what is said of remote repositories may turn those of which nothing has changed
		for key := range r.values {
			if name, is := strings.CutPrefix(sectionOf(key), "branch."); is {
				branches[name] = true
			}
		}
	}
	left := after.sections()
	for name := range branches {
		if name == "" || left["branch."+name] || around.Has == nil || around.Has(name) {
			c.branch(name)
		}
	}
	c.others()
	return c.keys
}

// blame has the first of these keys that was changed left out; of a section, all of it.
func (c *crossing) blame(names ...string) {
	for _, name := range names {
		found := false
		for key := range c.changed {
			if key == name || sectionOf(key) == name && name != "remote" {
				c.keys[key] = true
				found = true
			}
		}
		if found {
			return
		}
	}
}

// remote is about what the name of one that was there stands for, and what is fetched from it.
func (c *crossing) remote(name string) {
	section := "remote." + name
	if !isAmong(c.after.fetched(name), c.before.fetched(name)) {
		c.blame(section + ".url")
	}
	if !isAmong(c.after.pushed(name), c.before.pushed(name)) {
		c.blame(section+".pushurl", section+".url")
	}
	c.blame(section + ".push")
}

// isAmong reports whether all addresses are among others.
func isAmong(list, others []string) bool {
	return !slices.ContainsFunc(list, func(address string) bool { return !slices.Contains(others, address) })
}

// refspecs are about what is fetched: each branch to the place of its name, and no less than
// before.
func (c *crossing) refspecs(name string) {
	key := "remote." + name + ".fetch"
	before, after := c.before.values[key], c.after.values[key]
	isOther := func(value string) bool { return !slices.Contains(before, value) && !isUsual(name, value) }
	if slices.ContainsFunc(after, isOther) || !isAmong(before, after) {
		c.blame(key)
	}
}

// isUsual reports whether a refspec brings branches of a remote repository to where git keeps
// those, each under its name, or tags that are not there yet.
func isUsual(remote, value string) bool {
	from, to, has := strings.Cut(strings.TrimPrefix(value, "+"), ":")
	branch, is := strings.CutPrefix(from, "refs/heads/")
	return is && has && to == "refs/remotes/"+remote+"/"+branch || value == "refs/tags/*:refs/tags/*"
}

// branch is about one branch, or, without a name, about any of which nothing is said.
func (c *crossing) branch(name string) {
	remote, merge, pushRemote := "branch."+name+".remote", "branch."+name+".merge", "branch."+name+".pushremote"
	c.way(routes.fetched, remote)
	c.way(routes.pushed, pushRemote, "remote.pushdefault", remote)
	before, after := c.before.merged(name), c.after.merged(name)
	isOther := func(ref string) bool { return !strings.HasPrefix(ref, "refs/heads/") }
	if len(before) > 0 && !slices.Equal(before, after) || len(before) == 0 && slices.ContainsFunc(after, isOther) {
		c.blame(merge, remote)
	}
	for _, pair := range [][2]string{{remote, merge}, {merge, remote}} { // one says nothing without the other
		if c.keys[pair[0]] {
			c.blame(pair[1])
		}
	}
}

// way is about where git goes by the first of these keys that is set, or else by default. What goes
// nowhere, or to the repository itself, may go where it would go by default.
func (c *crossing) way(addresses func(r routes, name string) []string, keys ...string) {
	was, is := c.before.last(keys...), c.after.last(keys...)
	isFree := was == "" || was == "."
	if isFree {
		was = c.before.usual()
	}
	if is == "" {
		is = c.after.byDefault()
	}
	if was == "" || isFree && (is == "" || is == ".") || isAmong(addresses(c.after, is), addresses(c.before, was)) {
		return
	}
	c.blame(append(keys, "remote."+is)...)
}

// others are keys that lead git elsewhere without a branch's name.
func (c *crossing) others() {
	const defaultRemote, pushDefault = "checkout.defaultremote", "push.default"
	if c.after.last(defaultRemote) != "" {
		c.way(routes.fetched, defaultRemote)
	}
	switch strings.ToLower(c.after.last(pushDefault)) {
	case "", "nothing", "simple", "current":
	default: // to branches of other names, or more of them
		c.blame(pushDefault)
	}
	for key := range c.changed {
		if shape(key) == "submodule.*.url" && len(c.before.values[key]) > 0 && len(c.after.values[key]) > 0 {
			c.keys[key] = true
		}
	}
}

// maxRefs bounds how much of the file is read that has most branches.
const maxRefs = 32 << 20

// Branches tells which branches a repository has, by its open directory: for Around.Has. Where that
// cannot be told, all are there.
func Branches(dir int) func(branch string) bool {
	var packed map[string]bool
	known := false
	return func(branch string) bool {
		for _, name := range []string{"commondir", "reftable"} { // they are elsewhere
			if unix.Faccessat(dir, name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) != unix.ENOENT {
				return true
			}
		}
		fd, err := unix.Openat2(dir, "refs/heads/"+branch, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
		if err == nil {
			unix.Close(fd)
		}
		if err != unix.ENOENT && err != unix.ENOTDIR {
			return true
		}
		if !known {
			known = true
			packed, err = packedBranches(dir)
			if err != nil {
				packed = nil
			}
		}
		return packed == nil || packed[branch]
	}
}

// packedBranches are the branches that are in one file together.
func packedBranches(dir int) (map[string]bool, error) {
	branches := map[string]bool{}
	fd, err := unix.Openat2(dir, "packed-refs", &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err == unix.ENOENT {
		return branches, nil
	}
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "packed-refs")
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxRefs {
		return nil, errors.Join(err, unix.EFBIG)
	}
	lines := bufio.NewScanner(io.LimitReader(file, maxRefs))
	for lines.Scan() {
		line := lines.Text()
		if i := strings.IndexAny(line, " \t\r\v\f"); i >= 0 { // git takes any of them
			if branch, is := strings.CutPrefix(line[i+1:], "refs/heads/"); is {
				branches[branch] = true
			}
		}
	}
	return branches, lines.Err()
}
