package repository

import (
	"slices"
	"strings"
	"testing"
)

func TestWhatDoesNoHarmIsCarriedOver(t *testing.T) {
	for _, s := range []string{
		"user.name=Ann Example", "user.name=Änne Übung", "user.email=a@b.c", "branch.main.remote=origin", "branch.main.merge=refs/heads/main",
		"branch.feature/x.y.rebase=true", "branch.main.pushremote=.", "branch.a.description=what it is for",
		"remote.origin.url=https://example.com/a/b.git", "remote.origin.url=http://user:pass%20word@example.com:8080/a",
		"remote.origin.url=git@github.com:a/b.git", "remote.origin.url=ssh://git@host.example:22/a/b", "remote.origin.url=git://host/a",
		"remote.origin.url=/srv/git/a.git", "remote.origin.url=file:///srv/git/a.git", "remote.origin.url=host:path", "remote.x.url=ssh://[::1]:22/a",
		"remote.origin.fetch=+refs/heads/*:refs/remotes/origin/*", "remote.origin.fetch=+refs/pull/*/head:refs/remotes/origin/pr/*",
		"remote.origin.tagopt=--no-tags", "remote.origin.prune=yes", "push.default=current", "pull.rebase=merges", "pull.ff=only",
		"init.defaultbranch=main", "core.autocrlf=input", "core.abbrev=12", "core.bare=false", "submodule.a/b.url=https://example.com/x",
		"submodule.a.update=merge", "submodule.a.active=true", "advice.detachedhead=false", "color.ui=auto", "color.diff=never",
		"gc.auto=0", "rebase.autosquash=true", "tag.sort=-version:refname", "merge.conflictstyle=zdiff3", "diff.algorithm=histogram",
	} {
		key, value, _ := strings.Cut(s, "=")
		if v := Judge(key, value); v != Harmless {
			t.Errorf("%s: %v", s, v)
		}
	}
}

// hostile are settings that must not reach a person's file, and why.
var hostile = map[string]Verdict{
	"core.fsmonitor=touch /x": Executes, "core.sshcommand=x": Executes, "core.pager=x": Executes, "core.editor=x": Executes, "core.askpass=x": Executes,
	"core.gitproxy=x": Executes, "core.alternaterefscommand=x": Executes, "alias.st=!x": Executes, "filter.x.clean=x": Executes,
	"filter.x.process=x": Executes, "diff.x.textconv=x": Executes, "diff.external=x": Executes, "diff.x.command=x": Executes, "merge.x.driver=x": Executes,
	"mergetool.x.cmd=x": Executes, "merge.tool=x": Executes, "credential.helper=!x": Executes, "credential.https://a.b.helper=x": Executes,
	"gpg.program=x": Executes, "gpg.ssh.program=x": Executes, "pager.log=x": Executes, "sequence.editor=x": Executes,
	"remote.origin.uploadpack=x": Executes, "remote.origin.receivepack=x": Executes, "remote.origin.vcs=x": Executes, "uploadpack.packobjectshook=x": Executes,
	"interactive.difffilter=x": Executes, "gc.recentobjectshook=x": Executes, "commit.gpgsign=true": Executes, "tag.gpgsign=true": Executes,
	"log.showsignature=true": Executes, "hook.x.command=y": Executes, "trailer.a.command=x": Executes, "submodule.a.update=!x": Executes,
	"init.templatedir=x": Executes, "sendemail.smtpserver=/x": Executes, "difftool.x.cmd=y": Executes,
	"include.path=/x": Includes, "includeif.gitdir:/.path=/x": Includes, "includeif.hasconfig:remote.*.url:x.path=/x": Includes,
	"core.hookspath=x": Leads, "core.worktree=/": Leads, "core.attributesfile=x": Leads, "core.excludesfile=x": Leads, "url.x.insteadof=https://": Leads,
	"url.x.pushinsteadof=y": Leads, "http.proxy=x": Leads, "http.sslverify=false": Leads, "http.https://a.proxy=x": Leads, "remote.a.proxy=x": Leads,
	"protocol.ext.allow=always": Leads, "extensions.partialclone=x": Leads, "safe.directory=*": Leads, "remote.a.mirror=true": Leads,
	"remote.a.url=ext::sh -c x": Executes, "remote.a.url=fd::3": Executes, "submodule.a.url=helper::x": Executes, "remote.a.url=foo://x": BadValue,
	"remote.a.url=ssh://-oProxyCommand=x/y": BadValue, "remote.a.url=-oProxyCommand=x:y": BadValue, "remote.a.url=--upload-pack=x": BadValue,
	"remote.a.url=ssh://%2DoProxyCommand=x/y": BadValue, "remote.a.url=a@-oProxyCommand=x:y": BadValue, "remote.a.url=-a@host:y": BadValue,
	"remote.a.url=host:-x": BadValue, "remote.a.url=-host:x": BadValue, "remote.a.url=ssh://-host/x": BadValue, "remote.a.url=git://-host/x": BadValue,
	"remote.a.url=ssh://-user@host/x": BadValue, "remote.a.url=ssh://a@-host:22/x": BadValue, "remote.a.url=https://a/\nb": BadValue, "remote.a.url=../x": BadValue, "remote.a.url=": BadValue,
	"remote.a.url=HTTPS://a": BadValue, "remote.a.url=ssh://a b/c": BadValue, "remote.a.pushurl=ext::x": Executes,
	"branch.a.remote=ext::x": Executes, "branch.a.remote=../x": BadValue, "branch.a.remote=/x": BadValue, "branch.a.remote=-x": BadValue,
	"branch.a.merge=main": BadValue, "remote.a.fetch=+refs/heads/*:refs/heads/*": BadValue, "remote.a.fetch=+refs/heads/*:refs/replace/*": BadValue,
	"core.bare=true": BadValue, "user.name=a\x1b[31m": BadValue, "user.name=a\u202eb": BadValue, "branch.a\nb.remote=origin": BadValue,
	"push.default=x": BadValue, "remote.a.tagopt=--upload-pack=x": BadValue, "init.defaultbranch=-x": BadValue,
	"core.somethingnew=true": Unknown, "newsection.key=x": Unknown, "branch.a.newkey=x": Unknown, "user.a.name=b": Unknown, "": Unknown, ".": Unknown,
	"remote...url=https://a": Leads, "remote.origin/feature.url=https://a": Leads, "remote.https://a/b.url=https://c": Leads, "remote.git@a:b.url=https://c": Leads,
	"remote.origin.gh-resolved=a/b": Unknown, "branch.a.gh-merge-base=b": Unknown, "branch.a.github-pr-base-branch=a#b#c": Unknown, "branch.a.vscode-merge-base=b": Unknown,
	"color.diff.new=black black": Unknown, "color.ui=always": BadValue, "diff.relative=true": Unknown, "core.trustctime=false": Unknown, "core.quotepath=false": Unknown,
	"log.showroot=false": Unknown, "commit.status=false": Unknown, "gc.reflogexpire=now": Unknown, "push.followtags=true": Unknown, "push.recursesubmodules=only": BadValue,
	"diff.ignoresubmodules=untracked": BadValue, "fetch.prunetags=true": Unknown, "rerere.enabled=true": Unknown,
	"core.abbrev=99": BadValue, "core.abbrev=1": BadValue, "fetch.parallel=99999999999": BadValue, "gc.auto=2147483648": BadValue,
	"remote.url=https://a": Unknown, "branch.remote=x": Unknown,
}

func TestWhatExecutesOrLeadsElsewhereIsNotCarriedOver(t *testing.T) {
	for s, want := range hostile {
		key, value, _ := strings.Cut(s, "=")
		if v := Judge(key, value); v != want {
			t.Errorf("%q: %v, want %v", s, v, want)
		}
		if mayStay(key, value) == Harmless && !slices.Contains([]string{"core.bare=true", "extensions.partialclone=x", "remote.a.mirror=true",
			"remote.a.fetch=+refs/heads/*:refs/heads/*", "remote.a.fetch=+refs/heads/*:refs/replace/*"}, s) {
			t.Errorf("%q may stay in a repository that a command made", s)
		}
	}
}

func TestTheKeysOfTheListsAreSpelledAsTheyAreRead(t *testing.T) {
	for key := range harmless() {
		if got := shape(strings.ReplaceAll(key, "*", "a.b")); got != key || key != strings.ToLower(key) {
			t.Errorf("%s: %s", key, got)
		}
	}
	for key := range madeByGit() {
		if got := shape(strings.ReplaceAll(key, "*", "a.b")); got != key || key != strings.ToLower(key) {
			t.Errorf("%s: %s", key, got)
		}
	}
}
