package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A placeholder stands on the host, for as long as the command runs, where something must not be made: nothing can be
// mounted on a name that does not exist, and only a mount cannot be renamed or removed. It is an empty directory, which git
// does not see and which cannot be executed. It is taken away by rmdir(2), which takes nothing else: whatever a person puts
// there in the meantime stays.
//
// Several sandboxes may need the same one: each holds a shared lock on the directory that it is in, and who can have that
// lock alone is the last and clears up. A launcher that is killed leaves its placeholders to the next run, which knows them
// by their mode.
type placeholders struct {
	dir   descriptor // locked
	path  string
	names []string // of directories
	files []string // of files that hold placeholderFile
	shelf *shelf
}

const (
	// placeholderMode is that of no directory that anybody else makes: sticky, and its owner's alone.
	placeholderMode = unix.S_ISVTX | 0o700
	// placeholderFile is what stands in for a git directory's commondir, which cannot be a directory.
	placeholderFile = ".\n"
)

// isPlaceholder reports whether the object at path is one, and so is as good as not there.
func isPlaceholder(tree Tree, path string, object Object) bool {
	switch {
	case object.Mode == fs.ModeDir|fs.ModeSticky|0o700:
		entries, err := tree.ReadDir(path)
		return err == nil && len(entries) == 0
	case object.Mode.IsRegular() && baseName(path) == "commondir":
		text, err := tree.ReadFile(path, len(placeholderFile)+1)
		return err == nil && text == placeholderFile
	}
	return false
}

func baseName(name string) string { return path.Base(name) }

// makePlaceholders makes what the plan's steps stand on, and returns the steps without those that came to nothing.
func (a *attempt) makePlaceholders(steps []Step, state string) []Step {
	held := map[string]*placeholders{}
	a.shelf.state = state
	return slices.DeleteFunc(steps, func(step Step) bool {
		if step.Purpose != StandsIn {
			return false
		}
		dir := parent(step.Path)
		in := held[dir]
		if in == nil {
			in = &placeholders{path: dir, shelf: &a.shelf}
			held[dir] = in
			if err := in.lock(); err != nil {
				a.unheld(step.Path, err)
			}
			a.held = append(a.held, in)
		}
		if in.dir == 0 {
			return true
		}
		err := in.make(step)
		switch {
		case err == nil:
			return false
		case !cannotBeMade(err):
			a.unheld(step.Path, err)
		}
		return true
	})
}

// cannotBeMade reports whether the command could not make it either.
func cannotBeMade(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EPERM)
}

func (a *attempt) unheld(path string, err error) {
	a.plan.notice(NoticeProtected, path, fmt.Sprintf("%s can be made by the command: what would keep it from that cannot be set up: %s",
		printable(path), reason(err)))
}

// lock opens the directory, through no link, and takes the shared lock. Who clears up holds the other for a moment.
func (p *placeholders) lock() error {
	dir, err := unix.Openat2(unix.AT_FDCWD, p.path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return err
	}
	for range 100 {
		if err = unix.Flock(dir, unix.LOCK_SH|unix.LOCK_NB); err == nil {
			p.dir = descriptor(dir)
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	unix.Close(dir)
	return err
}

// make makes one placeholder, or finds it made.
func (p *placeholders) make(step Step) error {
	name := baseName(step.Path)
	if step.content != "" {
		fd, err := unix.Openat(int(p.dir), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == nil {
			file := descriptor(fd)
			err = file.write([]byte(step.content))
			file.close()
		}
		if err == nil || errors.Is(err, unix.EEXIST) && p.has(name) {
			p.files = append(p.files, name)
			return nil
		}
		return err
	}
	err := p.shelf.take(p.dir, name)
	if err == nil || errors.Is(err, unix.EEXIST) && p.has(name) {
		p.names = append(p.names, name)
		return nil
	}
	return err
}

// has reports whether a name is a placeholder by now: another sandbox's, or one that a killed launcher left.
func (p *placeholders) has(name string) bool {
	object, err := Host{}.Lstat(join(p.path, name))
	return err == nil && isPlaceholder(Host{}, join(p.path, name), object)
}

// clear takes the placeholders away, if no other sandbox needs them.
func (p *placeholders) clear() {
	if p.dir == 0 {
		return
	}
	defer p.dir.close()
	if unix.Flock(int(p.dir), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	for _, name := range p.names {
		if p.shelf.put(p.dir, name) || unix.Unlinkat(int(p.dir), name, unix.AT_REMOVEDIR) != unix.ENOTEMPTY {
			continue
		}
		unix.Fchmodat(int(p.dir), name, 0o755, 0) // somebody uses it now
	}
	for _, name := range p.files {
		if p.has(name) {
			unix.Unlinkat(int(p.dir), name, 0)
		}
	}
}

// clearUp takes away what was made on the host.
func (a *attempt) clearUp() {
	for _, in := range a.held {
		in.clear()
	}
	a.held = nil
	a.shelf.dir.close()
}

// maxMade bounds how many notices say what was made.
const maxMade = 20

// made looks for protected paths that are there now and were not when the plan was built. It comes after clearUp.
func (a *attempt) made(also []Watched) []Notice {
	var notices []Notice
	told := map[string]bool{}
	tell := func(path, what string) {
		if !told[path] && len(notices) < maxMade {
			told[path] = true
			notices = append(notices, Notice{Kind: NoticeProtected, Path: path,
				Text: what + " while the command ran: " + printable(path) + "; something outside the sandbox may execute it or do as it says, so look at it first"})
		}
	}
	for _, watched := range slices.Concat(a.plan.Watched, also) {
		for _, found := range search(Host{}, watched.Root, watched.names, watched.apart, watched.width) {
			switch link, known := watched.known[found.path]; {
			case !known:
				tell(found.path, "made")
			case link != found.link:
				tell(found.path, "replaced")
			}
		}
	}
	for _, step := range a.standIns {
		if wasMade(step.Path) {
			tell(step.Path, "made")
		}
	}
	return notices
}

// wasMade reports whether something other than a placeholder is at a path. It looks again, because another sandbox may be taking its
// placeholder away at that moment.
func wasMade(path string) bool {
	for range 3 {
		object, err := Host{}.Lstat(path)
		if err != nil || isPlaceholder(Host{}, path, object) {
			return false
		}
	}
	return true
}
