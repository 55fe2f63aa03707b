package protect

import "testing"

func TestNamesMatchTheLastComponentsOfAPath(t *testing.T) {
	names := NewNames([]Name{{Path: ".envrc"}, {Path: ".vscode/tasks.json"}, {Path: ".jj/repo/config.toml"}, {Path: "bin", In: "/home/u"},
		{Path: ".config/fish", In: "/home/u"}, {Path: "deploy/run.sh", Rule: "deploy"}}, nil)
	for path, want := range map[string]string{
		"/w/.envrc": ".envrc", "/w/a/b/.envrc": ".envrc", "/w/.ENVRC": ".envrc", "/w/.envrc2": "", "/w/x.envrc": "",
		"/w/.vscode/tasks.json": ".vscode/tasks.json", "/w/.VSCode/Tasks.json": ".vscode/tasks.json", "/w/a.vscode/tasks.json": "", "/w/tasks.json": "",
		"/w/.jj/repo/config.toml": ".jj/repo/config.toml", "/w/repo/config.toml": "", "/.jj/repo/config.toml": ".jj/repo/config.toml",
		"/home/u/bin": "bin", "/home/u/x/bin": "", "/home/v/bin": "", "/home/u/.config/fish": ".config/fish", "/home/u/x/.config/fish": "",
		"/w/deploy/run.sh": "deploy", "/w/\u212aeep": "",
	} {
		rule, is := names.Match(parent(path), base(path), false)
		if rule != want || is != (want != "") {
			t.Errorf("%s: %q, want %q", path, rule, want)
		}
		if is && !names.ends([]byte(base(path))) {
			t.Errorf("%s: no name ends so", path)
		}
	}
}

func TestWhatIsTakenInThePlaceOfAFileIsProtectedAsThat(t *testing.T) {
	names := NewNames([]Name{{Path: "usercustomize.py"}, {Path: "tools/x.py"}, {Path: "Only.PY", In: "/w/a", Leaf: true}, {Path: ".zshrc"}, {Path: ".zcompdump"}, {Path: "init.el"}, {Path: "Foo.pm"}, {Path: "link.py", Link: true}, {Path: "there.py", In: "/w", Made: true}}, nil)
	for path, want := range map[string]string{
		"/w/__pycache__/usercustomize.cpython-311.pyc": "usercustomize.py", "/w/__PYCACHE__/USERCUSTOMIZE.cpython-313.opt-2.PYC": "usercustomize.py", "/w/usercustomize.pyc": "usercustomize.py",
		"/w/usercustomize.so": "usercustomize.py", "/w/usercustomize.abi3.so": "usercustomize.py", "/w/usercustomize.cpython-311-x86_64-linux-gnu.so": "usercustomize.py",
		"/w/usercustomize.cpython-311.pyc": "", "/w/__pycache__/customize.cpython-311.pyc": "", "/w/usercustomize.so.1": "", "/w/pyc": "", "/w/.pyc": "",
		"/w/tools/__pycache__/x.cpython-311.pyc": "tools/x.py", "/w/__pycache__/x.cpython-311.pyc": "", "/w/tools/x.so": "tools/x.py",
		"/w/a/__pycache__/only.cpython-38.pyc": "Only.PY", "/w/b/__pycache__/only.cpython-38.pyc": "", "/w/link.pyc": "", "/w/there.py": "", "/w/there.so": "there.py", "/w/a/there.so": "",
		"/w/.zshrc.zwc": ".zshrc", "/w/.zcompdump-host-5.9": ".zcompdump", "/w/.zcompdump.zwc": ".zcompdump", "/w/.zcompdum": "", "/w/init.elc": "init.el", "/w/Foo.pmc": "Foo.pm",
	} {
		rule, is := names.Match(parent(path), base(path), false)
		if rule != want || is != (want != "") {
			t.Errorf("%s: %q, want %q", path, rule, want)
		}
		if is && !names.ends([]byte(base(path))) {
			t.Errorf("%s: no name ends so", path)
		}
	}
}

func FuzzFold(f *testing.F) {
	f.Add(".envrc")
	f.Add(".HU\u017f\u212aY")
	f.Fuzz(func(t *testing.T, name string) {
		folded := fold(name)
		if again := fold(folded); again != folded {
			t.Errorf("%q: %q, and then %q", name, folded, again)
		}
	})
}

// Some file systems, and git there, take .GIT/Config for .git/config.
func TestGitsNamesCountInAnyLetterCase(t *testing.T) {
	n := &node{git: true, name: ".git", root: &root{path: "/w/.git"}}
	n.root.node = n
	w := &Watch{options: Options{Names: NewNames(nil, nil)}}
	for _, name := range []string{"config", "Config", "CONFIG.worktree", "CommonDir", "gitDir", "Hooks"} {
		if _, is := w.rule(n, name); !is || !isGits([]byte(name)) {
			t.Errorf("%s is not one of git's", name)
		}
	}
	dir := treeOf(t, "a/.GIT/Head", "b/Objects/", "b/REFS/")
	found := NewNames(nil, nil).Scan(dir, nil, DefaultLimits, nil).Found
	if len(found) != 2 || found[0].Path != dir+"/a/.GIT" || found[1].Path != dir+"/b" {
		t.Errorf("%v", found)
	}
}
