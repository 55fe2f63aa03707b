package protect

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A rebase, a cherry-pick, "git am" or a bisection that stops leaves its state in a git directory,
// and whoever types --continue has git obey it: lines of it are executed, name a program, or go
// into a shell's prompt. So each file of it that anything obeys has to read as git itself writes
// it; and of what was there when the command began, the rest may be less, but nothing else.

// stateDirectories hold such files; others lie in the git directory itself.
var stateDirectories = []string{"rebase-merge", "rebase-apply", "sequencer"}

// A stateRule says whether a file may read so.
type stateRule uint8

const (
	anyText  stateRule = iota + 1
	aNumber            // a shell's prompt, as git brings it, executes what else is there
	anID               // an object's
	aRef               // a prompt shows it, too
	authors            // older versions of git have a shell read it
	strategy           // git executes the program "git-merge-" with that behind it
	options            // of a cherry-pick, with its strategy
	applying           // options of "git apply": one has it write outside of the working tree
	todo               // what is still to be done
	start              // an argument of "git checkout"
	branches           // which of them become which commits at the end
	terms              // words of a bisection, arguments too
)

// A stateFile is one that is obeyed.
type stateFile struct {
	rule stateRule
	// same says that it is not another one than was there when the command began: what it brings
	// into the working tree, nobody sees.
	same bool
	// part says that it may be a part of the patch that "git am" is at, too: git takes it out of
	// that.
	part bool
}

var stateFiles = map[string]stateFile{
	"rebase-merge/git-rebase-todo": {rule: todo}, "rebase-merge/msgnum": {rule: aNumber}, "rebase-merge/end": {rule: aNumber},
	"rebase-merge/head-name": {rule: aRef}, "rebase-merge/onto": {rule: anID}, "rebase-merge/orig-head": {rule: anID, same: true},
	"rebase-merge/author-script": {rule: authors}, "rebase-merge/strategy": {rule: strategy, same: true}, "rebase-merge/gpg_sign_opt": {rule: anyText, same: true},
	"rebase-merge/autostash": {rule: anID, same: true}, "rebase-merge/update-refs": {rule: branches},
	"rebase-apply/next": {rule: aNumber}, "rebase-apply/last": {rule: aNumber, same: true}, "rebase-apply/head-name": {rule: aRef},
	"rebase-apply/onto": {rule: anID}, "rebase-apply/orig-head": {rule: anID, same: true}, "rebase-apply/author-script": {rule: authors},
	"rebase-apply/apply-opt": {rule: applying, same: true}, "rebase-apply/patch": {rule: anyText, same: true, part: true}, "rebase-apply/autostash": {rule: anID, same: true}, "rebase-apply/gpg_sign_opt": {rule: anyText, same: true},
	"sequencer/todo": {rule: todo}, "sequencer/opts": {rule: options, same: true}, "sequencer/head": {rule: anID, same: true},
	"bisect_start": {rule: start}, "bisect_terms": {rule: terms},
}

// stateOf finds the rule for a file by its path, in a git directory. Letter case does not matter,
// as some file systems do not mind it.
func stateOf(path string) (stateFile, bool) {
	name, dir := fold(base(path)), fold(base(parent(path)))
	if !slices.Contains(stateDirectories, dir) {
		f, is := stateFiles[name]
		return f, is
	}
	if dir == "rebase-apply" && len(name) >= 4 && strings.Trim(name, "0123456789") == "" { // a patch
		return stateFile{rule: anyText, same: true}, true
	}
	f, is := stateFiles[dir+"/"+name]
	return f, is
}

// IsState reports whether a file in a git directory says how git goes on with what has stopped.
func IsState(path string) bool {
	_, is := stateOf(path)
	return is
}

// isBelieved reports whether git reads a file of its own as it is, so that a command must not
// choose what it says: an index, a part of one, or the state of what has stopped.
func isBelieved(dir, name string) bool { return isIndex(name) || IsState(join(dir, name)) }

const (
	// MaxState is how much of such a file is read, to see whether it is what it was; of a longer
	// one, nothing is believed.
	MaxState = 64 << 20
	// maxStateText is how long one may be that is another one than before.
	maxStateText = 256 << 10
)

// believes is isBelieved without what may have any text.
func (w *Watch) believes(n *node, name string) bool {
	if isIndex(name) {
		return true
	}
	path := join(n.path(), name)
	f, is := stateOf(path)
	return is && (f.rule != anyText || KeptState(w.strays, path) != "")
}

// KeepState remembers such a file as it is when the command begins, and that its directory was
// there.
func KeepState(strays map[string]string, path, text string) {
	strays[path] = stateBefore(path, text)
	if dir := parent(path); slices.Contains(stateDirectories, fold(base(dir))) {
		strays[dir] = stateNone
	}
}

// KeptState is what KeepState remembered: of a file that was not there, that its directory was.
func KeptState(strays map[string]string, path string) string {
	if before := strays[path]; before != "" {
		return before
	}
	return strays[parent(path)]
}

// startsState reports whether a file says what was being done: a branch, and the commit that it
// was.
func startsState(name string) bool { return slices.Contains(stateStarts, fold(name)) }

var stateStarts = []string{"head-name", "orig-head", "head"}

// isAgain reports whether a directory of state is another one than when the command began, and of
// something else: one that begins where that did is what the person will go on with. A file of it
// was written. git begins with what says where it began, but for what it puts away before that;
// "git am" has no such file, and a rebase by patches has one when it has stopped. So those may be
// another one as long as the command runs.
func (w *Watch) isAgain(n *node, fd int, name string) bool {
	if n.stopped {
		return false
	}
	same, known := true, false
	for _, start := range stateStarts {
		path := join(n.path(), start)
		before, was := w.strays[path]
		if !was {
			continue
		}
		text, err := stateIn(fd, start, maxStateText)
		if err != nil {
			same, known = true, false
			break
		}
		known, same = true, same && stateBefore(path, text) == before
	}
	if !known {
		return !w.closing && (isNamed(n.name, "rebase-apply") || isNamed(name, "autostash"))
	}
	return !same
}

// stateBegun are files of which each directory of state has one, as git makes it.
var stateBegun = append([]string{"todo", "git-rebase-todo", "next"}, stateStarts...)

// tellState tells of what a command began, and left to whoever goes on.
func (w *Watch) tellState(n *node) {
	if n.stopped || n.part == notGit || !slices.Contains(stateDirectories, fold(n.name)) || len(w.unmoved) >= maxTold {
		return
	}
	fd, err := w.descriptor(n)
	if err != nil || !slices.ContainsFunc(stateBegun, func(name string) bool { return has(fd, name) }) {
		return
	}
	w.unmoved = append(w.unmoved, Told{Path: n.path(), Text: "a command began it, and has not ended it: what \"git … --continue\" brings into the working tree, the command chose; git status says what it is, and git … --abort ends it"})
}

func stateBefore(path, text string) string {
	if f, _ := stateOf(path); f.rule == todo && len(text) <= maxStateText {
		return stateText + text
	}
	digest := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%s%x %d", stateDigest, digest, len(text))
}

// lengthBefore is how long a file was of which the digest was kept.
func lengthBefore(before string) int64 {
	length, _ := strconv.ParseInt(before[strings.LastIndexByte(before, ' ')+1:], 10, 64)
	if !strings.HasPrefix(before, stateDigest) || length > MaxState {
		return 0
	}
	return length
}

const (
	stateText   = "state: "
	stateDigest = "state, sha256: "
	stateNone   = "state"
)

// errPart is errState of what git may just have gone on from.
var errPart = fmt.Errorf("%w: %w", errState, unix.EBADMSG)

var errState = errors.New("git would execute it, or bring into the working tree what nobody chose")

// CheckState says what is wrong with the text of such a file. Before is what KeptState says of it.
// While a command runs, a rebase of its own may execute what it likes, inside.
func CheckState(path, text, before string, again, over bool) error {
	f, is := stateOf(path)
	switch {
	case !is, text == "":
		return nil
	case len(text) > MaxState:
		return errState
	case before == stateBefore(path, text):
		return nil
	case len(text) > maxStateText && f.rule != anyText, f.same && !again && strings.HasPrefix(before, stateNone):
		return errState
	case f.rule == todo:
		return checkTodo(text, before, again, over)
	case f.rule != anyText && !statePattern()[f.rule].MatchString(strings.TrimSuffix(text, "\n")):
		return errState
	}
	return nil
}

var statePattern = sync.OnceValue(func() map[stateRule]*regexp.Regexp {
	const known = `(ours|theirs|recursive|recursive-ours|recursive-theirs|ort|resolve|octopus|subtree)`
	const ref = `refs/[^\x00-\x20\x7f~^:?*\[\\$` + "`]+"
	patterns := map[stateRule]string{
		aNumber:  `[0-9]{1,9}`,
		anID:     `[0-9a-f]{4,64}`,
		aRef:     `detached HEAD|` + ref,
		branches: `((refs/heads/[^\x00-\x20\x7f]+|[0-9a-f]{4,64})\n?)*`,
		authors:  `(GIT_AUTHOR_(NAME|EMAIL|DATE)='([^'\n]|'\\['!]')*'\n?)*`,
		strategy: known,
		options:  `\[options\](\n\tstrategy = ` + known + `|\n\t(no-commit|edit|allow-[a-z-]+|drop-[a-z-]+|keep-[a-z-]+|signoff|record-origin|mainline|gpg-sign|strategy-option|default-msg-cleanup) = [^\\\x00-\x1f]*)*`,
		applying: `( ?'(-C[0-9]+|-p[0-9]+|--whitespace=[a-z-]+|--(in|ex)clude=[^'\n]*|--directory=[^'\n]*|--reject|--ignore-(space-change|whitespace))')*`,
		start:    `[0-9A-Za-z_/][0-9A-Za-z_./+@#%=,-]*`,
		terms:    `[0-9A-Za-z][0-9A-Za-z_-]*\n[0-9A-Za-z][0-9A-Za-z_-]*`,
	}
	compiled := make(map[stateRule]*regexp.Regexp, len(patterns))
	for rule, pattern := range patterns {
		compiled[rule] = regexp.MustCompile(`\A(` + pattern + `)\z`)
	}
	return compiled
})

// plainTodo name no commit, and execute nothing.
var plainTodo = []string{"noop", "break", "b", "label", "l"}

// checkTodo takes a list of what is still to be done that executes nothing which was not in it
// before; and where there was one before, that has nothing which that had not, but for shorter
// names of the same commits: git writes those for an editor.
func checkTodo(text, before string, again, over bool) error {
	known := before != ""
	var lines [][]string
	for line := range strings.Lines(strings.TrimPrefix(before, stateText)) {
		lines = append(lines, strings.Fields(line))
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		was := func(have []string) bool {
			return slices.EqualFunc(words, have, isShort) || len(words) > 1 && len(have) > 1 && isPick(words[0]) && isPick(have[0]) && isID(words[1]) && isShort(words[1], have[1])
		}
		switch {
		case len(words) == 0, strings.HasPrefix(words[0], "#"):
		case words[0] == "exec", words[0] == "x":
			if (known || over) && !slices.ContainsFunc(lines, func(have []string) bool { return slices.Equal(words, have) }) {
				return errState
			}
		case known && !again && !slices.Contains(plainTodo, words[0]) && !slices.ContainsFunc(lines, was):
			return errState
		}
	}
	return nil
}

// isShort reports whether a word is another one, or the beginning of an object's name that the
// other one is.
func isShort(word, of string) bool {
	return word == of || isID(word) && isID(of) && strings.HasPrefix(of, word)
}

func isPick(word string) bool {
	return slices.Contains([]string{"pick", "p", "reword", "r", "edit", "e", "squash", "s", "fixup", "f", "drop", "d", "revert"}, word)
}

func isID(word string) bool { return len(word) >= 4 && strings.Trim(word, "0123456789abcdef") == "" }

// stateNames are those that may be in a directory.
func stateNames(dir string) (list []string) {
	of := fold(base(dir))
	for name := range stateFiles {
		if above, below, is := strings.Cut(name, "/"); is && above == of {
			list = append(list, below)
		}
	}
	return list
}

// stateIn reads such a file in an open directory, and of a longer one a byte more than so many.
func stateIn(dir int, name string, limit int64) (string, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || kindOf(stat.Mode) != File {
		return "", errors.Join(err, errState)
	}
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	return string(text), err
}

// checkStateIn is CheckState of a file in an open directory.
func checkStateIn(dir int, path, before string, again, over bool) error {
	text, err := stateIn(dir, base(path), max(maxStateText, lengthBefore(before)))
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	}
	err = CheckState(path, text, before, again, over)
	if f, _ := stateOf(path); err == nil || !f.part {
		return err
	}
	if isOfNext(dir, text) {
		return nil
	}
	return errPart
}

// isOfNext reports whether a text is whole lines of the patch that "git am" is at: git takes it out
// of that, and then says that it is at the next one.
func isOfNext(dir int, text string) bool {
	at, err := stateIn(dir, "next", maxStateText)
	if err != nil {
		return false
	}
	next, err := strconv.Atoi(strings.TrimSpace(at))
	if err != nil {
		return false
	}
	for _, n := range []int{next, next - 1} {
		patch, err := stateIn(dir, fmt.Sprintf("%04d", n), MaxState)
		if err == nil && strings.Contains("\n"+patch, "\n"+text) {
			return true
		}
	}
	return false
}
