package protect

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// A Record is a small file in the state directory, as long as a command runs: what it may write,
// and what was protected there before. The launcher holds a lock on it. One without a lock is that
// of a launcher that was killed, and Sweep does what that could not.
type Record struct {
	file *os.File
	path string
}

// A Run is what a record says.
type Run struct {
	Roots     []string          `json:"roots"`
	Known     map[string]bool   `json:"known,omitempty"`
	Git       map[string]bool   `json:"git,omitempty"`
	Apart     map[string]bool   `json:"apart,omitempty"`
	Links     map[string]string `json:"links,omitempty"` // of what is known, the symbolic links: nothing is mounted on them
	Strays    map[string]string `json:"strays"`          // links and the like in git's directories, by path
	Names     []Name            `json:"names"`
	Packages  []string          `json:"packages,omitempty"`
	Kept      []string          `json:"kept,omitempty"` // of git's own names, those that are writable
	Agent     string            `json:"agent,omitempty"`
	Workspace string            `json:"workspace,omitempty"`
	Began     int64             `json:"began,omitempty"` // when, by the clock in nanoseconds
	Own       string            `json:"own,omitempty"`   // this program's directory
}

// moved is a line behind it: something was set aside, or what may be written has changed.
type moved struct {
	Aside string `json:"aside,omitempty"`
	Path  string `json:"path,omitempty"`
	Bare  string `json:"bare,omitempty"` // no longer apart
	Also  *Run   `json:"also,omitempty"` // more that the command may write
	Left  string `json:"left,omitempty"` // a root that it may not write any more
}

// notUTF8 begins what stands for a path that JSON cannot hold as it is. No path has it.
const notUTF8 = "\x00"

func asText(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return notUTF8 + hex.EncodeToString([]byte(path))
}

func fromText(text string) string {
	if encoded, is := strings.CutPrefix(text, notUTF8); is {
		if path, err := hex.DecodeString(encoded); err == nil {
			return string(path)
		}
	}
	return text
}

// rewrite changes all paths. What shares them stays as it is.
func (r *Run) rewrite(change func(string) string) {
	isOther := func(path string) bool { return change(path) != path }
	keys := func(m map[string]bool) map[string]bool {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(m)), isOther) {
			return m
		}
		changed := make(map[string]bool, len(m))
		for path, is := range m {
			changed[change(path)] = is
		}
		return changed
	}
	r.Roots, r.Names = slices.Clone(r.Roots), slices.Clone(r.Names)
	for i := range r.Roots {
		r.Roots[i] = change(r.Roots[i])
	}
	for i := range r.Names {
		r.Names[i].Path, r.Names[i].In, r.Names[i].Rule = change(r.Names[i].Path), change(r.Names[i].In), change(r.Names[i].Rule)
	}
	texts := func(m map[string]string) map[string]string {
		changed := make(map[string]string, len(m))
		for path, is := range m {
			changed[change(path)] = change(is)
		}
		return changed
	}
	r.Strays, r.Links = texts(r.Strays), texts(r.Links)
	r.Known, r.Git, r.Apart, r.Workspace = keys(r.Known), keys(r.Git), keys(r.Apart), change(r.Workspace)
	r.Own = change(r.Own)
}

const (
	recordsName = "runs"
	maxRecord   = 64 << 20
	maxFirst    = 8 << 20 // of its first line
	maxRecords  = 256
)

// NewRecord writes one.
func NewRecord(state string, run Run) (*Record, error) {
	if state == "" {
		return nil, nil
	}
	run.Links = linksIn(run.Known)
	run.rewrite(asText)
	text, err := json.Marshal(run)
	if err != nil {
		return nil, err
	}
	if len(text) > maxFirst {
		return nil, errors.New("too much of it is protected, in paths that are too long")
	}
	dir := filepath.Join(state, recordsName)
	path := filepath.Join(dir, strings.ToLower(rand.Text()[:12]))
	flags := unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_APPEND
	// Under another name until it is locked: a sweep would take it for a dead one's.
	fd, err := unix.Open(path+".new", flags, 0o600)
	if err == unix.ENOENT {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			fd, err = unix.Open(path+".new", flags, 0o600)
		}
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	r := &Record{file: os.NewFile(uintptr(fd), path), path: path}
	if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		_, err = r.file.Write(append(text, '\n'))
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		r.file.Close()
		os.Remove(path + ".new")
		return nil, err
	}
	return r, nil
}

// linksIn are those of some paths at which there are symbolic links, with their texts.
func linksIn(paths map[string]bool) map[string]string {
	links := map[string]string{}
	for path := range paths {
		if text, err := os.Readlink(path); err == nil {
			links[path] = text
		}
	}
	return links
}

// isKnown reports whether what is at a path was there when the run began. What is mounted there the
// command could not replace.
func (r *Run) isKnown(path string) bool {
	was, isLink := r.Links[path]
	if now, err := os.Readlink(path); isLink && (err != nil || now != was) {
		return false
	}
	return r.Known[path]
}

func (r *Record) aside(aside, path string) { r.add(moved{Aside: asText(aside), Path: asText(path)}) }

func (r *Record) bare(path string) { r.add(moved{Bare: asText(path)}) }

// also is about a root more, and what was protected below it.
func (r *Record) also(root string, run Run) {
	if r == nil {
		return
	}
	below := func(m map[string]bool) map[string]bool {
		m = maps.Clone(m)
		maps.DeleteFunc(m, func(path string, _ bool) bool { return !within(path, root) })
		return m
	}
	run.Roots, run.Known, run.Git, run.Apart = []string{root}, below(run.Known), below(run.Git), below(run.Apart)
	r.add(moved{Also: recorded(run)})
}

// recorded is a run as it is written down.
func recorded(run Run) *Run {
	run.Links = linksIn(run.Known)
	run.rewrite(asText)
	return &run
}

func (r *Record) left(root string) { r.add(moved{Left: asText(root)}) }

func (r *Record) add(line moved) {
	if r == nil {
		return
	}
	if text, err := json.Marshal(line); err == nil {
		r.file.Write(append(text, '\n'))
	}
}

func (r *Record) remove() {
	if r == nil || r.file == nil {
		return
	}
	os.Remove(r.path)
	r.file.Close()
	r.file = nil
}

// Remove is for a run that came to nothing.
func (r *Record) Remove() { r.remove() }

// records calls do with each record in a state directory. dead says that its launcher is; then the
// file is locked for do.
func records(state string, do func(path string, file *os.File, dead bool)) {
	dir := filepath.Join(state, recordsName)
	list, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0) // a pipe would be waited for
	if err != nil {
		return
	}
	names, _ := list.Readdirnames(maxRecords)
	list.Close()
	for _, name := range names {
		path := filepath.Join(dir, name)
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		file := os.NewFile(uintptr(fd), path)
		isNew := strings.HasSuffix(name, ".new")
		if info, err := file.Stat(); isNew && (err != nil || time.Since(info.ModTime()) < time.Minute) {
			file.Close() // its launcher is about to lock it, and must not find it locked
			continue
		}
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case isNew: // its launcher died before its command began
			if err == nil {
				os.Remove(path)
			}
		case err == nil && !stillThere(fd, path):
		default:
			do(path, file, err == nil)
		}
		file.Close()
	}
}

// stillThere reports whether an open file is the one at a path: another sweep may have done with
// it.
func stillThere(fd int, path string) bool {
	var open, there unix.Stat_t
	return unix.Fstat(fd, &open) == nil && unix.Lstat(path, &there) == nil && objectOf(&open) == objectOf(&there)
}

func readRun(file *os.File) (run Run, asides []moved, err error) {
	text, err := io.ReadAll(io.LimitReader(file, maxRecord))
	if err != nil {
		return run, nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxRecord)
	if !lines.Scan() {
		return run, nil, errors.Join(io.ErrUnexpectedEOF, lines.Err())
	}
	if err := json.Unmarshal(lines.Bytes(), &run); err != nil {
		return run, nil, err
	}
	run.rewrite(fromText)
	for lines.Scan() {
		var m moved
		if json.Unmarshal(lines.Bytes(), &m) == nil {
			delete(run.Apart, fromText(m.Bare))
			run.change(m)
			if m.Aside != "" {
				asides = append(asides, moved{Aside: fromText(m.Aside), Path: fromText(m.Path)})
			}
		}
	}
	return run, asides, nil
}

// change does what a line says of what may be written.
func (r *Run) change(m moved) {
	r.Roots = slices.DeleteFunc(r.Roots, func(root string) bool { return m.Left != "" && root == fromText(m.Left) })
	if m.Also == nil {
		return
	}
	m.Also.rewrite(fromText)
	r.Roots, r.Names = append(r.Roots, m.Also.Roots...), append(r.Names, m.Also.Names...)
	for _, lists := range []struct {
		all *map[string]bool
		of  map[string]bool
	}{{&r.Known, m.Also.Known}, {&r.Git, m.Also.Git}, {&r.Apart, m.Also.Apart}} {
		if *lists.all == nil {
			*lists.all = map[string]bool{}
		}
		maps.Copy(*lists.all, lists.of)
	}
	if r.Links == nil {
		r.Links = map[string]string{}
	}
	maps.Copy(r.Links, m.Also.Links)
}

// Runs reports whether a command runs that may write where a path is.
func Runs(state, path string) bool {
	running := false
	records(state, func(_ string, file *os.File, dead bool) {
		run, _, err := readRun(file)
		for _, root := range run.Roots {
			running = running || err == nil && !dead && within(path, root)
		}
	})
	return running
}

// Disarm is how a repository that came into being loses what git executes.
type Disarm func(dir int, aside func(dir int, name string) error) ([]Taken, error)

// Sweep does for runs whose launcher was killed what that could not: what came into being there
// under a protected name goes into the quarantine.
func Sweep(state string, disarm Disarm, check CheckIndex, gitFile CheckGitFile, objects NewObjectCheck, exclude Exclude) []Report {
	if state == "" {
		return nil
	}
	var list []Report
	records(state, func(path string, file *os.File, dead bool) {
		if !dead {
			return
		}
		run, asides, err := readRun(file)
		if err == nil {
			q := QuarantineIn(state)
			q.Agent, q.Workspace = run.Agent, run.Workspace
			s := sweep{run: run, q: q, disarm: disarm, check: check, gitFile: gitFile, newObjectCheck: objects, exclude: exclude, report: Report{Taken: map[string][]Taken{}}}
			s.all(asides)
			list = append(list, s.report)
		} else {
			list = append(list, Report{Told: []Told{{Path: path, Text: "it cannot be read what a command could write whose launcher was killed, so nobody looked through that: " + err.Error()}}})
		}
		os.Remove(path)
	})
	return list
}

// sweep is one under way.
type sweep struct {
	run     Run
	q       *Quarantine
	disarm  Disarm
	check   CheckIndex
	gitFile CheckGitFile
	exclude Exclude
	report  Report

	newObjectCheck NewObjectCheck
}

func (s *sweep) all(asides []moved) {
	for _, a := range asides {
		if s.within(a.Aside) && isAside(base(a.Aside)) {
			s.put(a.Aside, a.Path, "")
		}
	}
	names := NewNames(s.run.Names, s.run.Packages)
	for _, name := range s.run.Kept {
		names.Unprotected[name] = true
	}
	if s.run.Own != "" {
		names.Inward = s.inward
	}
	isApart := func(path string) bool { return s.run.Apart[path] }
	for _, root := range s.run.Roots {
		result := names.Scan(root, isApart, DefaultLimits, nil)
		var repositories []string // that were there, whole or in part
		for _, found := range append(result.Links, result.Found...) {
			switch {
			case found.Repository && (s.run.Known[found.Path] || s.run.Git[found.Path]):
				repositories = append(repositories, found.Path)
			case s.run.isKnown(found.Path):
			case found.Stray:
				s.stray(found.Path)
			case found.Index:
				s.index(found.Path)
			case found.Repository:
				s.repository(found.Path)
			default:
				s.put(found.Path, found.Path, found.Rule)
			}
		}
		if !names.Unprotected[".git"] {
			s.objects(result.Objects)
			s.packedRefs(result.Packed)
			s.shadows(result.Refs)
		}
		for dir := range s.run.Git {
			if within(dir, root) {
				repositories = append(repositories, dir)
			}
		}
		for _, dir := range repositories {
			for _, name := range gitNames {
				if path := join(dir, name); !s.run.Known[path] && !names.Unprotected[name] {
					s.put(path, path, ".git/"+name)
				}
			}
		}
		for _, closed := range result.Closed {
			s.tell(Told{Path: closed.Path, Text: "was not looked through after a launcher was killed: " + closed.Why})
		}
	}
	for _, a := range asides { // when nothing is left that leads git elsewhere
		s.showAside(parent(a.Aside))
	}
}

// showAside has git add again what is called as what was set aside in a directory: see
// excludeAside.
func (s *sweep) showAside(dir string) {
	for ; s.exclude != nil && dir != "/" && s.writes(dir); dir = parent(dir) {
		if _, err := os.Lstat(join(dir, ".git")); err == nil {
			s.exclude(dir, asidePattern, false, s.writes) // without it, there is a line more than was
			return
		}
	}
}

func (s *sweep) within(path string) bool {
	for _, root := range s.run.Roots {
		if within(path, root) && path != root && filepath.Clean(path) == path {
			return true
		}
	}
	return false
}

func (s *sweep) tell(t Told) {
	if len(s.report.Told) < maxTold {
		s.report.Told = append(s.report.Told, t)
	} else {
		s.report.More++
	}
}

// put moves what is at a path into the quarantine.
func (s *sweep) put(path, original, rule string) {
	dir, err := openRoot(parent(path))
	if err != nil {
		return
	}
	defer unix.Close(dir)
	s.putIn(dir, base(path), original, rule)
}

func (s *sweep) putIn(dir int, name, original, rule string) error {
	id, err := s.q.Put(dir, name, original, rule)
	if err == unix.ENOENT {
		return err
	}
	told := Told{Path: original, Rule: rule, ID: id}
	if err != nil {
		told.Text = "could not be moved to the quarantine: " + err.Error()
	}
	s.tell(told)
	return err
}

// index sets one aside that is not right.
func (s *sweep) index(path string) {
	dir, err := openReading(parent(path))
	if err != nil || s.check == nil {
		return
	}
	defer unix.Close(dir)
	apart(dir, base(path))
	if IsState(path) {
		if checkStateIn(dir, path, KeptState(s.run.Strays, path), false, true) != nil {
			s.putIn(dir, base(path), path, ".git")
		}
	} else if err := s.check(dir, base(path), true); err != nil && !errors.Is(err, ErrMended) {
		s.putIn(dir, base(path), path, ".git")
	}
}

// stray sets aside what git did not make in one of its directories, if it was not there before.
func (s *sweep) stray(path string) {
	dir, err := openRoot(parent(path))
	if err != nil {
		return
	}
	is := Stray(dir, path)
	unix.Close(dir)
	if is != "" && s.run.Strays[path] != is {
		s.put(path, path, ".git")
	}
}

// linked sets a file .git aside that leads where it must not. A link is looked at for itself.
func (s *sweep) linked(path string) {
	dir, err := openReading(parent(path))
	if err != nil || s.gitFile == nil {
		return
	}
	defer unix.Close(dir)
	apart(dir, base(path))
	if s.gitFile(dir, base(path), parent(path), s.writes) != nil {
		s.putIn(dir, base(path), path, ".git")
	}
}

// writes reports whether the command could write what is at a path.
func (s *sweep) writes(path string) bool {
	return slices.ContainsFunc(s.run.Roots, func(root string) bool { return within(path, root) && !covers(s.run.Apart, path, root) })
}

// openReading opens a directory for reading, through no link.
func openReading(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
}

func (s *sweep) repository(path string) {
	if s.disarm == nil {
		return
	}
	dir, err := openRoot(path)
	if err != nil {
		s.linked(path)
		return
	}
	unix.Close(dir)
	if dir, err = unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}); err != nil {
		return
	}
	defer unix.Close(dir)
	for _, name := range gitNames {
		apart(dir, name)
	}
	renewHooks(dir)
	taken, _ := s.disarm(dir, func(dir int, name string) error {
		at, err := readlink(dir)
		if err != nil {
			return err
		}
		return s.putIn(dir, name, join(at, name), ".git/"+name)
	})
	if len(taken) > 0 {
		s.report.Taken[path] = taken
	}
}
