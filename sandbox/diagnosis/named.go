package diagnosis

import (
	"path"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// named is what a command lacked of the paths in its own words. It is all there is to read where a
// command wrote to a terminal. A path that the host has and the sandbox does not show is one; of
// those that it shows for reading only, what a program that only writes was to write.
func (d *diagnosis) named() (list []Missing) {
	for _, part := range d.command.parts {
		for _, w := range namedIn(part) {
			if w.text = d.nameFor(w.text); w.text == "" {
				continue
			}
			said := noSuchFile
			if w.written {
				said = readOnlyFileSystem
			}
			line := ""
			if path.Base(part[0]) == "mkdir" {
				line = "mkdir "
			}
			if missing, ok := d.look(w.text, said, line); ok && len(list) < maxMissing {
				list = join(list, missing)
			}
		}
	}
	return list
}

// nameFor is a named path, or nothing where it is not known from where the command meant it.
func (d *diagnosis) nameFor(text string) string {
	switch {
	case text == gitsLock:
		return d.gitsLock()
	case !path.IsAbs(text) && text[0] != '~' && !d.command.names(text):
		return ""
	}
	return text
}

// namedForWriting is what a command could not write of the paths in its own words, or else where it
// is.
func (d *diagnosis) namedForWriting() (list []Missing) {
	for _, part := range d.command.parts {
		for _, w := range namedIn(part) {
			if w.text = d.nameFor(w.text); w.text == "" {
				continue
			}
			if missing, ok := d.look(w.text, readOnlyFileSystem, ""); ok && len(list) < maxMissing {
				list = join(list, missing)
			}
		}
	}
	if missing, ok := d.look(d.Directory, readOnlyFileSystem, ""); ok && list == nil && !d.command.moves {
		list = []Missing{missing}
	}
	return list
}

// A namedPath is a word of a command that is a path.
type namedPath struct {
	text    string
	written bool
}

var (
	writesAll  = []string{"touch", "mkdir", "rmdir", "rm", "tee", "truncate", "chmod", "chown", "chgrp", "mv"}
	writesLast = []string{"cp", "ln", "install", "rsync"}
	// Commands of git's that cannot do anything in a repository that they may not write.
	writesRepository = []string{"add", "am", "checkout", "cherry-pick", "commit", "fetch", "gc", "merge", "mv", "pull", "rebase", "reset", "restore", "revert", "rm", "stash", "switch"}
)

// gitsLock is the first file that git makes to change a repository.
const gitsLock = ".git/index.lock"

// gitsLock is that of the repository that the command began in.
func (d *diagnosis) gitsLock() string {
	for dir := d.Directory; ; dir = path.Dir(dir) {
		if _, err := d.Host.Lstat(path.Join(dir, ".git")); err == nil {
			return path.Join(dir, gitsLock)
		}
		if dir == "/" {
			return ""
		}
	}
}

// namedIn finds them in the words of one command.
func namedIn(words []string) (list []namedPath) {
	if len(words) == 0 {
		return nil
	}
	program, arguments := path.Base(words[0]), words[1:]
	if program == "git" {
		for len(arguments) > 1 && (arguments[0] == "-C" || arguments[0] == "-c") {
			arguments = arguments[2:]
		}
		if len(arguments) > 0 && slices.Contains(writesRepository, arguments[0]) {
			list = append(list, namedPath{gitsLock, true})
		}
	}
	redirected := false
	for i, word := range arguments {
		text := strings.TrimLeft(word, "0123456789&<>|")
		if strings.Contains(word[:len(word)-len(text)], ">") {
			redirected = true
		}
		if text == "" {
			continue
		}
		if _, value, ok := strings.Cut(text, "="); ok && text[0] == '-' {
			text = value
		}
		if text != "" && strings.ContainsRune("/~.", rune(text[0])) && text != "." {
			last := i == len(arguments)-1
			list = append(list, namedPath{text, redirected || slices.Contains(writesAll, program) || last && slices.Contains(writesLast, program)})
		}
		redirected = false
	}
	return list
}

// repository is the root of the repository that a path of git's is in, where the command works
// below that root: what it lacks is the repository, and not its .git alone.
func (d *diagnosis) repository(target string) string {
	root, _, found := strings.Cut(target+"/", "/.git/")
	if !found || root == "" || !profile.Within(d.Directory, root) || d.Plan.Look(d.Host, root).Access == profile.ReadWrite {
		return ""
	}
	return root
}

// Grantable reports whether a grant of the path, as it is, would give what was lacking, and for
// good.
func (l Missing) Grantable() bool {
	return l.Kind == Path && (l.Why == NotGranted || l.Why == ReadOnly && l.about == aPath)
}

// isFileStore reports whether a credential store is a file, by the names that those have.
func isFileStore(store string) bool {
	base := path.Base(store)
	return strings.HasSuffix(base, "rc") || strings.Contains(base, "credentials") || strings.HasSuffix(base, "_history") || strings.Contains(base[1:], ".") ||
		slices.Contains([]string{".pgpass", ".boto", ".s3cfg", ".vault-token", ".lesshst", ".viminfo"}, base)
}

// Remedy is what is missing in one line for a person: what the sandbox did, and the command that
// changes it for the agent.
func (l Missing) Remedy(agent string) string {
	add := "clai-sandbox grants add "
	if agent != "" && agent != profile.DefaultAgent {
		add += "--agent " + sandbox.Quote(agent) + " "
	}
	name := sandbox.Quote(l.Path)
	switch {
	case l.Why == NotByProxy:
		who := "what it wanted"
		if l.Domain != "" {
			who = profile.Printable(l.Domain) + ", which is allowed"
		}
		return "the sandbox's network lets out only what asks its proxy (HTTPS_PROXY, ALL_PROXY), and this program called " + who + ", without it; to open the whole network: clai-sandbox run --network enabled …"
	case l.Why == NetworkDisabled && path.Base(l.closedBy) == profile.ProjectName:
		return "the sandbox has no network: " + profile.Printable(l.closedBy) + " says so; to leave that file out: clai-sandbox run --no-project-file …"
	case l.Why == NetworkDisabled && l.closedBy != "":
		return "the sandbox has no network: " + profile.Printable(l.closedBy) + " says so, and no option changes that; ask who administers this machine"
	case l.Kind == Domain && l.Why == NetworkDisabled:
		return "the sandbox has no network; to let it reach this one: clai-sandbox run --network filtered --allow-domain " + sandbox.Quote(l.Domain) + " …"
	case l.Kind == Domain:
		return "the sandbox's network refuses " + profile.Printable(l.Domain) + "; to allow it: clai-sandbox run --allow-domain " + sandbox.Quote(l.Domain) + " …"
	case l.Kind == Machine:
		return l.instead
	case l.about == hiddenForGood:
		return name + " is hidden for good, by the administrator's file or by .clai-sandbox.json of the project, and no grant shows it"
	case l.Why == Hidden && path.Base(l.Path) == "gh":
		return name + " is a place for credentials, which no sandbox shows; only if you trust the command with yours, for one run: GH_TOKEN=$(gh auth token) clai-sandbox run --env GH_TOKEN …"
	case l.Why == Hidden:
		run := "clai-sandbox run --grant " + name
		if l.Access == profile.ReadWrite { // it need not be there yet
			run = "mkdir -pm 700 " + name + " && " + run + ":rw"
			if isFileStore(l.Path) {
				run = "touch " + strings.TrimPrefix(run, "mkdir -pm 700 ")
			}
		}
		return name + " is a place for credentials, which no sandbox shows; only if you trust the command with them, for one run: " + run + " …"
	case l.Why == NotGranted:
		return name + " is not shown in the sandbox; to show it: " + add + name
	case l.about == aRepository:
		return "the repository " + name + " is read-only in the sandbox, whose workspace is a part of it; to work in all of it: clai-sandbox run --workspace " + name + " …"
	case l.about == aPlaceOfOurs && l.wanted != "":
		wanted := sandbox.Quote(l.wanted)
		return name + " is read-only in the sandbox, and nothing makes all of it writable; to let " + wanted + " be written: mkdir -p " + wanted + " && " + add + "--access rw " + wanted
	case l.about == aPlaceOfOurs:
		return name + " is read-only in the sandbox, and nothing makes all of it writable; to let a directory in it be written: " + add + "--access rw DIR"
	case l.Why == ReadOnly && l.about != aProtectedName:
		return name + " is read-only in the sandbox; to let it be written: " + add + "--access rw " + name
	}
	return l.Hint
}
