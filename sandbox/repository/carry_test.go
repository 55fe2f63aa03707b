package repository

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// everything is carried over, to hold the editor against git.
var everything = rules{func(string) bool { return true }, func(string, string) Verdict { return Harmless }, nil}

func valuesOf(t testing.TB, text string) map[string][]string {
	t.Helper()
	d, err := parseDocument(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return d.values()
}

func same(a, b map[string][]string) bool { return maps.EqualFunc(a, b, slices.Equal[[]string]) }

const original = `# a comment of the person's
[core]
	bare = false ; another
	sshCommand = ssh -v
[remote "origin"]
	url = https://example.com/a.git
	fetch = +refs/heads/*:refs/remotes/origin/*
	proxy = socks5://localhost
# about main
[branch "main"]
	remote = origin
	merge = refs/heads/main
[user] name = A
`

func TestOrdinaryChangesAreCarriedOver(t *testing.T) {
	for name, commands := range map[string][]string{
		"a name":                {"config user.email a@b.c", "config user.name 'B; C'"},
		"a remote":              {"remote add other /srv/other.git"},
		"a remote and a branch": {"remote add fork https://example.com/b.git", "remote set-url --add --push fork git@example.com:x", "config branch.new.remote origin", "config branch.new.merge refs/heads/new"},
		"a branch that goes":    {"config --remove-section branch.main"},
		"a branch's new name":   {"config --rename-section branch.main branch.other"},
		"a key that goes":       {"config --unset user.name"},
		"what pull does":        {"config pull.rebase true", "config branch.main.rebase merges", "config push.autoSetupRemote true"},
		"a key in mixed case":   {"config branch.Main.pushRemote origin"},
		"what git does not ask": {"config core.bare false", "config remote.origin.prune true"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			git(t, dir, "init", "-q")
			write(t, dir+"/.git/config", original)
			for _, command := range commands {
				cmd := exec.Command("sh", "-c", "git "+command)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %s", command, out)
				}
			}
			inside := read(t, dir+"/.git/config")
			text, left, err := Carry(original, inside, original, Around{Has: func(branch string) bool { return branch != "main" }})
			if err != nil || len(left) > 0 || !same(valuesOf(t, text), valuesOf(t, inside)) {
				t.Errorf("%+v %v\n%s\nwant\n%s", left, err, text, inside)
			}
			if !strings.HasPrefix(text, "# a comment of the person's\n[core]\n\tbare = false ; another\n\tsshCommand = ssh -v\n") {
				t.Errorf("%s", text)
			}
		})
	}
}

func TestWhatDoesHarmIsLeftOut(t *testing.T) {
	for s, why := range hostile {
		key, value, _ := strings.Cut(s, "=")
		if strings.Count(key, ".") == 0 || key == "." || strings.Contains(key, "\n") {
			continue
		}
		inside := original + writeHead(sectionOf(key)) + "\n\t" + nameOf(key) + " = " + writeValue(value) + "\n[user]\n\temail = x@y.z\n"
		text, left, err := Carry(original, inside, original, Around{})
		if err != nil || len(left) != 1 || left[0].Why != why || left[0].Value != value || text != strings.TrimSuffix(original, "\n")+"\n\temail = x@y.z\n" {
			t.Errorf("%q: %+v %v\n%s", s, left, err, text)
		}
	}
}

func TestAHostileChangeOfWhatIsThereLeavesIt(t *testing.T) {
	for _, change := range [][2]string{
		{"sshCommand = ssh -v", "sshCommand = evil"},
		{"\tsshCommand = ssh -v\n", ""},
		{"url = https://example.com/a.git", "url = ext::evil"},
		{"\tproxy = socks5://localhost\n", ""},
		{"remote = origin", "remote = ../evil"},
		{"url = https://example.com/a.git", "url = https://example.com/b.git"},
		{"url = https://example.com/a.git", "url = https://example.com/a.git\n\turl = https://example.com/b.git"},
		{"url = https://example.com/a.git", "url = https://example.com/a.git\n\tpushurl = git@example.com:b.git"},
		{`[branch "main"]`, "[branch \"a\x1b\"]\n\tremote = ext::evil\n[branch \"main\"]"},
		{`[remote "origin"]`, "[remote \"origin\"]\n\tuploadpack = evil"},
		{`[remote "origin"]`, "[remote \"origin\"]\n\tpush = refs/heads/x:refs/heads/main"},
		{"remote = origin", "remote = up"}, // which none is called, but a file in .git/remotes may be
		{"remote = origin", "remote = sub/evil"},
		{"\turl = https://example.com/a.git\n", ""},
		{"\tremote = origin\n", ""},
	} {
		inside := strings.Replace(original, change[0], change[1], 1)
		text, left, err := Carry(original, inside, original, Around{})
		if err != nil || len(left) != 1 || text != original {
			t.Errorf("%q: %+v %v\n%s", change, left, err, text)
		}
	}
}

// What one command added, a later one does not turn the person's branches to.
func TestAnEarlierCommandsRemoteDoesNotTakeABranchOver(t *testing.T) {
	const evil = "[remote \"evil\"]\n\turl = https://example.com/evil.git\n"
	for _, change := range [][2]string{
		{"remote = origin", "remote = evil"},
		{"remote = origin", "remote = origin\n\tpushRemote = evil"},
		{"[user] name = A", "[remote]\n\tpushDefault = evil\n[user] name = A"},
		{"url = https://example.com/a.git", "url = https://example.com/evil.git"},
		{"url = https://example.com/a.git", "url = https://example.com/a.git\n\tpushurl = https://example.com/evil.git"},
	} {
		text, left, err := Carry(original+evil, strings.Replace(original, change[0], change[1], 1)+evil, original+evil, Around{})
		if err != nil || len(left) != 1 || left[0].Why != Leads || text != original+evil {
			t.Errorf("%q: %+v %v\n%s", change, left, err, text)
		}
	}
	// A remote repository that is taken away could be added again, with another address.
	inside := original[:strings.Index(original, "[remote")] + "[user] name = A\n"
	text, left, err := Carry(original, inside, original, Around{})
	if err != nil || len(left) == 0 || !strings.Contains(text, "url = https://example.com/a.git") || !strings.Contains(text, "proxy") {
		t.Errorf("%+v %v\n%s", left, err, text)
	}
}

// What the person pushes by habit goes where it went before.
func TestAnotherRemoteDoesNotTakeABranchOver(t *testing.T) {
	const fork = "[remote \"fork\"]\n\turl = https://example.com/b.git\n"
	for change, isLeft := range map[[2]string]bool{
		{"remote = origin", "remote = fork"}:                                      true,
		{"remote = origin", "remote = origin\n\tpushRemote = fork"}:               true,
		{"[user] name = A", "[remote]\n\tpushDefault = fork\n[user] name = A"}:    true,
		{"remote = origin", "remote = origin\n\tpushRemote = origin"}:             false,
		{"[user] name = A", "[branch \"new\"]\n\tremote = fork\n[user] name = A"}: true,
	} {
		inside := strings.Replace(original, change[0], change[1], 1) + fork
		text, left, err := Carry(original, inside, original, Around{})
		if err != nil || isLeft != (len(left) == 1 && left[0].Why == Leads) || isLeft == same(valuesOf(t, text), valuesOf(t, inside)) {
			t.Errorf("%q: %+v %v\n%s", change, left, err, text)
		}
	}
}

func TestWhatThePersonChangedMeanwhileStands(t *testing.T) {
	host := strings.Replace(original, "name = A", "name = The Person", 1)
	inside := strings.Replace(original, "name = A", "name = The Command", 1) + "[push]\n\tdefault = current\n"
	text, left, err := Carry(original, inside, host, Around{})
	if err != nil || len(left) != 1 || !left[0].Theirs || text != host+"[push]\n\tdefault = current\n" {
		t.Errorf("%+v %v\n%s", left, err, text)
	}
	if text, err := Follow(original, host, inside); err != nil || text != host+"[push]\n\tdefault = current\n" {
		t.Errorf("%v\n%s", err, text)
	}
	host = strings.Replace(host, "ssh -v", "ssh -vv", 1)
	if text, err := Follow(original, host, original); err != nil || text != host {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestWhatCannotBeReadIsNotCarriedOver(t *testing.T) {
	for _, inside := range []string{"[core\n", "x", original + "\x00", "[user]\nname = \"a\n"} {
		if _, _, err := Carry(original, inside, original, Around{}); !errors.Is(err, ErrNotRead) {
			t.Errorf("%q: %v", inside, err)
		}
	}
	var many strings.Builder
	for i := range maxChanges + 1 {
		fmt.Fprintf(&many, "[branch \"b%d\"]\nremote = x\n", i)
	}
	if _, _, err := Carry("", many.String(), "", Around{}); !errors.Is(err, ErrTooMany) {
		t.Error(err)
	}
}

// gitConfig changes a file as git does.
func gitConfig(file string, args ...string) error {
	return exec.Command("git", append([]string{"config", "--file", file}, args...)...).Run()
}

// What git makes of a file by random changes, the editor makes as well: git is the judge of what is
// in it.
func FuzzTheEditorMakesWhatGitMakes(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(original, seed)
	}
	for i, text := range gitConfigs {
		f.Add(text, uint64(i))
	}
	f.Add("[a]b=c", uint64(3))
	f.Add("[a]b=c\n[a] d = e # f\n\n[a]\n", uint64(4))
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		if _, err := parseDocument(text); err != nil || len(text) > 1000 || strings.ContainsAny(text, "\x00\r\v\f\t") && !strings.HasPrefix(text, "# a c") || strings.HasPrefix(text, byteOrderMark) {
			return
		}
		file := filepath.Join(t.TempDir(), "config")
		write(t, file, text)
		r := rand.New(rand.NewPCG(seed, 1))
		keys := []string{"user.name", "core.bare", "branch.main.remote", "branch.x y.merge", "remote.origin.url", "remote.origin.fetch", "a.b", "new.key"}
		values := []string{"x", "", " y ", "a;b", "#", `"q"`, `back\slash`, "two\nlines", "true"}
		for key := range valuesOf(t, text) {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for range 1 + r.IntN(4) {
			key, value := keys[r.IntN(len(keys))], values[r.IntN(len(values))]
			switch r.IntN(6) {
			case 0:
				gitConfig(file, key, value)
			case 1:
				gitConfig(file, "--add", key, value)
			case 2:
				gitConfig(file, "--unset-all", key)
			case 3:
				gitConfig(file, "--replace-all", key, value)
			case 4:
				gitConfig(file, "--remove-section", sectionOf(key))
			case 5:
				gitConfig(file, "--rename-section", sectionOf(key), "branch.renamed")
			}
		}
		inside := read(t, file)
		if _, err := parseDocument(inside); err != nil {
			return // git makes files that it cannot read, of heads with a variable on the same line
		}
		got, left, err := carry(text, inside, text, everything)
		if err != nil || len(left) > 0 {
			t.Fatalf("%q to %q: %v %v", text, inside, left, err)
		}
		if !same(valuesOf(t, got), valuesOf(t, inside)) {
			t.Errorf("%q to %q: %q", text, inside, got)
		}
		byGit, ok := readByGit(t, got)
		if d, _ := parseDocument(got); !ok || strings.ReplaceAll(byGit, "\t", " ") != strings.ReplaceAll(ofSettings(d.settings()), "\t", " ") {
			t.Errorf("%q: git reads %q", got, byGit)
		}
		if inside == text && got != text {
			t.Errorf("%q was changed: %q", text, got)
		}
	})
}
