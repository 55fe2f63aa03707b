package protect

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Limits bound a scan. What lies past one is not looked at, and must not be writable.
type Limits struct {
	Directories int
	Entries     int
	Depth       int
	Time        time.Duration // 0: none
	Closed      int           // how many directories a scan may name to be closed
}

// DefaultLimits are what a start can wait for: a million names take a second.
var DefaultLimits = Limits{Directories: 100_000, Entries: 2_000_000, Depth: 128, Time: 10 * time.Second, Closed: 64}

// A Found is something that must be protected.
type Found struct {
	Path string
	Rule string // of the names; empty for a repository
	// Repository says that it is a .git, or a directory that git takes for a repository.
	Repository bool
	// Stray says that it is in a git directory, and neither a file nor a directory; or a stash that
	// git applies.
	Stray bool
	// Index says that it is an index of git's.
	Index bool
	// Inward says that it is a link that leads into this program's own directories.
	Inward bool
}

// A Closed directory is one that was not looked through, with all below it: it must not be
// writable.
type Closed struct {
	Path string
	Why  string
}

// A Result is what a scan found.
type Result struct {
	Found       []Found // by path
	Links       []Found // symbolic links that nobody but a command makes there, by path
	Closed      []Closed
	Objects     []string // directories of git's objects
	Packed      []string // directories with a packed-refs
	Refs        []string // directories of branches and tags
	Directories int
}

// A Reader tells the names in a directory, as readDirectory does.
type Reader func(path string, each func(name []byte, kind Kind) bool) error

// Scan looks through a directory and all below it. Directories for which apart is true are not the
// command's to write, or are looked through for themselves. read is how directories are read; nil:
// on the host, several at once.
func (n *Names) Scan(root string, apart func(string) bool, limits Limits, read Reader) Result {
	return n.scan(root, apart, limits, read, nil)
}

// scan is Scan; before each directory of the host's is read, it is told, open. It is told from
// several goroutines.
func (n *Names) scan(root string, apart func(string) bool, limits Limits, read Reader, opened func(path string, fd int) error) Result {
	s := scan{names: n, apart: apart, limits: limits, root: root, left: limits.Entries, todo: []place{{root, partAt(root)}}, read: read}
	s.changed.L = &s.mu
	workers := 1
	if read == nil {
		fd, err := openRoot(root)
		if err != nil {
			return Result{Closed: []Closed{{root, "it cannot be opened: " + err.Error()}}}
		}
		defer unix.Close(fd)
		s.read = func(path string, each func([]byte, Kind) bool) error {
			return readBelow(fd, relative(path, root), each, func(dir int) error {
				if opened == nil {
					return nil
				}
				return opened(path, dir)
			})
		}
		workers = min(4, max(runtime.GOMAXPROCS(0), 1))
	}
	s.deadline = time.Now().Add(limits.Time)
	s.work(workers)
	for _, list := range [][]Found{s.result.Found, s.result.Links} {
		slices.SortFunc(list, func(a, b Found) int { return strings.Compare(a.Path, b.Path) })
	}
	s.result.Closed = RollUp(s.result.Closed, root, max(limits.Closed, 1))
	return s.result
}

func readBelow(root int, name string, each func([]byte, Kind) bool, opened func(int) error) error {
	fd, err := openBelow(root, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := opened(fd); err != nil {
		return err
	}
	return readDirectory(fd, each)
}

// A place is a directory that is to be looked through.
type place struct {
	path string
	part gitPart
}

// scan is one under way, by several goroutines.
type scan struct {
	names    *Names
	apart    func(string) bool
	limits   Limits
	root     string
	deadline time.Time
	read     Reader

	mu      sync.Mutex
	changed sync.Cond
	todo    []place
	busy    int
	left    int // entries
	seen    int // directories
	result  Result
}

// few is how many directories one goroutine looks through before others are worth their start.
const few = 128

func (s *scan) work(workers int) {
	var others sync.WaitGroup
	started := false
	s.mu.Lock()
	defer func() { s.mu.Unlock(); others.Wait() }()
	for s.step() {
		if !started && workers > 1 && s.seen > few {
			started = true
			for range workers - 1 {
				others.Go(func() {
					s.mu.Lock()
					defer s.mu.Unlock()
					for s.step() {
					}
				})
			}
		}
	}
}

// step looks through some directories. It reports false when there are no more to come. It holds
// the lock, but while it reads.
func (s *scan) step() bool {
	for len(s.todo) == 0 {
		if s.busy == 0 {
			s.changed.Broadcast()
			return false
		}
		s.changed.Wait()
	}
	take := min(len(s.todo), 16)
	mine := slices.Clone(s.todo[len(s.todo)-take:])
	s.todo = s.todo[:len(s.todo)-take]
	s.busy++
	found := look{scan: s, left: s.left, seen: s.seen}
	s.seen += take
	s.mu.Unlock()
	for i, dir := range mine {
		found.seen++
		found.directory(dir.path, dir.part, i)
	}
	s.mu.Lock()
	s.busy--
	s.left -= found.used
	s.result.Directories += take
	s.result.Found = append(s.result.Found, found.found...)
	s.result.Links = append(s.result.Links, found.links...)
	s.result.Closed = append(s.result.Closed, found.closed...)
	s.result.Objects = append(s.result.Objects, found.objects...)
	s.result.Packed = append(s.result.Packed, found.packed...)
	s.result.Refs = append(s.result.Refs, found.refs...)
	s.todo = append(s.todo, found.below...)
	s.changed.Broadcast()
	return true
}

// look is what one goroutine saw in a few directories.
type look struct {
	*scan
	seen, left, used int
	found, links     []Found
	objects, packed  []string
	refs             []string
	closed           []Closed
	below            []place
}

func (l *look) close(dir, why string) { l.closed = append(l.closed, Closed{dir, why}) }

// directory looks through one.
func (l *look) directory(dir string, part gitPart, turn int) {
	switch {
	case l.seen > l.limits.Directories:
		l.close(dir, "there are too many directories to look through")
		return
	case strings.Count(dir, "/")-strings.Count(l.root, "/") > l.limits.Depth:
		l.close(dir, "it lies too deep to look through")
		return
	case l.limits.Time > 0 && turn == 0 && time.Now().After(l.deadline):
		l.close(dir, "to look through all takes too long")
		return
	}
	if objectsIn(dir) != "" {
		l.objects = append(l.objects, dir)
	}
	if _, _, is := MayShadow(dir); is {
		l.refs = append(l.refs, dir)
	}
	packages := l.names.InPackages(relative(dir, l.root))
	var git gitSigns
	var below, strays, indexes []string
	full := false
	firstFound := len(l.found)
	err := l.read(dir, func(name []byte, kind Kind) bool {
		if l.used++; l.used > l.left {
			full = true
			return false
		}
		git.see(name)
		if string(foldBytes(name)) == ".git" {
			l.found = append(l.found, Found{Path: join(dir, string(name)), Repository: true})
		}
		if l.names.ends(name) {
			if rule, is := l.names.Match(dir, string(name), packages); is {
				l.found = append(l.found, Found{Path: join(dir, string(name)), Rule: rule})
				return true // read-only as a whole
			}
		}
		if kind != Directory {
			if rule, is := l.names.MatchLeaf(dir, string(name), part != notGit); is {
				l.found = append(l.found, Found{Path: join(dir, string(name)), Rule: rule})
				return true
			}
		}
		if kind == Link {
			if rule, is := l.names.MatchLink(dir, string(name)); is {
				l.links = append(l.links, Found{Path: join(dir, string(name)), Rule: rule})
			} else if l.names.Inward != nil && l.names.Inward(join(dir, string(name))) {
				l.links = append(l.links, Found{Path: join(dir, string(name)), Inward: true})
			}
		}
		switch kind {
		case Directory:
			if path := join(dir, string(name)); l.apart == nil || !l.apart(path) {
				below = append(below, path)
			}
		case Link, Other:
			strays = append(strays, string(name))
		case File:
			if isBelieved(dir, string(name)) {
				indexes = append(indexes, string(name))
			}
			if isAutostash(string(name)) {
				strays = append(strays, string(name))
			} else if _, is := mayMislead(join(dir, string(name))); part != notGit && is {
				strays = append(strays, string(name))
			}
			if isNamed(string(name), packedRefs) {
				l.packed = append(l.packed, dir)
			}
		}
		return true
	})
	switch {
	case full:
		l.found = l.found[:firstFound]
		l.close(dir, "there are too many files to look through")
	case errors.Is(err, unix.ENOSPC):
		l.found = l.found[:firstFound]
		l.close(dir, tooManyWatches)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP): // gone since
	case err != nil:
		l.found = l.found[:firstFound]
		l.close(dir, "it cannot be looked through: "+err.Error())
	default:
		if git.isRepository() && (!isNamed(base(dir), ".git") || dir == l.root) || git.belongs(dir) {
			l.found = append(l.found, Found{Path: dir, Repository: true})
		}
		if git.isRepository() {
			part = max(part, gitTop)
		}
		for _, path := range below {
			l.below = append(l.below, place{path, partIn(part, base(path), false)})
		}
		if part != notGit && !l.names.Unprotected[".git"] {
			l.strays(dir, strays)
			for _, name := range indexes {
				l.found = append(l.found, Found{Path: join(dir, name), Index: true})
			}
		}
	}
}

// strays are what git did not make in one of its directories.
func (l *look) strays(dir string, names []string) {
	for _, name := range names {
		if !isAside(name) {
			l.found = append(l.found, Found{Path: join(dir, name), Stray: true})
		}
	}
}

const tooManyWatches = "there are more directories than can be watched (see /proc/sys/fs/inotify/max_user_watches)"

// gitSigns are names by which git takes a directory for one of its own.
type gitSigns struct{ head, objects, refs, part bool }

func (g *gitSigns) see(name []byte) {
	switch string(foldBytes(name)) {
	case "head":
		g.head = true
	case "objects":
		g.objects = true
	case "refs":
		g.refs = true
	case "config", "config.worktree", "commondir", "gitdir", "hooks":
		g.part = true
	}
}

// isRepository takes half of what git asks for as enough: a command may have moved the other half
// aside, to put it back later.
func (g *gitSigns) isRepository() bool {
	return g.head && (g.objects || g.part) || g.objects && g.refs
}

// belongs reports whether a directory is where a repository keeps those of its worktrees and
// submodules, or is called as repositories without a working tree are ("git init --bare x.git"
// completes what is there), and has something that only such a one has.
func (g *gitSigns) belongs(dir string) bool {
	return g.part && (strings.Contains(dir, "/.git/modules/") || strings.Contains(dir, "/.git/worktrees/") || isBare(base(dir)))
}

// isBare reports whether a name is one that repositories without a working tree have.
func isBare(name string) bool {
	return len(name) > len(".git") && strings.HasSuffix(fold(name), ".git")
}

// RollUp names fewer directories that hold all that must be closed: no more than most.
func RollUp(list []Closed, root string, most int) []Closed {
	deepest := 0
	for _, c := range list {
		deepest = max(deepest, strings.Count(relative(c.Path, root), "/")+1)
	}
	for level := deepest; ; level-- {
		tops := map[string]string{}
		for _, c := range list {
			path := c.Path
			for path != root && strings.Count(relative(path, root), "/")+1 > level {
				path = parent(path)
			}
			if _, known := tops[path]; !known {
				tops[path] = c.Why
			}
		}
		if len(tops) > most && level > 0 {
			continue
		}
		fewer := make([]Closed, 0, len(tops))
		for path, why := range tops {
			covered := false
			for up := path; up != root && !covered; {
				up = parent(up)
				_, covered = tops[up]
			}
			if !covered {
				fewer = append(fewer, Closed{path, why})
			}
		}
		slices.SortFunc(fewer, func(a, b Closed) int { return strings.Compare(a.Path, b.Path) })
		return fewer
	}
}
