package repository

import (
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// A Verdict says what becomes of a setting that a command made.
type Verdict uint8

const (
	Unknown  Verdict = iota // nobody has looked what it does
	Executes                // git runs a program for it
	Includes                // git reads another file as settings
	Leads                   // git looks, connects or writes elsewhere, or trusts somebody else
	BadValue                // the key is harmless, the value is not, or is not one that the key has
	Harmless                // it is carried over
)

// String says it so that it can stand behind "left out, because".
func (v Verdict) String() string {
	return [...]string{"it is not known to do no harm", "git executes a program for it", "git reads another file for it",
		"it leads git elsewhere", "its value is not one that is known to do no harm", "it does no harm"}[v]
}

const (
	// MaxFile is how long a file of settings may be.
	MaxFile = 1 << 20
	// maxValue is how long a value may be that is carried over, and a subsection's name.
	maxValue = 1024
)

// Judge says whether a setting may be carried over to a repository that a person uses. The key is
// as Parse returns it.
func Judge(key, value string) Verdict {
	test := testOf(key)
	switch {
	case test == nil:
		return harm(key)
	case strings.HasPrefix(shape(key), "remote.*.") && !isRemoteName(subsection(key)):
		return Leads // it could be a branch, or an address, that a person means
	case !isPlain(subsection(key)) || !isPlain(value) || !test(value):
		if strings.HasSuffix(key, ".update") && strings.HasPrefix(value, "!") || strings.Contains(value, "::") {
			return Executes
		}
		return BadValue
	}
	return Harmless
}

// isHarmlessKey reports whether some values of a key are carried over.
func isHarmlessKey(key string) bool { return testOf(key) != nil && isPlain(subsection(key)) }

// testOf is the test for a key's values, if it is one that does no harm.
func testOf(key string) test {
	if t := harmless()[shape(key)]; t != nil {
		return t
	}
	switch section, _, _ := strings.Cut(key, "."); section {
	case "advice":
		return isBool
	case "color": // where there are some, and not which: what has the background's is not to be seen
		if strings.Count(key, ".") == 1 {
			return word(nil, "auto", "never", "false", "true")
		}
	case "column":
		return isWords
	}
	return nil
}

// shape is a key with "*" for the subsection, which is any text.
func shape(key string) string {
	first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	if first == last {
		return key
	}
	return key[:first] + ".*" + key[last:]
}

func subsection(key string) string {
	first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	if first == last {
		return ""
	}
	return key[first+1 : last]
}

// sectionOf is what stands before the last dot of a key.
func sectionOf(key string) string { return key[:max(0, strings.LastIndexByte(key, '.'))] }

func nameOf(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// isPlain reports whether text is one line of a bounded length that a terminal can show.
func isPlain(text string) bool {
	return len(text) <= maxValue && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool {
			return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
		})
}

// A test tells which values of a key do no harm.
type test func(value string) bool

func anyText(string) bool { return true }

func isBool(value string) bool {
	switch strings.ToLower(value) {
	case "true", "false", "yes", "no", "on", "off", "1", "0", "":
		return true
	}
	return false
}

// isNumber reports whether text is a number that git's int holds: git stops at any other, whatever
// it was asked for.
func isNumber(value string) bool {
	return value != "" && len(value) <= 9 && strings.Trim(value, "0123456789") == ""
}

// isAbbreviation reports whether text is a length that git takes for names of objects.
func isAbbreviation(value string) bool {
	n, err := strconv.Atoi(value)
	return err == nil && isNumber(value) && n >= 4 && n <= 40
}

// word tests for one of some words, besides what other allows.
func word(other test, words ...string) test {
	return func(value string) bool {
		for _, w := range words {
			if strings.EqualFold(value, w) {
				return true
			}
		}
		return other != nil && other(value)
	}
}

// isWords is for lists of colours, dates and formats: nothing that a shell or git would take for
// more.
func isWords(value string) bool {
	return value == "" || value[0] != '-' && consistsOf(value, " #,._:=+/-")
}

func isSort(value string) bool { return isWords(strings.TrimPrefix(value, "-")) }

// isRef reports whether text is the full name of a branch, a tag or the like
// (git-check-ref-format(1)).
func isRef(value string) bool {
	return strings.HasPrefix(value, "refs/") && !strings.ContainsAny(value, " ~^:?*[\\") && !strings.Contains(value, "..") &&
		!strings.Contains(value, "@{") && !strings.HasSuffix(value, "/") && !strings.HasSuffix(value, ".lock")
}

func isBranch(value string) bool {
	return value != "" && value[0] != '-' && isRef("refs/heads/"+value)
}

// isRemote reports whether text is the name of a remote repository. git takes what is no name for
// an address.
func isRemote(value string) bool {
	return value == "." || value != "" && value[0] != '-' && value[0] != '.' && value[0] != '/' && consistsOf(value, "._-+/@") && !strings.Contains(value, "..")
}

// isRemoteName reports whether text is a name that a new remote repository may have: not that of a
// directory, and nothing that has a slash or a colon, as addresses and branches of another one do.
func isRemoteName(name string) bool {
	return isRemote(name) && name[0] != '.' && !strings.ContainsAny(name, "/@")
}

// isFetched reports whether a refspec brings remote branches and tags to the places for those.
func isFetched(value string) bool {
	from, to, has := strings.Cut(strings.TrimPrefix(value, "+"), ":")
	isPattern := func(ref string) bool { return isRef(strings.Replace(ref, "*", "x", 1)) }
	return (isPattern(from) || from == "HEAD") && (!has || isPattern(to) && (strings.HasPrefix(to, "refs/remotes/") || strings.HasPrefix(to, "refs/tags/")))
}

// isPushed reports whether a refspec names what is pushed, and to where.
func isPushed(value string) bool {
	value = strings.TrimPrefix(value, "+")
	if value == "HEAD" || value == ":" {
		return true
	}
	from, to, has := strings.Cut(value, ":")
	isPattern := func(ref string) bool { return isRef(strings.Replace(ref, "*", "x", 1)) }
	return (isPattern(from) || from == "HEAD") && (!has || isPattern(to))
}

// harmless are the keys that are carried over: those that neither lead git elsewhere, nor have it
// show less of what is there, take back less of what was, or push more than was asked for. They are
// here with "*" for any subsection, and which of their values. It is made when it is first needed:
// most starts read no settings.
var harmless = sync.OnceValue(func() map[string]test {
	return map[string]test{
		"branch.*.description":   anyText,
		"branch.*.merge":         isRef,
		"branch.*.pushremote":    isRemote,
		"branch.*.rebase":        word(isBool, "merges", "interactive"),
		"branch.*.remote":        isRemote,
		"branch.autosetupmerge":  word(isBool, "always", "inherit", "simple"),
		"branch.autosetuprebase": word(nil, "never", "local", "remote", "always"),
		"branch.sort":            isSort,

		"remote.*.fetch":             isFetched,
		"remote.*.prune":             isBool,
		"remote.*.push":              isPushed,
		"remote.*.pushurl":           executesNothing,
		"remote.*.skipdefaultupdate": isBool,
		"remote.*.skipfetchall":      isBool,
		"remote.*.tagopt":            word(nil, "--tags", "--no-tags"),
		"remote.*.url":               executesNothing,
		"remote.pushdefault":         isRemote,

		"extensions.worktreeconfig": word(nil, "true"), // what may stand in such a file: see mayStayInWorktree

		"submodule.*.active":                 isBool,
		"submodule.*.branch":                 word(isBranch, "."),
		"submodule.*.fetchrecursesubmodules": word(isBool, "on-demand"),
		"submodule.*.ignore":                 word(nil, "none"),
		"submodule.*.shallow":                isBool,
		"submodule.*.update":                 word(nil, "none", "checkout", "rebase", "merge"),
		"submodule.*.url":                    executesNothing,
		"submodule.active":                   isWords,
		"submodule.fetchjobs":                isNumber,
		"submodule.recurse":                  isBool,

		"user.email":         anyText,
		"user.name":          anyText,
		"user.useconfigonly": isBool,

		"checkout.defaultremote":      isRemote,
		"checkout.guess":              isBool,
		"commit.cleanup":              word(nil, "strip", "whitespace", "verbatim", "scissors", "default"),
		"commit.verbose":              word(isNumber, "true", "false", "yes", "no", "on", "off"),
		"fetch.all":                   isBool,
		"fetch.output":                word(nil, "full", "compact"),
		"fetch.parallel":              isNumber,
		"fetch.prune":                 isBool,
		"fetch.recursesubmodules":     word(isBool, "on-demand"),
		"fetch.showforcedupdates":     isBool,
		"fetch.writecommitgraph":      isBool,
		"init.defaultbranch":          isBranch,
		"merge.conflictstyle":         word(nil, "merge", "diff3", "zdiff3"),
		"merge.directoryrenames":      word(isBool, "conflict"),
		"merge.ff":                    word(isBool, "only"),
		"merge.log":                   word(isNumber, "true", "false", "yes", "no", "on", "off"),
		"merge.renamelimit":           isNumber,
		"merge.renames":               isBool,
		"merge.renormalize":           isBool,
		"merge.stat":                  word(isBool, "compact"),
		"merge.verbosity":             isNumber,
		"merge.autostash":             isBool,
		"pull.ff":                     word(isBool, "only"),
		"pull.rebase":                 word(isBool, "merges", "interactive"),
		"push.autosetupremote":        isBool,
		"push.default":                word(nil, "nothing", "current", "upstream", "tracking", "simple", "matching"),
		"push.recursesubmodules":      word(nil, "check", "no"),
		"push.useforceifincludes":     isBool,
		"rebase.abbreviatecommands":   isBool,
		"rebase.autosquash":           isBool,
		"rebase.autostash":            isBool,
		"rebase.backend":              word(nil, "apply", "merge"),
		"rebase.forkpoint":            isBool,
		"rebase.missingcommitscheck":  word(nil, "ignore", "warn", "error"),
		"rebase.rebasemerges":         word(isBool, "rebase-cousins", "no-rebase-cousins"),
		"rebase.reschedulefailedexec": isBool,
		"rebase.stat":                 isBool,
		"rebase.updaterefs":           isBool,
		"stash.showincludeuntracked":  isBool,
		"stash.showpatch":             isBool,
		"stash.showstat":              isBool,
		"worktree.guessremote":        isBool,
		"worktree.userelativepaths":   isBool,
		"gc.aggressivewindow":         isNumber,
		"gc.auto":                     isNumber,
		"gc.autodetach":               isBool,
		"gc.autopacklimit":            isNumber,
		"gc.packrefs":                 word(isBool, "notbare"),
		"gc.writecommitgraph":         isBool,
		"maintenance.auto":            isBool,

		"core.abbrev":             word(isAbbreviation, "auto", "no"),
		"core.autocrlf":           word(isBool, "input"),
		"core.bare":               word(nil, "false"),
		"core.eol":                word(nil, "lf", "crlf", "native"),
		"core.logallrefupdates":   word(isBool, "always"),
		"core.precomposeunicode":  isBool,
		"core.safecrlf":           word(isBool, "warn"),
		"core.sparsecheckout":     isBool,
		"core.sparsecheckoutcone": isBool,
		"core.untrackedcache":     word(isBool, "keep"),
		"core.whitespace":         isWords,

		"diff.algorithm":              word(nil, "default", "myers", "minimal", "timeout", "histogram"),
		"diff.colormoved":             isWords,
		"diff.colormovedws":           isWords,
		"diff.context":                isNumber,
		"diff.dirstat":                isWords,
		"diff.ignoresubmodules":       word(nil, "none"),
		"diff.indentheuristic":        isBool,
		"diff.interhunkcontext":       isNumber,
		"diff.mnemonicprefix":         isBool,
		"diff.noprefix":               isBool,
		"diff.renamelimit":            isNumber,
		"diff.renames":                word(isBool, "copy", "copies"),
		"diff.submodule":              word(nil, "log", "short", "diff"),
		"diff.suppressblankempty":     isBool,
		"diff.wserrorhighlight":       isWords,
		"log.abbrevcommit":            isBool,
		"log.date":                    isWords,
		"log.decorate":                word(isBool, "short", "full", "auto"),
		"log.follow":                  isBool,
		"log.mailmap":                 isBool,
		"status.aheadbehind":          isBool,
		"status.branch":               isBool,
		"status.displaycommentprefix": isBool,
		"status.renamelimit":          isNumber,
		"status.renames":              word(isBool, "copy", "copies"),
		"status.short":                isBool,
		"status.showstash":            isBool,
		"status.showuntrackedfiles":   word(nil, "normal", "all"),
		"status.submodulesummary":     word(isBool, "unlimited"),
		"tag.sort":                    isSort,
		"versionsort.suffix":          isWords,
	}
})

// madeByGit are keys that git writes itself when it makes a repository. They are not carried over,
// but may stay in a repository that a command made.
var madeByGit = sync.OnceValue(func() map[string]test {
	return map[string]test{
		"core.bare":                        isBool,
		"core.filemode":                    isBool,
		"core.ignorecase":                  isBool,
		"core.symlinks":                    isBool,
		"core.repositoryformatversion":     word(nil, "0", "1"),
		"extensions.compatobjectformat":    word(nil, "sha1", "sha256"),
		"extensions.noop":                  anyText,
		"extensions.objectformat":          word(nil, "sha1", "sha256"),
		"extensions.partialclone":          isRemote,
		"extensions.preciousobjects":       isBool,
		"extensions.refstorage":            word(nil, "files", "reftable"),
		"extensions.relativeworktrees":     isBool,
		"extensions.worktreeconfig":        isBool,
		"remote.*.fetch":                   isPushed,
		"remote.*.mirror":                  isBool,
		"remote.*.partialclonefilter":      isWords,
		"remote.*.promisor":                isBool,
		"submodule.alternateerrorstrategy": word(nil, "die", "info", "ignore"),
		"submodule.alternatelocation":      word(nil, "superproject", "no"),
		"maintenance.strategy":             word(nil, "incremental", "none"),
		"fetch.fsckobjects":                isBool,
		"transfer.fsckobjects":             isBool,
		"receive.fsckobjects":              isBool,
		"receive.denycurrentbranch":        word(isBool, "refuse", "warn", "ignore", "updateinstead"),
		"receive.denynonfastforwards":      isBool,
		"receive.denydeletes":              isBool,
		"commit.gpgsign":                   word(nil, "false"), // what tests of programs that use git switch off
		"tag.gpgsign":                      word(nil, "false"),
		"core.fsmonitor":                   word(nil, "false"),
		"core.hookspath":                   word(nil, "/dev/null"),
		"core.sharedrepository":            word(isBool, "group", "umask", "all", "world", "everybody"),
	}
})

// mayStay says whether a setting may stay in a repository that a command made.
func mayStay(key, value string) Verdict {
	v := Judge(key, value)
	if test := madeByGit()[shape(key)]; v != Harmless && test != nil && isPlain(subsection(key)) && isPlain(value) && test(value) {
		return Harmless
	}
	return v
}

// mayStayInWorktree says whether a setting may stay in a file of a worktree's own that a command
// made: what "git sparse-checkout" writes, and nothing that leads elsewhere there.
func mayStayInWorktree(key, value string) Verdict {
	switch key {
	case "core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse":
		if isBool(value) {
			return Harmless
		}
	case "user.name", "user.email":
		return Judge(key, value)
	}
	if v := Judge(key, value); v != Harmless {
		return v
	}
	return Unknown
}

// harm says what a key that is not harmless does. It is for people: what is not named here is not
// carried over either.
func harm(key string) Verdict {
	section, _, _ := strings.Cut(key, ".")
	name := nameOf(key)
	switch section {
	case "include", "includeif":
		return Includes
	case "alias", "filter", "credential", "gpg", "pager", "sequence", "uploadpack", "hook", "man", "browser", "web", "instaweb", "difftool",
		"mergetool", "interactive", "sendemail", "imap", "guitool", "trailer", "hooks":
		return Executes
	case "url", "http", "https", "protocol", "extensions", "safe", "remotes", "imap4", "bundle", "lfs":
		return Leads
	}
	switch name {
	case "fsmonitor", "sshcommand", "pager", "editor", "askpass", "gitproxy", "alternaterefscommand", "command", "textconv", "external", "driver",
		"cmd", "program", "uploadpack", "receivepack", "vcs", "tool", "guitool", "difffilter", "recentobjectshook", "gpgsign", "showsignature",
		"packobjectshook", "templatedir", "update":
		return Executes
	case "hookspath", "worktree", "attributesfile", "excludesfile", "proxy", "pushinsteadof", "insteadof", "sharedrepository", "mirror",
		"partialclonefilter", "promisor", "template", "signingkey", "orderfile", "bundleuri", "serveroption":
		return Leads
	}
	return Unknown
}
