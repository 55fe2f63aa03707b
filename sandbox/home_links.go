package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// Programs read their settings anywhere below the home's directories that begin with a dot, and
// people keep those in a directory of their own, with links to it. So all links below are looked
// for, the shallow directories first, in each program's directory up to a bound. What was seen is
// remembered in the state directory: a directory that has the same identity and time of change has
// the same names.

const (
	// maxHomeUnit is how many directories of one program are looked through for links: ~/.vim,
	// ~/.config/Code, ~/.local/share/nvim.
	maxHomeUnit = 128
	// maxHomeLinked is how many links are followed.
	maxHomeLinked = 16384
	// homeLinksName is the file in the state directory.
	homeLinksName = "home-links"
	// maxHomeLinks bounds it, in bytes.
	maxHomeLinks = 8 << 20
	// homeLinksHead is its first word.
	homeLinksHead = "1"
)

// unitParents hold what belongs to many programs.
var unitParents = []string{".config", ".local", ".local/share", ".local/state"}

// homeLinks protects what links in the home lead to. Those in a directory of PATH are programs that
// a person types: where one leads into a project, it is the project's own, as its other programs
// are.
func (b *builder) homeLinks(origin profile.Origin) {
	entries, err := b.tree.ReadDir(b.profile.Home)
	if err != nil {
		return
	}
	seen := b.homeMemory()
	type place struct {
		dir  string
		unit *int // how many directories of the same program were looked through
	}
	var places []place
	for _, entry := range entries {
		name := join(b.profile.Home, entry.Name)
		switch {
		case !strings.HasPrefix(entry.Name, "."):
			if slices.Contains(profile.StartupFiles(), entry.Name) {
				b.lead(name, origin)
			}
		case entry.Link:
			b.leadLink(name, origin, true)
		case entry.Dir && entry.Name != ".cache":
			places = append(places, place{name, new(int)})
		case !entry.Dir:
			if object, err := b.tree.Lstat(name); err == nil {
				b.linkedOutside(name, object)
			}
		}
	}
	for i := 0; i < len(places); i++ {
		at := places[i]
		if *at.unit++; i >= maxHomeDirectories || *at.unit > maxHomeUnit {
			b.unseen = append(b.unseen, at.dir)
			continue
		}
		holdsMany := slices.ContainsFunc(unitParents, func(name string) bool { return at.dir == join(b.profile.Home, name) })
		for _, dir := range b.homeDirectory(at.dir, seen, origin) {
			if holdsMany {
				at.unit = new(int)
			}
			if len(places) < 2*maxHomeDirectories {
				places = append(places, place{dir, at.unit})
			}
		}
	}
	b.lead(join(b.profile.Home, ".local/share/applications"), origin)
	seen.save()
}

// homeDirectory protects what links in a directory lead to, and returns the directories in it that
// are looked through, too.
func (b *builder) homeDirectory(dir string, seen *homeMemory, origin profile.Origin) (below []string) {
	if b.writable(dir) { // what is in it is looked through as all that a command may write
		return nil
	}
	links, dirs := seen.read(b.tree, dir)
	typed := dir == join(b.profile.Home, ".local/bin") || slices.Contains(b.profile.PersonsPath, dir)
	for _, name := range links {
		if b.homeLinked++; b.homeLinked > maxHomeLinked {
			b.unseen = append(b.unseen, dir)
			break
		}
		if !typed {
			b.lead(join(dir, name), origin)
		}
	}
	switch {
	case slices.Contains(dirs, "objects") && slices.Contains(dirs, "refs"):
		b.homeRepository(dir)
		return nil
	case slices.Contains(dirs, ".git"):
		b.homeRepository(join(dir, ".git"))
	}
	for _, name := range dirs {
		if name != ".git" && name != "Trash" && name != ".cache" && !b.protection.names.InPackages(name) {
			below = append(below, join(dir, name))
		}
	}
	return below
}

// homeRepository protects what a repository in the home names in its working tree, if that is
// elsewhere: people keep their settings so.
func (b *builder) homeRepository(dir string) {
	if text, err := b.tree.ReadFile(join(dir, "config"), maxGitFile); err == nil && strings.Contains(strings.ToLower(text), "worktree") {
		b.leadsOf(dir, "")
	}
}

// homeMemory is what was seen of directories.
type homeMemory struct {
	file    string
	used    func(dir, name string) // nil: nobody asks
	known   map[string]seenDirectory
	now     map[string]seenDirectory
	changed bool
}

// A seenDirectory is what a directory holds, as long as it is the same one and has not changed.
type seenDirectory struct {
	object  string // device, inode, time of change
	links   []string
	folders []string
}

// homeMemory reads what was remembered: for the host, where there is a state directory.
func (b *builder) homeMemory() *homeMemory {
	m := &homeMemory{now: map[string]seenDirectory{}}
	switch tree := b.host().(type) {
	case Host, *Lookout:
	case *sources:
		m.used = tree.used
	default:
		return m
	}
	if b.profile.Written == "" {
		return m
	}
	m.file = filepath.Join(filepath.Dir(b.profile.Written), homeLinksName)
	text, err := readUpTo(m.file, maxHomeLinks)
	if err != nil {
		return m
	}
	words := strings.Split(text, "\x00")
	if words[0] != homeLinksHead {
		return m
	}
	words = words[1:]
	directories := min(len(words)/4, maxHomeDirectories) // each has four words at least
	m.known = make(map[string]seenDirectory, directories)
	m.now = make(map[string]seenDirectory, directories)
	take := func() (word string) {
		if len(words) > 0 {
			word, words = words[0], words[1:]
		}
		return word
	}
	list := func() []string {
		n, err := strconv.Atoi(take())
		if err != nil || n < 0 || n > len(words) {
			words = nil
			return nil
		}
		taken := words[:n:n]
		words = words[n:]
		return taken
	}
	for len(words) > 1 {
		path := take()
		object := take()
		links := list()
		m.known[path] = seenDirectory{object, links, list()}
	}
	return m
}

// readUpTo reads a file, if it is not longer than that.
func readUpTo(path string, limit int) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > int64(limit) {
		return "", os.ErrInvalid
	}
	text := make([]byte, info.Size())
	n, err := file.Read(text)
	return string(text[:max(n, 0)]), err
}

// read tells the links and directories in a directory.
func (m *homeMemory) read(tree Tree, dir string) (links, folders []string) {
	object, settled := "", false
	if m.file != "" {
		if m.used != nil {
			m.used(dir, "")
		}
		var stat unix.Stat_t
		if unix.Lstat(dir, &stat) != nil {
			return nil, nil
		}
		object = strconv.FormatUint(uint64(stat.Dev), 36) + "." + strconv.FormatUint(stat.Ino, 36) + "." + strconv.FormatInt(stat.Ctim.Nano(), 36)
		if known, is := m.known[dir]; is && known.object == object {
			m.now[dir] = known
			return known.links, known.folders
		}
		settled = time.Since(time.Unix(0, stat.Ctim.Nano())) > time.Second // else it may change again in the same moment
	}
	entries, err := tree.ReadDir(dir)
	if err != nil {
		return nil, nil
	}
	for _, entry := range entries {
		switch {
		case entry.Link:
			links = append(links, entry.Name)
		case entry.Dir:
			folders = append(folders, entry.Name)
		}
	}
	if settled {
		m.now[dir] = seenDirectory{object, links, folders}
		m.changed = true
	}
	return links, folders
}

// save remembers what was seen. If it cannot be, it is looked through again.
func (m *homeMemory) save() {
	if m.file == "" || !m.changed && len(m.now) == len(m.known) {
		return
	}
	var text bytes.Buffer
	put := func(words ...string) {
		for _, word := range words {
			text.WriteByte(0)
			text.WriteString(word)
		}
	}
	text.WriteString(homeLinksHead)
	for path, seen := range m.now {
		put(path, seen.object, strconv.Itoa(len(seen.links)))
		put(seen.links...)
		put(strconv.Itoa(len(seen.folders)))
		put(seen.folders...)
	}
	if text.Len() > maxHomeLinks {
		return
	}
	file, err := os.CreateTemp(filepath.Dir(m.file), homeLinksName+"-*")
	if err != nil {
		return
	}
	_, err = file.Write(text.Bytes())
	if file.Close() != nil || err != nil || os.Rename(file.Name(), m.file) != nil {
		os.Remove(file.Name())
	}
}
