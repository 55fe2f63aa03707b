package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/links"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

// requiredOptions are those that every sandbox is made with. They are looked for in bwrap's help,
// never derived from its version: distributions carry options back to older ones.
var requiredOptions = []string{
	"--args", "--cap-drop", "--chdir", "--die-with-parent", "--file", "--json-status-fd", "--new-session", "--perms",
	"--remount-ro", "--seccomp", "--unshare-cgroup-try", "--unshare-user",
}

// optionalOptions are used where bwrap has them. Without --bind-fd a source is bound through
// /proc/self/fd, without --disable-userns the seccomp filter alone refuses further user namespaces.
const (
	optionBindFD        = "--bind-fd"
	optionDisableUserns = "--disable-userns"
)

// Bwrap is a bubblewrap program and what it can do.
type Bwrap struct {
	Path    string   `json:"path"`
	Options []string `json:"options"` // sorted
}

// Has reports whether this bwrap has an option.
func (b Bwrap) Has(option string) bool {
	_, found := slices.BinarySearch(b.Options, option)
	return found
}

// programDirectories are where programs are looked for that run outside. Not PATH: what a command
// wrote may well be in it, such as .venv/bin or node_modules/.bin, and there it is as much the
// caller's as what the caller made.
var programDirectories = []string{"/usr/bin", "/usr/local/bin", "/bin", "/run/current-system/sw/bin", "/run/current-system/profile/bin"}

// FindBwrap looks for bubblewrap, reads its options and checks that it has those that are needed.
// An explicit path replaces the search, and may lead to a program of the caller's own, but not to
// one that a command could have put there. What it learns is kept in the directory cache (if not
// empty), this program's own, under the program's identity, so that later calls do not execute it.
// The error is an *UnavailableError.
func FindBwrap(explicit, cache string) (Bwrap, error) {
	candidates, owner := []string{explicit}, process.TrustedOwner
	if explicit == "" {
		owner, candidates = process.RootsOwn, nil
		for _, dir := range programDirectories {
			candidates = append(candidates, filepath.Join(dir, "bwrap"))
		}
	}
	for _, path := range candidates {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			continue
		}
		if err := process.TrustPlace(path, owner); err != nil {
			return Bwrap{}, &UnavailableError{Reason: ReasonBwrapUntrusted, Stderr: err.Error(), Hint: hints[ReasonBwrapUntrusted]}
		}
		if explicit != "" && plantable(path, cache) {
			return Bwrap{}, &UnavailableError{Reason: ReasonBwrapUntrusted, Stderr: printable(path) + " is where a command in a sandbox could write", Hint: hints[ReasonBwrapUntrusted]}
		}
		return identify(path, info, cache)
	}
	where := "in " + strings.Join(programDirectories, ", ") + " (PATH is not searched; CLAI_SANDBOX_BWRAP names one elsewhere)"
	if explicit != "" {
		where = "at " + printable(explicit)
	}
	return Bwrap{}, &UnavailableError{Reason: ReasonBwrapMissing, Stderr: "no bwrap " + where,
		Hint: hints[ReasonBwrapMissing]}
}

// plantable reports whether a command could ever have written a program, or a link that leads to
// it. state is this program's own directory.
func plantable(program, state string) bool {
	if state == "" {
		return false
	}
	p := Protection{written: filepath.Join(state, profile.WrittenName)}
	w, err := links.Follow(links.Host{}, program)
	if err != nil || p.couldWrite(w.Real) {
		return true
	}
	return slices.ContainsFunc(w.Links, func(l links.Link) bool { return p.couldWrite(l.Path) })
}

// identify reads the options of the bwrap at path.
func identify(path string, info os.FileInfo, cache string) (Bwrap, error) {
	stat := info.Sys().(*syscall.Stat_t)
	if !process.TrustedOwner(stat.Uid) || info.Mode().Perm()&0o022 != 0 {
		return Bwrap{}, &UnavailableError{Reason: ReasonBwrapUntrusted,
			Stderr: fmt.Sprintf("%s belongs to user %d with mode %04o", path, stat.Uid, info.Mode().Perm()),
			Hint:   hints[ReasonBwrapUntrusted]}
	}
	identity := fmt.Sprintf("%q %d:%d %d %d %d", path, stat.Dev, stat.Ino, info.Size(), info.ModTime().UnixNano(),
		stat.Ctim.Nano())
	options, known := recall(cache, identity)
	if !known {
		help, err := helpText(path)
		if err != nil {
			return Bwrap{}, &UnavailableError{Reason: ReasonUnknown, Stderr: path + " --help: " + err.Error(),
				Hint: hints[ReasonUnknown]}
		}
		options = optionsIn(help)
		remember(cache, identity, options)
	}
	b := Bwrap{Path: path, Options: options}
	for _, option := range requiredOptions {
		if !b.Has(option) {
			return b, &UnavailableError{Reason: ReasonBwrapTooOld, Stderr: path + " has no " + option,
				Hint: hints[ReasonBwrapTooOld]}
		}
	}
	return b, nil
}

// helpText executes bwrap on a thread without capabilities, which bwrap would refuse even for its
// help.
func helpText(path string) ([]byte, error) {
	type answer struct {
		text []byte
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := process.DropCapabilities(); err != nil {
			done <- answer{err: err}
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, "--help")
		cmd.Env = []string{}
		text, err := cmd.CombinedOutput()
		done <- answer{text, err}
	}()
	a := <-done
	return a.text, a.err
}

// optionsIn lists the options that a help text explains: the first word of each line that begins
// with two dashes.
func optionsIn(help []byte) []string {
	var list []string
	for line := range strings.Lines(string(help)) {
		words := strings.Fields(line)
		if len(words) > 0 && strings.HasPrefix(words[0], "--") && strings.HasPrefix(line, " ") {
			list = append(list, words[0])
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// What is learned of a bwrap is remembered as lines of text: its identity, then its options. The
// directory is this program's own state: no sandbox can write there, or a command could take
// options away from the next one.
const memoName = "bwrap-options"

func recall(cache, identity string) ([]string, bool) {
	if cache == "" {
		return nil, false
	}
	file, err := os.OpenFile(filepath.Join(cache, memoName), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, false
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > 64<<10 || info.Mode().Perm()&0o022 != 0 ||
		int(info.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
		return nil, false
	}
	text := make([]byte, info.Size())
	if _, err := file.ReadAt(text, 0); err != nil {
		return nil, false
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if lines[0] != identity || !slices.IsSorted(lines[1:]) {
		return nil, false
	}
	return lines[1:], true
}

// remember writes the memo for the next run. It is only a shortcut: a directory that cannot be
// written costs time, and nothing else.
func remember(cache, identity string, options []string) {
	if cache == "" {
		return
	}
	temporary, err := os.CreateTemp(cache, memoName+".*")
	if err != nil {
		return
	}
	_, err = temporary.WriteString(identity + "\n" + strings.Join(options, "\n") + "\n")
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), filepath.Join(cache, memoName))
	}
	if err != nil {
		os.Remove(temporary.Name())
	}
}

// writableBy says which writable bind of the plan holds this bwrap, or nothing. A command that
// could replace bwrap would own every sandbox after its own.
func (b Bwrap) writableBy(p *Plan, tree Tree) string { return p.writes(b.Path, tree) }

// writes is the writable bind that holds a program of the host's, or a link to it; or nothing.
func (p *Plan) writes(program string, tree Tree) string {
	w, err := follow(tree, program)
	if err != nil {
		return ""
	}
	for _, link := range append(w.Links, Link{Path: w.Real}) {
		if step := p.decides(link.Path); step != nil && step.Kind == Bind && step.Access == profile.ReadWrite {
			return step.Path
		}
	}
	return ""
}
