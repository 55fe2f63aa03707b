package protect

import (
	"strings"
	"testing"
)

func TestTheStateOfWhatStoppedReadsAsGitWritesIt(t *testing.T) {
	const id, other = "d95f3ad14dee633a758d2e331151e950dd13e4ed", "e95f3ad14dee633a758d2e331151e950dd13e4ed"
	merge, apply, sequencer := "/w/.git/rebase-merge/", "/w/.git/rebase-apply/", "/w/.git/sequencer/"
	for _, c := range []struct {
		path, text, before string
		over, right        bool
		again              bool
	}{
		{merge + "git-rebase-todo", "pick " + id + " a\nexec make test\n# exec\n\n", "", false, true, false}, // its own, inside
		{merge + "git-rebase-todo", "pick " + id + " a\nexec make test\n", "", true, false, false},
		{merge + "git-rebase-todo", "\t x\trm\n", "", true, false, false},
		{merge + "git-rebase-todo", "pick " + id + " a\nlabel x\nupdate-ref refs/heads/x\n", "", true, true, false},
		{merge + "git-rebase-todo", "exec make\n", "pick " + id + " a\nexec   make\n", true, true, false},
		{merge + "git-rebase-todo", "exec make; evil\n", "pick " + id + " a\nexec make\n", false, false, false},
		{merge + "git-rebase-todo", "pick " + id[:9] + " b\nbreak\ndrop " + id + "\nfixup " + id + "\n", "pick " + id + " a\n", true, true, false},
		{merge + "git-rebase-todo", "pick " + other + " a\n", "pick " + id + " a\n", false, false, false},
		{merge + "git-rebase-todo", "pick " + id + "00\n", "pick " + id + " a\n", false, false, false},
		{merge + "git-rebase-todo", "pick main\n", "pick " + id + " a\n", false, false, false},
		{merge + "git-rebase-todo", "reset evil\n", "pick " + id + " a\n", false, false, false},
		{merge + "git-rebase-todo", "update-ref refs/heads/main\n", "pick " + id + " a\n", false, false, false},
		{merge + "git-rebase-todo", "pick " + id + "\n", " ", false, false, false}, // nothing was left
		{merge + "git-rebase-todo", strings.Repeat("pick "+id+"\n", 6000), "", false, false, false},
		{"/w/.GIT/Rebase-Merge/GIT-rebase-todo", "exec evil\n", "", true, false, false},
		{"/w/.git/worktrees/x/rebase-merge/git-rebase-todo", "exec evil\n", "", true, false, false},
		{merge + "msgnum", "12\n", "1\n", true, true, false},
		{merge + "end", "$(evil)\n", "", false, false, false},
		{merge + "end", "1\n2\n", "", false, false, false},
		{merge + "head-name", "refs/heads/a/b-c\n", "", true, true, false},
		{merge + "head-name", "detached HEAD\n", "", true, true, false},
		{merge + "head-name", "refs/heads/$(evil)\n", "", false, false, false},
		{merge + "head-name", "refs/heads/`evil`\n", "", false, false, false},
		{merge + "onto", id + "\n", "", true, true, false},
		{merge + "onto", "--evil\n", "", true, false, false},
		{merge + "author-script", "GIT_AUTHOR_NAME='O'\\''Hara, Ann'\nGIT_AUTHOR_EMAIL='a@b.example'\nGIT_AUTHOR_DATE='@1 +0000'\n", "", true, true, false},
		{merge + "author-script", "GIT_AUTHOR_NAME='a'; evil\n", "", true, false, false},
		{merge + "author-script", "GIT_AUTHOR_NAME='a'\nPATH='.'\n", "", true, false, false},
		{merge + "strategy", "ort\n", "", true, true, false},
		{merge + "strategy", "/../evil\n", "", false, false, false},
		{merge + "strategy", "ours\n", "ort\n", false, false, false},
		{merge + "autostash", id + "\n", "", true, true, false},
		{merge + "autostash", other + "\n", id + "\n", false, false, false},
		{merge + "autostash", id + "\n", "no such file", false, false, false},
		{merge + "git-rebase-todo", "pick " + id + "\n", "no such file", false, false, false},
		{merge + "git-rebase-todo", "# a\n", "no such file", false, true, false},
		{apply + "0003", "From a", "no such file", false, false, false},
		{merge + "git-rebase-todo", "merge -C d95f3ad1 x # m\nlabel onto\nreset onto\n", "merge -C " + id + " x # m\nreset onto\n", false, true, false},
		{merge + "git-rebase-todo", "merge -C d95f3ad1 y\n", "merge -C " + id + " x\n", false, false, false},
		{merge + "git-rebase-todo", "pick " + other + "\n", "pick " + id + " a\n", true, true, true},
		{merge + "git-rebase-todo", "exec evil\n", "pick " + id + " a\n", false, false, true},
		{merge + "autostash", other + "\n", id + "\n", true, true, true},
		{merge + "strategy", "/../evil\n", "ort\n", true, false, true},
		{merge + "head-name", "refs/heads/größe(1)\n", "", true, true, false},
		{merge + "update-refs", "refs/heads/a b\n", "", true, false, false},
		{merge + "update-refs", "refs/heads/a\n" + id + "\n" + other + "\n", "refs/heads/a\n", true, true, false},
		{merge + "update-refs", "refs/replace/" + id + "\n" + id + "\n" + other + "\n", "", true, false, false},
		{sequencer + "opts", "[options]\n\tstrategy = ours\tedit = x/../evil\n", "", false, false, false},
		{sequencer + "opts", "[options]\n\tedit = x\tstrategy = x\n", "", false, false, false},
		{merge + "message", "$(anything)\n", "", true, true, false},
		{apply + "next", "`evil`", "", false, false, false},
		{apply + "last", "3\n", "2\n", false, false, false},
		{apply + "0002", "From a", "", true, true, false},
		{apply + "0002", "From a", "From b", false, false, false},
		{apply + "0002", "From b", "From b", true, true, false},
		{apply + "patch", "diff a", "no such file", false, false, false},
		{apply + "patch", "diff a", "", true, true, false},
		{apply + "0002", strings.Repeat("x", 300<<10), strings.Repeat("x", 300<<10), true, true, false},
		{apply + "0002", strings.Repeat("x", 300<<10) + "y", strings.Repeat("x", 300<<10) + "z", true, false, false},
		{apply + "0002", strings.Repeat("x", 300<<10), "", true, true, false},
		{merge + "git-rebase-todo", strings.Repeat("pick "+id+"\n", 6000), strings.Repeat("pick "+id+"\n", 6000), true, true, false},
		{merge + "git-rebase-todo", strings.Repeat("pick "+id+"\n", 5999), strings.Repeat("pick "+id+"\n", 6000), true, false, false},
		{apply + "apply-opt", " '-p1' '--whitespace=fix' '--directory=a b'\n", "", true, true, false},
		{apply + "apply-opt", " '--unsafe-paths'\n", "", false, false, false},
		{sequencer + "todo", "pick " + other + " a\n", "pick " + id + " a\n", false, false, false},
		{sequencer + "opts", "[options]\n\tstrategy = ort\n\tmainline = 1\n\tno-commit = true\n", "", true, true, false},
		{sequencer + "opts", "[options]\n\tstrategy = /../evil\n", "", false, false, false},
		{sequencer + "opts", "[options]\n\tSTRATEGY = x\n", "", false, false, false},
		{sequencer + "opts", "[options] strategy = x\n", "", false, false, false},
		{sequencer + "opts", "[options]\n\tedit = \\\n strategy = x\n", "", false, false, false},
		{"/w/.git/BISECT_START", "main\n", "", true, true, false},
		{"/w/.git/BISECT_START", "-f\n", "", false, false, false},
		{"/w/.git/BISECT_TERMS", "bad\ngood\n", "", true, true, false},
		{"/w/.git/BISECT_TERMS", "--exec\ngood\n", "", false, false, false},
	} {
		strays := map[string]string{}
		switch c.before {
		case "":
		case "no such file":
			KeepState(strays, parent(c.path)+"/message", "a")
		default:
			KeepState(strays, c.path, c.before)
		}
		before := KeptState(strays, c.path)
		if err := CheckState(c.path, c.text, before, c.again, c.over); (err == nil) != c.right {
			t.Errorf("%s %.60q, before %.60q, over %v: %v", c.path, c.text, c.before, c.over, err)
		}
		if !IsState(c.path) && c.text != "$(anything)\n" {
			t.Errorf("%s is none", c.path)
		}
	}
}
