package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
	"github.com/clairun/clai-sandbox/sandbox/protect"
	"github.com/clairun/clai-sandbox/sandbox/repository"
)

// A repository's settings say what git executes, and "git remote add", "git push -u" and "git
// branch -D" write them. So the command has a copy of its own: a symbolic link is mounted over
// .git/config and leads to a file in memory, which git reads, locks and replaces as any other. The
// host's file is not touched while the command runs. When all of it has ended, what changed in the
// copy is held against what it was given, and package repository carries over what does no harm.

const (
	// settingsDirectory is where the copies are: in one directory each, because git makes a lock
	// beside the file.
	settingsDirectory = insideDirectory + "git"
	// settingsSize bounds what the command can write there.
	settingsSize = 16 << 20
)

// settings are the copies of one run.
type settings struct {
	list    []*settingsCopy
	mounter *mounts.Mounter
	alarm   chan struct{} // closed when somebody wrote a file of the host's through a moment without a link
	late    chan *settingsCopy
	stopped chan struct{} // nobody follows any more
	stop    sync.Once
}

// A settingsCopy is one file that the command has a copy of.
type settingsCopy struct {
	path string          // on the host
	name string          // below settingsDirectory
	dir  descriptor.File // the git directory, as it was when the sandbox was made
	// persons are git's settings that count in all repositories.
	persons []repository.Setting

	mu       sync.Mutex
	base     string // what the command was given: at the start, or when a change of the person's was brought into its copy
	carried  string // base with what of the command's changes has been looked at; see settle
	known    string // what the host's file held when it was last known to be nobody's but the person's
	lock     lockSeen
	gone     bool // the host's file was taken away, and what is there next may be the command's
	written  bool // the command wrote, or may have
	followed bool // known has reached the copy
	settling atomic.Bool
}

// target is where the link leads.
func (c *settingsCopy) target() string { return settingsDirectory + "/" + c.name }

// around is what else says where git goes, as it is now.
func (c *settingsCopy) around() repository.Around {
	return repository.Around{Has: repository.Branches(int(c.dir)), Person: c.persons, Worktree: path.Base(c.path) == "config.worktree"}
}

// of is the copy of a file, if there is one.
func (s *settings) of(path string) *settingsCopy {
	if s == nil {
		return nil
	}
	for _, c := range s.list {
		if c.path == path {
			return c
		}
	}
	return nil
}

// ofLock is the copy of the file that git locks by another, if there is one.
func (s *settings) ofLock(path string) *settingsCopy {
	name, is := strings.CutSuffix(path, ".lock")
	if !is {
		return nil
	}
	return s.of(name)
}

// copySettings turns the mounts that make settings read-only into links to copies. It comes when
// the directories are watched already: what the person changes from now on is seen. A file that is
// not to be read as settings stays read-only.
func (a *attempt) copySettings() {
	s := newSettings()
	directory := mounts.Mount{Kind: mounts.Private, Path: settingsDirectory, Mode: 0o700, Size: settingsSize}
	total := 0
	for i := range a.requests {
		for k := range a.requests[i].Tree {
			m := &a.requests[i].Tree[k]
			if step := a.plan.at(m.Path); step == nil || !step.Settings || m.Kind != mounts.Bind {
				continue
			}
			dir, err := descriptor.Pin(parent(m.Source))
			var text string
			if err == nil {
				text, err = readSettings(dir, m.Source)
			}
			if err == nil && total+len(text) > settingsSize/4 {
				err = unix.EFBIG
			}
			if err == nil && !repository.IsSettings(text) {
				err = errNoSettings
			}
			if err != nil {
				dir.Close()
				a.plan.notice(NoticeProtected, m.Path, "read-only inside, so that git cannot change its settings: "+printable(m.Path)+": "+reason(err))
				continue
			}
			total += len(text)
			c := &settingsCopy{path: m.Path, name: fmt.Sprintf("%d/%s", len(s.list), path.Base(m.Path)), dir: dir, base: text, carried: text, known: text, followed: true}
			if a.plan.Protection != nil {
				c.persons = a.plan.Protection.persons
			}
			*m = mounts.Mount{Kind: mounts.Link, Path: m.Path, Source: c.target(), File: true}
			directory.Files = append(directory.Files, mounts.File{Path: c.name, Text: text})
			s.list = append(s.list, c)
		}
	}
	if len(s.list) == 0 {
		return
	}
	a.requests = append([]mounts.Request{{Tree: mounts.Tree{directory}, Place: a.plan.place(settingsDirectory)}}, a.requests...)
	a.plan.Steps = append(a.plan.Steps, Step{Kind: Private, Path: settingsDirectory, Mode: 0o700, Origin: gitOrigin})
	a.settings = s
	if a.settingsWatch != nil {
		a.settingsWatch.settings = s
	}
}

var errNoSettings = errors.New("it cannot be read as settings of git's")

// readSettings reads a file of the host's that is in an open directory, following no link.
func readSettings(dir descriptor.File, file string) (string, error) {
	fd, err := unix.Openat2(int(dir), path.Base(file), &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH})
	if err != nil {
		return "", err
	}
	open := os.NewFile(uintptr(fd), file)
	defer open.Close()
	if info, err := open.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > repository.MaxFile {
		return "", errors.Join(err, errNoSettings)
	}
	text, err := io.ReadAll(io.LimitReader(open, repository.MaxFile+1))
	if err == nil && len(text) > repository.MaxFile {
		err = unix.EFBIG
	}
	return string(text), err
}

// begin tells who made the copies.
func (s *settings) begin(mounter *mounts.Mounter) {
	if s != nil {
		s.mounter = mounter
		go s.follow()
	}
}

func (s *settings) close() {
	if s != nil {
		s.stop.Do(func() { close(s.stopped) })
		for _, c := range s.list {
			c.dir.Close()
		}
	}
}

// newSettings are none yet.
func newSettings() *settings {
	return &settings{alarm: make(chan struct{}), late: make(chan *settingsCopy, 64), stopped: make(chan struct{})}
}

// When the person's git replaces the file, the kernel takes the link away. It is put back as soon
// as the kernel tells, and what the person changed is brought into the copy. In the moment between,
// the command can open the host's file, or put another one in its place. So what happened to the
// name in that moment is looked at: the kernel tells of each write and each renaming, in their
// order, and a lease tells whether somebody still has the file open for writing.

// cover puts the link back over a file that the host replaced.
func (s *settings) cover(c *settingsCopy) (uint64, error) {
	id, err := s.mounter.CoverLink(c.path, c.target())
	if err != nil && !errors.Is(err, unix.EBUSY) {
		s.wrote(c) // it is no file any more: a link, perhaps
	}
	return id, err
}

// happened looks at what happened to the host's file. covered says that the link had to be put
// back, and later is what the kernel has told since it took the link away; held that somebody has
// the file open for writing.
func (s *settings) happened(c *settingsCopy, covered, held bool, later []uint32) {
	now, err := readSettings(c.dir, c.path)
	c.mu.Lock()
	defer c.mu.Unlock()
	if covered {
		modified, moved := false, c.gone || !c.lock.plain()
		for _, mask := range later {
			modified = modified || mask&unix.IN_MODIFY != 0
			moved = true
		}
		c.gone, c.lock = false, lockSeen{}
		if modified || held {
			s.raise(c)
			return
		}
		if _, left := repository.Without(c.known, now); moved && (err != nil || len(left) > 0) {
			s.raise(c)
			return
		}
	}
	if c.written || err != nil || now == c.known || !repository.IsSettings(now) {
		return
	}
	c.known, c.followed = now, false
	select {
	case s.late <- c:
	default: // many wait, and the end looks at all of them
	}
}

// openForWriting reports whether somebody has the host's file open for writing: the kernel gives no
// lease on such a one. Where there are no leases, nobody can tell.
func (c *settingsCopy) openForWriting() bool {
	fd, err := unix.Openat2(int(c.dir), path.Base(c.path), &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH})
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	return err == unix.EAGAIN
}

// heldTimeout is how long the host's file may be open for writing by who renamed it. What is
// written in that time is told, as all is.
const heldTimeout = 20 * time.Millisecond

// held reports whether somebody keeps the host's file open for writing.
func (c *settingsCopy) held() bool {
	for began := time.Now(); c.openForWriting(); time.Sleep(time.Millisecond) {
		if time.Since(began) > heldTimeout {
			return true
		}
	}
	return false
}

// lockSeen is what was seen of git's lock on the host's file, which is what git renames over it. A
// command can write into that, or put another one in its place: then somebody opens it besides the
// one who made it.
type lockSeen struct {
	made, odd     bool
	opens, closes int
}

// locks looks at what the kernel tells of the lock.
func (c *settingsCopy) locks(mask uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case mask&unix.IN_CREATE != 0:
		c.lock = lockSeen{made: true}
	case mask&unix.IN_OPEN != 0:
		c.lock.opens++
	case mask&unix.IN_CLOSE_WRITE != 0:
		c.lock.closes++
	case mask&unix.IN_MOVED_TO != 0:
		c.lock.odd = true
	}
}

// plain reports whether one program made the lock, wrote it, and nobody else opened it.
func (l lockSeen) plain() bool { return l.made && !l.odd && l.opens == 1 && l.closes == 1 }

// isGone remembers that the host's file was taken away.
func (c *settingsCopy) isGone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
}

// wrote is raise.
func (s *settings) wrote(c *settingsCopy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.raise(c)
}

// raise ends the run. Its caller has the copy locked.
func (s *settings) raise(c *settingsCopy) {
	if c.written {
		return
	}
	c.written = true
	select {
	case <-s.alarm:
	default:
		close(s.alarm)
	}
}

// ends is closed when the run has to end.
func (s *settings) ends() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.alarm
}

// follow brings the person's changes into the copies, one after the other, until the run ends.
func (s *settings) follow() {
	for {
		select {
		case <-s.stopped:
			return
		case c := <-s.late:
			for range 50 { // a git inside may hold the lock
				if err := s.bring(c); !errors.Is(err, mounts.ErrBusy) {
					break
				}
				select {
				case <-s.stopped:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}
	}
}

// bring brings what the person changed into a copy.
func (s *settings) bring(c *settingsCopy) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.written || c.followed {
		return nil
	}
	inside, err := s.mounter.ReadCopy(c.name, repository.MaxFile)
	if err != nil {
		return err
	}
	text, err := repository.Follow(c.base, c.known, inside)
	if err != nil {
		return err
	}
	// Whoever changed the copy by git's way since it was read holds the lock, or has given it back:
	// then it is another text.
	if err := s.mounter.ReplaceCopy(c.name, inside, text, repository.MaxFile); err != nil {
		return err
	}
	carried := c.known
	if c.carried != c.base {
		if carried, err = repository.Follow(c.base, c.known, c.carried); err != nil {
			return err
		}
	}
	c.base, c.carried, c.followed = c.known, carried, true
	return nil
}

const (
	// lockTimeout bounds the wait for a git on the host that is writing its settings.
	lockTimeout = time.Second
	// maxLeft bounds how many settings are told.
	maxLeft = 20
	// maxTold bounds how much of a value is.
	maxTold = 200
)

// carryOver brings what the command changed into the host's files, as far as it does no harm. All
// processes of the command have ended.
func (s *settings) carryOver(q *protect.Quarantine) []Notice {
	if s == nil || s.mounter == nil {
		return nil
	}
	s.stop.Do(func() { close(s.stopped) })
	var notices []Notice
	more := 0
	for _, c := range s.list {
		told, left := c.carryOver(s.mounter)
		notices = append(notices, told...)
		for _, l := range left {
			if len(notices) >= maxLeft { // no more is kept, either: who comes back to it has to set it again
				more++
				continue
			}
			notices = append(notices, c.left(l, q))
		}
	}
	if more > 0 {
		notices = append(notices, Notice{Kind: NoticeGitSetting, Text: fmt.Sprintf("git settings that were not carried over: %d more", more)})
	}
	return notices
}

// carryOver carries one file's changes over, and returns what it leaves out.
func (c *settingsCopy) carryOver(mounter *mounts.Mounter) ([]Notice, []repository.Left) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.written {
		return []Notice{c.restore()}, nil
	}
	inside, err := mounter.ReadCopy(c.name, repository.MaxFile)
	if err != nil {
		return []Notice{c.notCarried("what the command left of its copy cannot be read: " + reason(err))}, nil
	}
	if inside == c.carried {
		return nil, nil
	}
	var left []repository.Left
	err = repository.Update(int(c.dir), path.Base(c.path), lockTimeout, func(now string) (text string, err error) {
		text, left, err = repository.Carry(c.carried, inside, now, c.around())
		return text, err
	})
	switch {
	case errors.Is(err, repository.ErrLocked):
		return []Notice{c.notCarried("another git holds " + printable(c.path+".lock"))}, nil
	case err != nil:
		return []Notice{c.notCarried(reason(err))}, nil
	}
	return nil, left
}

// changed reports whether there is something for settle to do.
func (s *settings) changed() bool {
	if s == nil || s.mounter == nil {
		return false
	}
	for _, c := range s.list {
		c.mu.Lock()
		inside, err := s.mounter.ReadCopy(c.name, repository.MaxFile)
		is := err == nil && !c.written && inside != c.carried
		c.mu.Unlock()
		if is {
			return true
		}
	}
	return false
}

// settle carries over what the command has changed until now. None of its processes runs meanwhile,
// so that none is there in the moment in which a file of the host's is replaced and the link to the
// copy is gone. What cannot be done now, the end does or tells.
func (s *settings) settle(q *protect.Quarantine) (notices []Notice) {
	for _, c := range s.list {
		left, err := c.settle(s)
		if err != nil {
			s.wrote(c)
		}
		for _, l := range left[:min(len(left), maxLeft-len(notices))] { // no more is kept, as at the end
			notices = append(notices, c.left(l, q))
		}
	}
	return notices
}

// settle carries one file's changes over. The error means that the link is not back.
func (c *settingsCopy) settle(s *settings) (left []repository.Left, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inside, err := s.mounter.ReadCopy(c.name, repository.MaxFile)
	if err != nil || c.written || inside == c.carried {
		return nil, nil
	}
	c.settling.Store(true)
	defer c.settling.Store(false)
	known := c.known
	err = repository.Update(int(c.dir), path.Base(c.path), 0, func(now string) (text string, err error) {
		if text, left, err = repository.Carry(c.carried, inside, now, c.around()); err == nil && now == c.known {
			known = text // or else what the person changed meanwhile is still to be brought in, and comes with this
		}
		return text, err
	})
	if err != nil {
		return nil, nil
	}
	c.known, c.carried = known, inside
	for range maxCovers {
		if _, err = s.mounter.CoverLink(c.path, c.target()); err == nil {
			return left, nil
		}
	}
	return left, err
}

// instead puts settings in the place of a link to a copy of them: whoever copies a repository
// inside ("cp -a", tar) copies that.
func (s *settings) instead(mounter *mounts.Mounter, dir int, name string) ([]protect.Taken, bool) {
	buffer := make([]byte, len(settingsDirectory)+64)
	n, err := unix.Readlinkat(dir, name, buffer)
	if err != nil || mounter == nil {
		return nil, false
	}
	for _, c := range s.list {
		if c.target() != string(buffer[:n]) {
			continue
		}
		text, err := mounter.ReadCopy(c.name, repository.MaxFile)
		if err != nil {
			return nil, false
		}
		taken, err := repository.Instead(dir, name, text)
		return takenOf(taken), err == nil
	}
	return nil, false
}

// texts are the copies as the command left them, by what the links to them hold.
func (s *settings) texts() map[string]string {
	if s == nil || s.mounter == nil {
		return nil
	}
	texts := map[string]string{}
	for _, c := range s.list {
		if text, err := s.mounter.ReadCopy(c.name, repository.MaxFile); err == nil {
			texts[c.target()] = text
		}
	}
	return texts
}

// restore takes out of the host's file what the command may have written there.
func (c *settingsCopy) restore() Notice {
	text := "the command was ended: it wrote, or may have written, " + printable(c.path) + " in the moment in which that was replaced on the host"
	switch err := repository.Restore(int(c.dir), path.Base(c.path), c.known); {
	case err != nil:
		text += ", and that could not be taken back: " + reason(err) + ": look at it before git is used there"
	default:
		text += "; what executes there is again what it was, and what was set at that very moment has to be set again"
	}
	return Notice{Kind: NoticeProtected, Path: c.path, Text: text}
}

func (c *settingsCopy) notCarried(why string) Notice {
	return Notice{Kind: NoticeGitSetting, Path: c.path, Text: "git settings that the command changed were not carried over to " + printable(c.path) + ": " + why}
}

// left tells of a change that was left out, and how a person makes it.
func (c *settingsCopy) left(l repository.Left, q *protect.Quarantine) Notice {
	why := l.Why.String()
	if l.Theirs {
		why = "it was changed on the host meanwhile"
	}
	command := []string{"git", "-C", c.workingTree(), "config"}
	if path.Base(c.path) == "config.worktree" {
		command = append(command, "--worktree")
	}
	if l.Removed {
		command = append(command, "--unset-all", l.Key)
	} else {
		command = append(command, l.Key, l.Value)
	}
	if strings.EqualFold(l.Key, "core.hooksPath") && strings.HasSuffix("/"+l.Value, "/"+huskyDirectory+"/"+huskyMade) {
		why += ", and what the command has in .husky/_ stays in the sandbox"
	}
	change := printable(shortened(l.Key)) + " = " + printable(shortened(l.Value))
	if l.Removed {
		change = printable(shortened(l.Key)) + " without the values that were taken away"
	}
	text := "git setting not carried over to " + printable(c.path) + ": " + change + ": " + why
	return Notice{Kind: NoticeGitSetting, Path: c.path, Text: text + outside(q, c.path, protect.Setting{Key: l.Key, Value: l.Value, Removed: l.Removed}, command...)}
}

// outside keeps in the quarantine a change of git's settings that was not made, and is the command
// by which a person makes it. Where it cannot be kept, that is a command of git's, if all that the
// command inside chose of it can be told as it is.
func outside(q *protect.Quarantine, file string, s protect.Setting, words ...string) string {
	chosen := s.Key + s.Value
	isTold := len(chosen) <= maxTold && printable(chosen) == chosen
	switch id, err := q.PutSetting(file, s); {
	case err == nil && isTold:
		return "; who wants it: clai-sandbox quarantine restore " + id
	case err == nil:
		return "; all of it: clai-sandbox quarantine show " + id
	case !isTold:
		return ""
	}
	return "; who wants it, sets it outside: " + commandLine(words)
}

// workingTree is a directory in which git finds the file.
func (c *settingsCopy) workingTree() string {
	if dir := parent(c.path); path.Base(dir) == ".git" {
		return parent(dir)
	}
	return parent(c.path)
}

// commandLine is a command as a shell reads it.
func commandLine(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = Quote(word)
	}
	return strings.Join(quoted, " ")
}

func shortened(text string) string {
	if len(text) > maxTold {
		return strings.ToValidUTF8(text[:maxTold], "") + "…"
	}
	return text
}
