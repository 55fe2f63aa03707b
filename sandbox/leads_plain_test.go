package sandbox

import (
	"slices"
	"strings"
	"testing"
)

func TestPlainNamesOfACommandThatAreNoProgramsCount(t *testing.T) {
	for command, want := range map[string]string{
		"vim":                                  "",
		"less -FRX":                            "RX",
		"git-lfs clean -- %f":                  "",
		"git-lfs filter-process --skip":        "",
		"git lfs clean file":                   "clean file",
		"git -C merge lfs":                     "merge lfs",
		"git-nbmergedriver merge %O %A":        "",
		"other/clean clean":                    "clean",
		"kdiff3 --cs Show=true list":           "Show list",
		"!gh auth git-credential":              "git-credential",
		"python3 strip.py":                     "strip.py",
		"tool -crules --with=more a:b":         "rules more a b",
		"env LANG=C tool 'rules'":              "C rules",
		"a | b rules; c more && d":             "rules more",
		`tool "$(other rules)" more`:           "rules more",
		"tool `other rules` more":              "rules more",
		`sh -c 'other "rules" && cat < list'`:  "rules list",
		`tool "$x" ${y:-z} */x %A 'two words'`: "words",
		`x=rules; y $x`:                        "rules",
		`tool r\ules "r"more`:                  "rules rmore",
	} {
		if names := plainNames(command); !slices.Equal(names, strings.Fields(want)) {
			t.Errorf("%s: %q", command, names)
		}
	}
}

// With some commands, git executes what nobody named.
func TestGitThatGoesByTheWorkingTreeIsTold(t *testing.T) {
	h := newHost(t)
	work := h.profile.Workspace
	for value, told := range map[string]bool{
		`"/usr/bin/python3" -m nbstripout`:           true,
		"python3.11 -W ignore -m nbstripout":         true,
		"python3 -Im nbstripout":                     false,
		"python3 -P -m nbstripout":                   false,
		"python3 -c 'import json'":                   true,
		"python3 tools/strip.py":                     true,
		"python3 " + work + "/strip":                 true,
		"python3 -P strip.py":                        false,
		"python3 /usr/share/strip.py":                false,
		"sh -c 'cd x && python3 -m y'":               true,
		"env A=b make -s strip":                      true,
		"npx prettier --stdin-filepath %f":           true,
		"nbstripout":                                 false,
		"git-lfs clean -- %f":                        false,
		"code --wait make":                           false,
		"$(git rev-parse --show-toplevel)/go/filter": false,
	} {
		h.git(work, "init", "-q")
		h.git(work, "config", "filter.x.clean", value)
		plan := h.lookOut()
		is := slices.ContainsFunc(plan.Notices, func(n Notice) bool {
			return strings.Contains(n.Text, "git outside the sandbox executes what a command writes")
		})
		if is != told {
			t.Errorf("%s: %v", value, plan.Notices)
		}
	}
	h.git(work, "config", "filter.x.clean", "cat")
	h.git(work, "config", "alias.x", "!make test")
	if plan := h.lookOut(); len(plan.Notices) > 0 {
		t.Errorf("an alias: %v", plan.Notices)
	}
}

// Python looks for a module in the directory in which git starts it, the working tree's top: as
// deep as a project has one of that name, it is the project's.
func TestAModuleCountsInTheTopOfAWorkingTree(t *testing.T) {
	for _, strict := range []bool{false, true} {
		h := gitHost(t)
		work := h.profile.Workspace
		h.git(work, "config", "diff.json.textconv", "python3 -m json.tool")
		h.write(work+"/src/flask/json/__init__.py", "one\n")
		h.write(work+"/file", "one\n")
		h.git(work, "add", ".")
		h.git(work, "commit", "-qm", "one")
		h.git(work, "checkout", "-qb", "topic")
		h.write(work+"/src/flask/json/__init__.py", "two\n")
		h.write(work+"/lib/json/tool.py", "two\n")
		h.git(work, "add", ".")
		h.git(work, "commit", "-qm", "two")
		if strict {
			h.strict()
		}
		r := h.run("sh", "-ec", "git switch -q main; git switch -q topic; git worktree add -q wt HEAD~1; echo three >> src/flask/json/__init__.py; git commit -qam three; mkdir json; echo evil > json/__init__.py; echo evil > json.py")
		if r.Failure != nil || r.ExitCode != 0 {
			t.Errorf("%v %d %s", r.Failure, r.ExitCode, r.Err)
		}
		var paths []string
		for _, e := range h.quarantined() {
			paths = append(paths, strings.TrimPrefix(e.Path, work+"/"))
		}
		if slices.Sort(paths); !slices.Equal(paths, []string{"json.py", "json/__init__.py"}) {
			t.Errorf("strict %v: set aside: %q", strict, paths)
		}
		if status := h.git(work, "status", "--porcelain"); strings.Contains(status, "flask") {
			t.Error(status)
		}
	}
}
