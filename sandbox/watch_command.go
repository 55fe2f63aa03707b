package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/sandbox/cow"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
	"github.com/clairun/clai-sandbox/sandbox/process"
	"github.com/clairun/clai-sandbox/sandbox/protect"
	"github.com/clairun/clai-sandbox/sandbox/repository"
)

// A commandWatch watches the directories that the command may write, for as long as it runs.
//
// What comes into being there under a protected name is set aside; package protect does that. And
// what protects or hides something there stands on something of the host's. When the person's own
// tools replace that ("git config" and editors write another file and rename it), the kernel takes
// the mount away; when they rename it, the mount goes with it. What is there now is covered as soon
// as the kernel tells.
//
// There is a moment in between, in which a command that waits for it can open the new file.
// docs/security.md has figures.
type commandWatch struct {
	watch     *protect.Watch
	record    *protect.Record
	look      func() prepared // writes the record and watches all directories; nil: begun
	prepare   chan prepared
	begun     bool
	elsewhere map[string]bool // git's settings, which mountWatch looks after
	mounter   *mounts.Mounter
	init      int // pid 1 inside, by its number outside

	mu      sync.Mutex
	covers  map[string]bool // the paths; true: what is there is hidden
	notices []Notice
}

// prepared is what came of watching all directories.
type prepared struct {
	closed []protect.Closed // not watched: must not be writable
	late   []string         // protected, and there only since the plan was built
	err    error
}

// watchDirectories begins to watch what the command may write, and what the plan's mounts stand on.
// It comes before they are made. What takes longer is left to lookAround, while bwrap starts.
func (a *attempt) watchDirectories(l Launcher) error {
	w := &commandWatch{covers: map[string]bool{}, elsewhere: map[string]bool{}, prepare: make(chan prepared, 1)}
	covers := w.coverMounts(a)
	options := protect.Options{Names: protect.NewNames(nil, nil), Covers: covers, Disarm: disarm, DisarmSettings: disarmSettings, CheckIndex: checkIndex, SkipWorktree: repository.SkipWorktree, Exclude: repository.Exclude, CheckGitFile: checkGitFile, NewObjectCheck: newObjectCheck,
		Held: w.held}
	if a.settings != nil {
		options.Instead = func(dir int, name string) ([]protect.Taken, bool) { return a.settings.instead(w.mounter, dir, name) }
	}
	var lookout *Lookout
	p := a.plan.Protection
	watches := p != nil && !p.strict
	if watches {
		lookout = p.lookout
		options.Roots, options.Names, options.Known, options.Git, options.Apart = p.Roots, p.names, maps.Clone(p.known), maps.Clone(p.git), p.apart
		options.Made, options.Own, options.CouldWrite = p.made, p.own(), p.couldWrite
	} else if len(covers) == 0 {
		return nil
	}
	a.watch = w
	if watches {
		a.leads = newLeadsWatch(a, p)
		a.leads.open()
	}
	var err error
	if w.watch, err = lookout.take(); err != nil {
		return &SetupError{Why: "watch the directories that the command may write: " + err.Error(),
			Hint: "close other programs that watch many directories, or raise fs.inotify.max_user_instances"}
	}
	w.look = func() (done prepared) {
		if watches {
			w.record, done.err = p.recordRun(l.State, w.watch.Began())
			options.Record = w.record
		}
		if done.err == nil {
			done.closed, done.late, done.err = w.watch.Prepare(options)
		}
		return done
	}
	return nil
}

// lookAround has the record written and all directories watched. awaitWatch waits for it.
func (w *commandWatch) lookAround() {
	if w != nil && w.look != nil {
		look := w.look
		w.look = nil
		go func() { w.prepare <- look() }()
	}
}

// recordRun leaves a record for the next run, should this process be killed.
func (p *Protection) recordRun(state string, began time.Time) (*protect.Record, error) {
	run := protect.Run{Roots: p.Roots, Known: p.known, Git: p.git, Apart: p.apart, Strays: p.strays, Names: p.names.List, Packages: profile.PackageDirectories(),
		Agent: p.agent, Workspace: p.workspace, Began: began.UnixNano(), Own: p.own()}
	for name := range p.names.Unprotected {
		run.Kept = append(run.Kept, name)
	}
	record, err := protect.NewRecord(state, run)
	if err != nil {
		return nil, &SetupError{Why: "record what this run may write: " + err.Error(), Hint: "make room, or mend the permissions, in ~/.local/state/clai-sandbox; or choose a smaller workspace with --workspace DIR"}
	}
	return record, nil
}

func checkIndex(dir int, name string, settle bool) error {
	return mended(repository.CheckIndex(dir, []int{dir}, name, settle))
}

func mended(err error) error {
	if errors.Is(err, repository.ErrMended) {
		return errors.Join(protect.ErrMended, err)
	}
	return err
}

func newObjectCheck(until time.Time) func([]int, string, string) error {
	return repository.NewObjects(until).Check
}

func checkGitFile(dir int, name, tree string, writes func(path string) bool) error {
	return repository.CheckGitFile(dir, name, tree, repository.Place{Writes: writes, IsPlain: repository.IsPlain})
}

// disarm is repository.Disarm for package protect, which knows no git.
func disarm(dir int, aside func(dir int, name string) error) ([]protect.Taken, error) {
	taken, err := repository.Disarm(dir, aside)
	return takenOf(taken), err
}

func disarmSettings(dir int, name string, aside func(dir int, name string) error) ([]protect.Taken, error) {
	taken, err := repository.DisarmSettings(dir, name, aside)
	return takenOf(taken), err
}

func takenOf(taken []repository.Taken) []protect.Taken {
	list := make([]protect.Taken, 0, len(taken))
	for _, t := range taken {
		list = append(list, protect.Taken{Name: t.Name, Key: t.Key, Value: t.Value})
	}
	return list
}

// coverMounts notes what the plan's mounts stand on, and what they are for.
func (w *commandWatch) coverMounts(a *attempt) map[string]protect.Cover {
	covers := map[string]protect.Cover{}
	for i := range a.requests {
		r := &a.requests[i]
		for _, m := range r.Tree[1:] {
			step := a.plan.at(m.Path)
			if step == nil || !step.required() || a.plan.inOwn(m.Path) || step.inLayer {
				continue
			}
			if step.Settings && a.settingsWatch != nil {
				covers[m.Path] = protect.Elsewhere // mountWatch looks after it
				w.elsewhere[m.Path] = true
				continue
			}
			w.covers[m.Path] = step.hidesAll()
			covers[m.Path] = step.covers()
			if !slices.Contains(r.Keep, m.Path) {
				r.Keep = append(r.Keep, m.Path)
			}
		}
	}
	return covers
}

// covers is what a step does to what the host has there.
func (s *Step) covers() protect.Cover {
	switch {
	case s.hidesAll():
		return protect.Hides
	case s.Access != profile.ReadWrite && s.Purpose == "":
		return protect.Withholds
	case s.Access != profile.ReadWrite:
		return protect.Protects
	}
	return protect.Anchors
}

// hidesAll reports whether nothing of what the host has is to be seen.
func (s *Step) hidesAll() bool { return s.Kind == Mask || s.Kind == Empty || s.Kind == Socket }

// awaitWatch waits until the record is written and every directory is watched. What could not be is
// made read-only, before anything is mounted.
func (a *attempt) awaitWatch() (late []string, err error) {
	if a.watch == nil {
		return nil, nil
	}
	a.watch.lookAround()
	p := <-a.watch.prepare
	a.watch.prepare <- prepared{} // for whoever waits for its end
	var failed *os.PathError
	var setup *SetupError
	switch {
	case errors.As(p.err, &setup):
		return nil, setup
	case errors.As(p.err, &failed):
		return nil, &SetupError{Path: failed.Path, Why: "cannot be watched, and so must not be writable: " + reason(failed.Err),
			Hint: "see /proc/sys/fs/inotify/max_user_watches, or try again"}
	case p.err != nil:
		return nil, &SetupError{Why: "watch the directories that the command may write: " + printable(p.err.Error()), Hint: "try again"}
	}
	for _, closed := range p.closed {
		if err := a.closeOff(closed); err != nil {
			return nil, err
		}
	}
	return p.late, nil
}

// closeOff makes a directory read-only that cannot be watched.
func (a *attempt) closeOff(closed protect.Closed) error {
	for i := range a.requests {
		r := &a.requests[i]
		if !within(closed.Path, r.Tree.Path()) {
			continue
		}
		there := false
		for j := range r.Tree {
			m := &r.Tree[j]
			if m.Path == closed.Path || within(m.Path, closed.Path) && !slices.Contains(a.plan.Protection.Roots, m.Path) {
				m.Writable = false
				there = there || m.Path == closed.Path
			}
		}
		if !there {
			r.Tree = append(r.Tree, mounts.Mount{Kind: mounts.Bind, Path: closed.Path, Source: closed.Path})
			*r = inOrder(*r)
		}
		a.plan.notice(NoticeProtected, closed.Path, "read-only in this run: "+printable(closed.Path)+": "+printable(closed.Why))
		return nil
	}
	return &SetupError{Path: closed.Path, Why: "cannot be watched, and so must not be writable: " + printable(closed.Why), Hint: "make it readable, or remove it"}
}

// watchedByBwrap waits for the watch before bwrap starts, where bwrap makes all mounts: nothing can
// be made read-only later.
func (a *attempt) watchedByBwrap() error {
	late, err := a.awaitWatch()
	if err == nil && len(late) > 0 {
		err = &SetupError{Path: late[0], Why: "is protected, and has come while the sandbox was made", Hint: "try again"}
	}
	return err
}

// mountLate has what has come since the plan was built mounted read-only, too, where it still is
// then.
func (a *attempt) mountLate(late []string) map[string]bool {
	mounted := map[string]bool{}
	for _, path := range late {
		object, err := Host{}.Lstat(path)
		if err != nil || object.Mode&fs.ModeSymlink != 0 {
			continue // gone, or no mount: another one in its place is set aside
		}
		for i := range a.requests {
			r := &a.requests[i]
			if within(path, r.Tree.Path()) && path != r.Tree.Path() {
				r.Tree = append(r.Tree, mounts.Mount{Kind: mounts.Bind, Path: path, Source: path, File: !object.Mode.IsDir(), Optional: true})
				r.Keep = append(r.Keep, path)
				*r = inOrder(*r)
				mounted[path] = true
			}
		}
	}
	return mounted
}

// leftOut reports whether a step may be left out because nothing is there any more: what comes to
// be there is set aside.
func (w *commandWatch) leftOut(step *Step, err error) bool {
	if w == nil || !errors.Is(err, unix.ENOENT) || step != nil && step.Purpose != Protects {
		return false
	}
	if step != nil {
		w.watch.Gone(step.Path)
		w.mu.Lock()
		delete(w.covers, step.Path)
		w.mu.Unlock()
	}
	return true
}

// begin covers what was replaced while the mounts were made. mounted is what was mounted.
func (w *commandWatch) begin(mounted []mounts.Mounted, late map[string]bool) {
	there := map[string]bool{}
	for _, m := range mounted {
		there[m.Path] = true
		if late[m.Path] {
			w.add(m.Path, protect.Protects)
		}
	}
	w.mu.Lock()
	var missing []string
	for path := range w.covers {
		if !there[path] {
			missing = append(missing, path)
		}
	}
	w.mu.Unlock()
	for _, path := range missing {
		w.cover(path)
	}
}

// add has a path covered from now on, whenever the host replaces what is there.
func (w *commandWatch) add(path string, how protect.Cover) {
	w.mu.Lock()
	w.covers[path] = how == protect.Hides
	w.mu.Unlock()
	w.watch.CoverAlso(path, how)
}

// follow has what another plan mounts covered from now on, and nothing else.
func (w *commandWatch) follow(p *Plan) {
	covers := map[string]protect.Cover{}
	w.mu.Lock()
	w.covers = map[string]bool{}
	for i := range p.Steps {
		step := &p.Steps[i]
		above := p.decides(parent(step.Path))
		if step.Settings && w.elsewhere[step.Path] {
			covers[step.Path] = protect.Elsewhere
			continue
		}
		if step.required() && step.apart() && above != nil && above.Kind == Bind && !above.Entries {
			covers[step.Path] = step.covers()
			w.covers[step.Path] = step.hidesAll()
		}
	}
	w.mu.Unlock()
	w.watch.Cover(covers)
}

// read begins to handle what the kernel tells.
func (w *commandWatch) read(mounter *mounts.Mounter, init int) {
	w.mounter, w.init, w.begun = mounter, init, true
	w.watch.Begin(w.cover, w.missing)
}

// held reports whether a process inside has one of some directories.
func (w *commandWatch) held(is func(device, inode uint64) bool) bool {
	for _, pid := range process.Descendants(w.init) {
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)) // each may have its own (unshare(2))
		for _, thread := range threads {
			if holds(fmt.Sprintf("/proc/%d/task/%s/", pid, thread.Name()), is) {
				return true
			}
		}
	}
	return false
}

// holds reports whether one thread has a directory.
func holds(base string, is func(device, inode uint64) bool) bool {
	names := []string{"cwd", "root"}
	open, _ := os.ReadDir(base + "fd")
	for _, entry := range open {
		names = append(names, "fd/"+entry.Name())
	}
	return slices.ContainsFunc(names, func(name string) bool {
		var stat unix.Stat_t // nothing can be made in a directory that was removed
		return unix.Stat(base+name, &stat) == nil && stat.Nlink > 0 && is(uint64(stat.Dev), stat.Ino)
	})
}

// missing names the paths at which nothing is mounted any more. It is for when the kernel could not
// tell all.
func (w *commandWatch) missing() []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", w.init))
	if err != nil {
		return nil // it has ended
	}
	mounted := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			mounted[unescapeMount(fields[4])] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var missing []string
	for path := range w.covers {
		if !mounted[path] {
			missing = append(missing, path)
		}
	}
	return missing
}

// unescapeMount reads a path of mountinfo (proc(5)).
func unescapeMount(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// cover covers what is at a path now.
func (w *commandWatch) cover(path string) {
	w.mu.Lock()
	hide := w.covers[path]
	w.mu.Unlock()
	if w.mounter == nil {
		return
	}
	var id uint64
	var err error
	for range maxCovers {
		if id, err = w.mounter.Cover(path, hide); err == nil {
			break
		}
	}
	if id == 0 && err == nil {
		return
	}
	text := "was replaced on the host while the command ran; what is there now is covered: "
	if err != nil {
		text = "was replaced on the host while the command ran, and could not be covered again: "
	}
	notice := Notice{Kind: NoticeProtected, Path: path, Text: text + printable(path)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.notices, func(n Notice) bool { return n.Path == path }); i >= 0 {
		w.notices[i] = notice // the last time counts
	} else if len(w.notices) < maxSetAside {
		w.notices = append(w.notices, notice)
	}
}

// over is closed when the command has to be ended.
func (w *commandWatch) over() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.watch.Over()
}

// objects looks through git's objects, when a command of a session has ended.
func (w *commandWatch) objects() {
	if w != nil && w.begun {
		w.watch.Objects()
	}
}

// news is what was set aside since the last news.
func (w *commandWatch) news() []Notice {
	if w == nil || !w.begun {
		return nil
	}
	return reported(nil, w.watch.News())
}

// end ends the watch, when every process of the command has ended, and returns what there is to
// tell.
func (w *commandWatch) end(l Launcher, p *Protection) []Notice {
	if w == nil {
		return nil
	}
	q := l.quarantine(p)
	report := w.watch.End(q)
	rememberMade(l.State, report.Made)
	notices := reported(q, report)
	w.close()
	for _, n := range w.notices {
		if !slices.ContainsFunc(notices, func(told Notice) bool { return told.Path == n.Path }) {
			notices = append(notices, n)
		}
	}
	return notices
}

// close is for a watch that has nothing more to do, or never began. The mounter has the inotify
// instance open as well: closing the last descriptor of one waits for the kernel, some
// milliseconds, and nobody waits for the mounter.
func (w *commandWatch) close() {
	if w == nil || w.watch == nil {
		return
	}
	if w.look == nil {
		<-w.prepare
		w.prepare <- prepared{}
	}
	w.watch.Close()
	w.record.Remove()
}

// Sweep sets aside what commands left whose launcher was killed, and says what. It comes before a
// plan is built.
func Sweep(state string) []Notice {
	var notices []Notice
	for _, dir := range shut.Sweep(state) {
		if layer, err := cow.Take(dir); err == nil { // one that an earlier version made
			layer.Close()
		}
	}
	for _, r := range protect.Sweep(state, disarm, checkIndex, checkGitFile, newObjectCheck, repository.Exclude) {
		notices = append(notices, reported(protect.QuarantineIn(state), r)...)
	}
	notices = append(notices, leftBehind(state)...)
	return notices[:min(len(notices), 2*maxSetAside)]
}

// maxSetAside bounds how many notices of a kind there are.
const maxSetAside = 20

// quarantine takes what a command of a plan made.
func (l Launcher) quarantine(p *Protection) *protect.Quarantine {
	q := protect.QuarantineIn(l.State)
	if q != nil && p != nil {
		q.Agent, q.Workspace = p.agent, p.workspace
	}
	return q
}

// reported puts what a watch has to tell into notices, and settings that were taken out into the
// quarantine.
func reported(q *protect.Quarantine, r protect.Report) []Notice {
	var notices []Notice
	tell := func(path, text string) {
		notices = append(notices, Notice{Kind: NoticeProtected, Path: path, Text: text})
	}
	if r.Why != "" {
		tell("", "the command was ended: it "+printable(r.Why)+"; something outside the sandbox may execute that or do as it says")
	}
	for _, t := range r.Told {
		if t.ID == "" && t.Rule == "" {
			tell(t.Path, printable(t.Path)+": "+printable(t.Text))
			continue
		}
		text := "set aside: " + printable(t.Path) + ": something outside the sandbox would execute it or do as it says; "
		if t.Rule == ".git" && strings.Contains(t.Path, "/objects/") {
			text += "it is not what its name says, or there was no time to see that it is: 'git fsck' tells what git misses without it, and 'git fetch --refetch', or another clone, has that; "
		} else if t.Rule == ".git" && strings.Contains(strings.ToLower(baseName(t.Path)), "index") {
			text += "if it is no link, it names paths that no commit can have, or cannot be read, and 'git reset' makes a new one; "
		}
		if t.Text != "" {
			text += printable(t.Text) + "; "
		}
		if t.ID != "" {
			text += "clai-sandbox quarantine restore " + t.ID + " puts it back, "
		}
		if t.Rule != "" {
			text += "--unprotect " + Quote(t.Rule) + " leaves it writable"
		}
		tell(t.Path, strings.TrimRight(text, ", ;"))
	}
	if r.More > 0 {
		tell("", fmt.Sprintf("%d more were set aside: clai-sandbox quarantine list", r.More))
	}
	told := 0
	for path, list := range r.Taken {
		for _, t := range list {
			if told++; told > maxSetAside {
				tell("", "more was taken out of repositories that the command made")
				return notices
			}
			text := "taken out of a repository that the command made, because git would execute it or be led elsewhere by it: " + printable(path) + ": "
			if t.Key == "" {
				tell(path, text+printable(t.Name))
				continue
			}
			text += printable(shortened(t.Key)) + " = " + printable(shortened(t.Value))
			tell(path, text+outside(q, join(path, t.Name), protect.Setting{Key: t.Key, Value: t.Value}, "git", "config", "-f", join(path, t.Name), "--add", t.Key, t.Value))
		}
	}
	return notices
}
