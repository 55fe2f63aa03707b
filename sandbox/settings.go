package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/mounts"
	"github.com/clairun/clai-sandbox/sandbox/repository"
)

// A repository's settings say what git executes, and "git remote add", "git push -u" and "git branch -D" write them. So the command has
// a copy of its own: a symbolic link is mounted over .git/config and leads to a file in memory, which git reads, locks and replaces as
// any other. The host's file is not touched while the command runs. When all of it has ended, what changed in the copy is held
// against what it was given, and package repository carries over what does no harm.

const (
	// settingsDirectory is where the copies are: in one directory each, because git makes a lock beside the file.
	settingsDirectory = insideDirectory + "git"
	// settingsSize bounds what the command can write there.
	settingsSize = 16 << 20
)

// settings are the copies of one run.
type settings struct {
	list    []*settingsCopy
	mounter *mounts.Mounter
}

// A settingsCopy is one file that the command has a copy of.
type settingsCopy struct {
	path string     // on the host
	name string     // below settingsDirectory
	dir  descriptor // the git directory, as it was when the sandbox was made
	base string     // what the copy began with, and what the person's changes made of it
}

// target is where the link leads.
func (c *settingsCopy) target() string { return settingsDirectory + "/" + c.name }

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

// copySettings turns the mounts that make settings read-only into links to copies. It comes when the directories are watched already:
// what the person changes from now on is seen. A file that is not to be read as settings stays read-only.
func (a *attempt) copySettings() {
	s := &settings{}
	directory := mounts.Mount{Kind: mounts.Private, Path: settingsDirectory, Mode: 0o700, Size: settingsSize}
	total := 0
	for i := range a.requests {
		for k := range a.requests[i].Tree {
			m := &a.requests[i].Tree[k]
			if step := a.plan.at(m.Path); step == nil || !step.Settings || m.Kind != mounts.Bind {
				continue
			}
			dir, err := pin(parent(m.Source))
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
				dir.close()
				a.plan.notice(NoticeProtected, m.Path, "read-only inside, so that git cannot change its settings: "+printable(m.Path)+": "+reason(err))
				continue
			}
			total += len(text)
			c := &settingsCopy{path: m.Path, name: fmt.Sprintf("%d/%s", len(s.list), path.Base(m.Path)), dir: dir, base: text}
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
	if a.watch != nil {
		a.watch.settings = s
	}
}

var errNoSettings = errors.New("it cannot be read as settings of git's")

// readSettings reads a file of the host's that is in an open directory, following no link.
func readSettings(dir descriptor, file string) (string, error) {
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
	}
}

func (s *settings) close() {
	if s != nil {
		for _, c := range s.list {
			c.dir.close()
		}
	}
}

// cover puts the link back over a file that the host replaced.
func (s *settings) cover(c *settingsCopy) (uint64, error) {
	return s.mounter.CoverLink(c.path, c.target())
}

const (
	// lockPatience bounds the wait for a git on the host that is writing its settings.
	lockPatience = time.Second
	// maxLeft bounds how many settings are told.
	maxLeft = 20
	// maxTold bounds how much of a value is.
	maxTold = 200
)

// carryOver brings what the command changed into the host's files, as far as it does no harm. All processes of the command have ended.
func (s *settings) carryOver() []Notice {
	if s == nil || s.mounter == nil {
		return nil
	}
	var notices []Notice
	for _, c := range s.list {
		notices = append(notices, c.carryOver(s.mounter)...)
	}
	if len(notices) > maxLeft {
		more := Notice{Kind: NoticeGitSetting, Text: fmt.Sprintf("git settings that were not carried over: %d more", len(notices)-maxLeft)}
		notices = append(notices[:maxLeft], more)
	}
	return notices
}

// carryOver carries one file's changes over.
func (c *settingsCopy) carryOver(mounter *mounts.Mounter) []Notice {
	inside, err := mounter.ReadCopy(c.name, repository.MaxFile)
	if err != nil {
		return []Notice{c.notCarried("what the command left of its copy cannot be read: " + reason(err))}
	}
	if inside == c.base {
		return nil
	}
	var left []repository.Left
	err = repository.Update(int(c.dir), path.Base(c.path), lockPatience, func(now string) (text string, err error) {
		text, left, err = repository.Carry(c.base, inside, now)
		return text, err
	})
	switch {
	case errors.Is(err, repository.ErrLocked):
		return []Notice{c.notCarried("another git holds " + printable(c.path+".lock"))}
	case err != nil:
		return []Notice{c.notCarried(reason(err))}
	}
	notices := make([]Notice, 0, len(left))
	for _, l := range left {
		notices = append(notices, c.left(l))
	}
	return notices
}

func (c *settingsCopy) notCarried(why string) Notice {
	return Notice{Kind: NoticeGitSetting, Path: c.path, Text: "git settings that the command changed were not carried over to " + printable(c.path) + ": " + why}
}

// left tells of a change that was left out, and how a person makes it.
func (c *settingsCopy) left(l repository.Left) Notice {
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
	change := printable(shortened(l.Key)) + " = " + printable(shortened(l.Value))
	if l.Removed {
		change = printable(shortened(l.Key)) + " without the values that were taken away"
	}
	text := "git setting not carried over to " + printable(c.path) + ": " + change + ": " + why
	if len(l.Key)+len(l.Value) <= maxTold && printable(l.Key+l.Value) == l.Key+l.Value {
		text += "; who wants it, sets it outside: " + commandLine(command)
	}
	return Notice{Kind: NoticeGitSetting, Path: c.path, Text: text}
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
