package sandbox

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
	"github.com/clairun/clai-sandbox/sandbox/cow"
	review "github.com/clairun/clai-sandbox/sandbox/cow/changes"
)

// copying makes the host's workspace copy on write.
func (h *host) copying() *host {
	needMounts(h.t.(*testing.T))
	h.profile.Layers = filepath.Join(h.profile.Home, ".local/state/clai-sandbox/layers/main")
	h.profile.Grants[1].Access = profile.CopyOnWrite
	return h
}

// contentOf is all that is below a directory, with contents.
func contentOf(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `cd "$1" && find . -printf '%P %y %m %l\n' | sort && find . -type f -exec cat {} +`, "sh", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestWhatIsWrittenCopyOnWriteStaysInTheLayer(t *testing.T) {
	h := newHost(t).copying()
	work := h.profile.Workspace
	for _, name := range []string{"changed", "removed", "dir/inner", "renamed", "dir2/inner", ".git/config", ".envrc"} {
		h.write(work+"/"+name, "as it was\n")
	}
	h.symlink("changed", work+"/link")
	before := contentOf(t, work)
	h.sh(`set -e
		echo new > new; echo more >> changed; rm removed; rm -r dir; mkdir dir; echo x > dir/other; mv renamed elsewhere; chmod 700 dir2
		echo through > link; ln -sf /etc/passwd link; echo '[core] fsmonitor = evil' > .git/config; echo evil > .envrc; mkdir .vscode; echo evil > .vscode/tasks.json`)
	if after := contentOf(t, work); after != before {
		t.Errorf("the host has\n%s\nafter\n%s", after, before)
	}
	// The next command of the agent sees what the first one made; another agent does not.
	if out := h.sh("cat new changed dir/other elsewhere .envrc; ls; readlink link"); out != "new\nthrough\nx\nas it was\nevil\nchanged\ndir\ndir2\nelsewhere\nlink\nnew\n/etc/passwd\n" {
		t.Errorf("%q", out)
	}
	h.profile.Layers = filepath.Dir(h.profile.Layers) + "/other"
	if out := h.sh("cat .envrc changed; ls"); out != "as it was\nas it was\nchanged\ndir\ndir2\nlink\nremoved\nrenamed\n" {
		t.Errorf("%q", out)
	}
}

// While a command runs, and afterwards, git and whoever else goes by paths finds nothing of what it
// wrote, wherever it lies on the host. Root does: no mode holds it.
func TestNoPathLeadsToWhatALayerHolds(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(h *host)
		dir   string // inside, where the command makes a repository
	}{
		"a workspace": {func(h *host) { h.copying() }, "."},
		"a cache": {func(h *host) {
			h.copying().mkdir(h.profile.Home + "/.cache/tool")
			h.profile.CachePaths = []profile.CachePath{{Path: h.profile.Home + "/.cache/tool"}}
		}, "~/.cache/tool"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			c.begin(h)
			look := func() {
				t.Helper()
				dirs, _ := filepath.Glob(h.profile.Layers + "/*")
				found := 0
				for _, dir := range dirs {
					planted := shut.In(dir) + "/upper/planted"
					_, reached := os.Lstat(shuttest.Reach(t, planted))
					if reached != nil {
						continue
					}
					found++
					_, err := os.Lstat(planted)
					out, failed := exec.Command("git", "-C", planted, "rev-parse", "--git-dir").CombinedOutput()
					if os.Getuid() != 0 && (!errors.Is(err, fs.ErrPermission) || failed == nil || !strings.Contains(string(out), "Permission denied")) {
						t.Errorf("a path leads to %s: %v %s", planted, err, out)
					} else if os.Getuid() == 0 && err != nil {
						t.Errorf("root is held, and docs/security.md says that it is not: %v", err)
					}
				}
				if found != 1 {
					t.Errorf("%d layers have it", found)
				}
			}
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer write.Close()
			ready, says, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer ready.Close()
			ended := make(chan error, 1)
			plan := h.lookOut()
			go func() {
				_, err := h.launcher.Run(t.Context(), plan, []string{"/bin/sh", "-c", "cd " + c.dir + " && git init -q planted && echo made && read line; echo more > planted/more"},
					Stdio{In: read, Out: says, Err: os.Stderr})
				says.Close()
				ended <- err
			}()
			if line, err := bufio.NewReader(ready).ReadString('\n'); line != "made\n" {
				t.Fatalf("%q %v", line, err)
			}
			look()
			write.Close()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			look()
			if out := h.sh("cat " + c.dir + "/planted/more"); out != "more\n" {
				t.Errorf("the next command finds %q", out)
			}
		})
	}
}

// Layers that earlier versions made are moved to where no path leads, before they are used and
// where nobody uses them.
func TestALayerOfAnEarlierVersionIsMoved(t *testing.T) {
	h := newHost(t).copying()
	h.sh("echo x > file; chmod 500 .")
	dirs, _ := filepath.Glob(h.profile.Layers + "/*")
	if len(dirs) != 1 {
		t.Fatal(dirs)
	}
	inside, err := shut.Open(dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	back := func() {
		t.Helper()
		for _, name := range []string{"upper", "work"} {
			os.Chmod(inside.Path()+"/"+name, 0o700)
			if err := os.Rename(inside.Path()+"/"+name, dirs[0]+"/"+name); err != nil {
				t.Fatal(err)
			}
		}
		os.Chmod(dirs[0]+"/upper", 0o500)
		os.Chmod(dirs[0]+"/shut", 0o700)
		if err := os.RemoveAll(dirs[0] + "/shut"); err != nil {
			t.Fatal(err)
		}
		inside.Close()
	}
	back()
	if list, err := review.List(filepath.Dir(filepath.Dir(h.profile.Layers))); err != nil || len(list) != 1 || list[0].Empty {
		t.Errorf("%+v %v", list, err)
	}
	held, err := unix.Open(dirs[0]+"/lock", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(held, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	Sweep(filepath.Dir(filepath.Dir(h.profile.Layers)))
	if _, err := os.Lstat(dirs[0] + "/upper"); err != nil {
		t.Error("it was moved while a sandbox had it:", err)
	}
	unix.Close(held)
	Sweep(filepath.Dir(filepath.Dir(h.profile.Layers)))
	if _, err := os.Lstat(dirs[0] + "/upper"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("it is where it was:", err)
	}
	if out := h.sh("cat file; stat -c %a ."); out != "x\n500\n" {
		t.Errorf("%q", out)
	}
	if inside, err = shut.Open(dirs[0]); err != nil {
		t.Fatal(err)
	}
	back()
	if out := h.sh("cat file"); out != "x\n" {
		t.Errorf("%q", out)
	}
}

// What the host has is seen while it changes, but for what the command has changed itself.
func TestTheHostsChangesAreSeenCopyOnWrite(t *testing.T) {
	h := newHost(t).copying()
	work := h.profile.Workspace
	h.write(work+"/a", "1\n")
	h.write(work+"/b", "1\n")
	h.sh("echo mine > a")
	h.write(work+"/a", "2\n")
	h.write(work+"/b", "2\n")
	h.write(work+"/c", "2\n")
	if out := h.sh("cat a b c"); out != "mine\n2\n2\n" {
		t.Errorf("%q", out)
	}
}

// What hides, and what is granted otherwise below, is on the merged directory, and nothing in the
// layer takes it off.
func TestWhatHidesHoldsCopyOnWrite(t *testing.T) {
	h := newHost(t).copying()
	work := h.profile.Workspace
	h.write(work+"/sub/secret/key", "secret\n")
	h.write(work+"/sub/token", "secret\n")
	h.write(work+"/sub/data/file", "data\n")
	h.write(work+"/sub/shared/file", "shared\n")
	for _, name := range []string{"/sub/secret", "/sub/token"} {
		h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: work + name})
	}
	h.grant(work+"/sub/data", profile.ReadOnly)
	h.grant(work+"/sub/shared", profile.ReadWrite)
	for range 2 {
		out := h.sh(`cat sub/secret/key sub/token 2>/dev/null; rm -rf sub/secret sub/token 2>/dev/null; mv sub other 2>/dev/null; ln -s sub/secret l 2>/dev/null
			cp -r sub copied 2>/dev/null; rm -rf sub 2>/dev/null; mkdir -p sub/secret 2>/dev/null
			find . -type f -exec cat {} + 2>/dev/null | grep secret; echo x >> sub/data/file 2>/dev/null || echo refused; echo more >> sub/shared/file; cat sub/data/file`)
		if out != "refused\ndata\n" {
			t.Fatalf("%q", out)
		}
	}
	if text, _ := os.ReadFile(work + "/sub/shared/file"); !strings.HasSuffix(string(text), "more\n") {
		t.Errorf("%q", text)
	}
	if text, _ := os.ReadFile(work + "/sub/token"); string(text) != "secret\n" {
		t.Errorf("%q", text)
	}
}

// A directory that is seen copy on write in a writable one cannot be moved to where the next
// command writes it.
func TestCopyOnWriteInAWritableDirectory(t *testing.T) {
	h := newHost(t).copying()
	work := h.profile.Workspace
	h.profile.Grants[1].Access = profile.ReadWrite
	h.write(work+"/a/b/file", "as it was\n")
	h.grant(work+"/a/b", profile.CopyOnWrite)
	for range 2 {
		h.sh("mv a z 2>/dev/null; mv a/b z 2>/dev/null; echo x > a/b/file; echo x > z/b/file 2>/dev/null; echo x > z/file 2>/dev/null; true")
	}
	if text, _ := os.ReadFile(work + "/a/b/file"); string(text) != "as it was\n" {
		t.Errorf("%q", text)
	}
}

func TestOneLayerIsMountedOnceAtATime(t *testing.T) {
	h := newHost(t).copying()
	h.profile.CachePaths = []profile.CachePath{{Path: h.mkdir(h.profile.Home + "/.cache"), Made: true}, {Path: h.profile.Home + "/.npm", Made: true}}
	h.liveShell().expect("echo first", "first")
	_, second := h.launcher.Run(t.Context(), h.build(), []string{"/bin/true"}, Stdio{})
	h.profile.Grants[1].Access = profile.ReadWrite
	other := h.sh("echo x > ~/.cache/x && echo x > ~/.npm/x && cat ~/.npm/x")
	var setup *SetupError
	if !errors.As(second, &setup) || !strings.Contains(setup.Why, "another sandbox") {
		t.Errorf("%v", second)
	}
	if other != "x\n" {
		t.Errorf("a cache: %q", other)
	}
}

// An agent's short commands may overlap: the second waits for the first.
func TestACommandWaitsForALayer(t *testing.T) {
	h := newHost(t).copying()
	first := make(chan string, 1)
	go func() {
		defer close(first)
		first <- h.sh("echo 1 >> log; sleep 0.5; echo 1 >> log")
	}()
	for range 3 {
		h.sh("echo 2 >> log")
	}
	if said := <-first; said != "" {
		t.Error(said)
	}
	if out := h.sh("cat log"); len(out) != 10 || !strings.Contains(out, "1\n1\n") {
		t.Errorf("%q", out)
	}
}

// Where the home has the directory that a cache would be in, the agent has the cache all the same,
// beside what else is there.
func TestACacheDeepInTheHomeIsMadeBesideWhatIsThere(t *testing.T) {
	h := newHost(t).copying()
	home := h.profile.Home
	h.write(home+"/.local/share/other/file", "the host's\n")
	h.profile.CachePaths = []profile.CachePath{{Path: home + "/.local/share/pnpm", Made: true}}
	if out := h.sh("cat ~/.local/share/other/file; mkdir -p ~/.local/share/pnpm/store && echo made; ! touch ~/.local/share/x"); out != "the host's\nmade\n" {
		t.Errorf("%q", out)
	}
	if _, err := os.Lstat(home + "/.local/share/pnpm"); err == nil {
		t.Error("the host has it")
	}
}

// Caches are written without an option, and nothing that a command puts there reaches anybody else.
func TestCachesAreWrittenCopyOnWrite(t *testing.T) {
	h := newHost(t).copying()
	home := h.profile.Home
	h.profile.Grants[1].Access = profile.ReadWrite
	h.write(home+"/.cache/warm", "the host's\n")
	h.write(home+"/.cargo/credentials.toml", "secret\n")
	h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: home + "/.cargo/credentials.toml"})
	for _, name := range []string{".cache", ".npm", ".cargo", ".local/share/uv", "go"} {
		h.profile.CachePaths = append(h.profile.CachePaths, profile.CachePath{Path: home + "/" + name, Made: true})
	}
	before := contentOf(t, home+"/.cache") + contentOf(t, home+"/.cargo")
	out := h.sh(`cat ~/.cache/warm; cat ~/.cargo/credentials.toml; rm -rf ~/.cache/warm
		for dir in .cache .npm .cargo .local/share/uv go; do mkdir -p ~/$dir/new/deep && echo poison > ~/$dir/new/deep/file || echo cannot $dir; done
		echo x 2>/dev/null > ~/elsewhere || echo refused; mkdir ~/.other 2>/dev/null || echo refused`)
	if out != "the host's\nrefused\nrefused\n" {
		t.Errorf("%q", out)
	}
	if out := h.sh(`cat ~/.npm/new/deep/file ~/go/new/deep/file ~/.cache/new/deep/file ~/.local/share/uv/new/deep/file; ls ~/.cache/warm 2>&1 || true`); !strings.HasPrefix(out, "poison\npoison\npoison\npoison\nls: ") {
		t.Errorf("the second time: %q", out)
	}
	if after := contentOf(t, home+"/.cache") + contentOf(t, home+"/.cargo"); after != before {
		t.Errorf("the host has\n%s", after)
	}
	for _, name := range []string{".npm", "go", ".local/share"} {
		if _, err := os.Lstat(home + "/" + name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the host has %s: %v", name, err)
		}
	}
	h.profile.Layers = filepath.Dir(h.profile.Layers) + "/other"
	if out := h.sh("cat ~/.cache/warm; ls ~/.npm ~/go"); strings.Contains(out, "new") {
		t.Errorf("another agent: %q", out)
	}
	h.profile.Caches = profile.CachesPrivate
	if out := h.sh("ls -A ~/.cache; echo x > ~/.cache/x && echo written"); out != "written\n" {
		t.Errorf("private: %q", out)
	}
}

// A grant decides, whatever is usual for a cache.
func TestAGrantOfACacheStands(t *testing.T) {
	h := newHost(t).copying()
	home := h.profile.Home
	h.profile.Grants[1].Access = profile.ReadWrite
	h.mkdir(home + "/.cache/go-build")
	h.profile.CachePaths = []profile.CachePath{{Path: home + "/.cache", Made: true}}
	h.grant(home+"/.cache/go-build", profile.ReadWrite)
	h.sh("echo x > ~/.cache/go-build/x; echo x > ~/.cache/x")
	if _, err := os.Lstat(home + "/.cache/go-build/x"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(home + "/.cache/x"); err == nil {
		t.Error("it reached the host")
	}
	h.grant(home+"/.cache", profile.ReadOnly)
	if out := h.sh("echo x 2>/dev/null > ~/.cache/y || echo refused"); out != "refused\n" {
		t.Errorf("%q", out)
	}
}

func TestCopyOnWriteComesLive(t *testing.T) {
	h := newHost(t).copying()
	h.profile.Grants[1].Access = profile.ReadWrite
	file := h.write(h.outside()+"/data/file", "as it was\n")
	dir := filepath.Dir(file)
	s := h.liveShell()
	s.expect("cat "+file, "…No such file or directory")
	h.grant(dir, profile.CopyOnWrite)
	s.show()
	s.expect("echo mine > "+file+" && cat "+file, "mine")
	h.revoke(dir)
	s.show()
	s.expect("cat "+file, "…No such file or directory")
	h.grant(dir, profile.CopyOnWrite)
	s.show()
	s.expect("cat "+file, "mine")
	h.revoke(dir)
	h.grant(dir, profile.ReadOnly)
	s.show()
	s.expect("cat "+file, "as it was")
	if text, _ := os.ReadFile(file); string(text) != "as it was\n" {
		t.Errorf("%q", text)
	}
}

func TestCopyOnWriteTakesADirectoryAndAMounter(t *testing.T) {
	h := newHost(t).copying()
	h.profile.Grants[1].Access = profile.ReadWrite
	h.profile.Grants = append(h.profile.Grants, profile.Grant{Path: h.write(h.outside()+"/file", ""), Access: profile.CopyOnWrite, Origin: profile.Origin{Kind: profile.OriginFlag}})
	if _, err := Build(h.profile, Host{}); err == nil || !strings.Contains(err.Error(), "takes a directory") {
		t.Errorf("%v", err)
	}
	h.profile.Grants = h.profile.Grants[:2]
	h.profile.CachePaths = []profile.CachePath{{Path: h.mkdir(h.profile.Home + "/.cache"), Made: true}, {Path: h.profile.Home + "/.npm", Made: true}}
	h.launcher.byBwrap = true
	if out := h.sh("echo x 2>/dev/null > ~/.cache/x || echo refused; ls -A ~/.npm 2>/dev/null || echo none"); out != "refused\nnone\n" {
		t.Errorf("%q", out)
	}
	h.grant(h.mkdir(h.outside()+"/data"), profile.CopyOnWrite)
	if _, err := h.launcher.Run(t.Context(), h.build(), []string{"/bin/true"}, Stdio{}); err == nil || !strings.Contains(err.Error(), "copy on write") {
		t.Errorf("%v", err)
	}
}

// A credential store in a cache that the host makes while a command runs is not seen there, however
// the command waits for it.
func TestWhatComesToBeHiddenIsNotSeenCopyOnWrite(t *testing.T) {
	h := newHost(t).copying()
	home := h.profile.Home
	h.profile.Grants[1].Access = profile.ReadWrite
	for _, name := range []string{"/.cargo/credentials.toml", "/.nuget/NuGet/NuGet.Config", "/.m2/not/there/yet"} {
		h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: home + name})
	}
	for _, name := range []string{"/.cargo", "/.nuget", "/.m2"} {
		h.profile.CachePaths = append(h.profile.CachePaths, profile.CachePath{Path: home + name})
	}
	h.mkdir(home + "/.cargo/bin")
	h.mkdir(home + "/.nuget/NuGet")
	h.mkdir(home + "/.m2/repository")
	for round, prepare := range []string{"true", "touch ~/.cargo/credentials.toml ~/.nuget/NuGet/NuGet.Config; mkdir ~/.m2/not", "rm -r ~/.cargo/credentials.toml ~/.nuget/NuGet/NuGet.Config ~/.m2/not"} {
		s := h.liveShell()
		s.expect(prepare+"; echo ready", "ready")
		for _, hidden := range h.profile.Hidden {
			h.write(hidden.Path, "secret\n")
		}
		h.write(home+"/.m2/repository/new", "new\n")
		s.expect("cat ~/.cargo/credentials.toml ~/.nuget/NuGet/NuGet.Config ~/.m2/not/there/yet ~/.m2/repository/new 2>/dev/null", "new")
		s.expect("find ~/.cargo ~/.nuget ~/.m2 -size +0 -type f", home+"/.m2/repository/new")
		s.in.Close()
		io.Copy(io.Discard, s.out)
		s.ended <- <-s.ended
		for _, hidden := range h.profile.Hidden {
			os.Remove(hidden.Path)
		}
		os.RemoveAll(home + "/.m2/not")
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// Caches that cannot be written are read, with what is hidden in them hidden, and the command runs.
func TestWithoutLayersCachesAreOnlyRead(t *testing.T) {
	for name, spoil := range map[string]func(h *host){
		"no place for layers":          func(h *host) { h.write(filepath.Dir(h.profile.Layers), "in the way") },
		"no layer that can be mounted": (*host).spoilLayers,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t).copying()
			home := h.profile.Home
			h.profile.Grants[1].Access = profile.ReadWrite
			h.write(home+"/.cargo/config", "the host's\n")
			h.write(home+"/.cargo/credentials", "secret\n")
			h.write(home+"/.cargo/keys/key", "secret\n")
			for _, hidden := range []string{"credentials", "credentials.toml", "keys"} {
				h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: home + "/.cargo/" + hidden})
			}
			h.profile.CachePaths = []profile.CachePath{{Path: home + "/.cargo", Made: true}, {Path: home + "/.npm", Made: true}}
			spoil(h)
			s := h.liveShell()
			s.expect("cat ~/.cargo/config ~/.cargo/credentials ~/.cargo/keys/key 2>/dev/null; echo x 2>/dev/null > ~/.cargo/x || echo refused", "the host's\nrefused")
			h.write(home+"/.cargo/credentials.toml", "secret\n")
			s.expect("cat ~/.cargo/* 2>/dev/null | grep secret || echo hidden", "hidden")
			s.in.Close()
			io.Copy(io.Discard, s.out)
			s.ended <- <-s.ended
			if !slices.ContainsFunc(s.told, func(n Notice) bool { return strings.Contains(n.Text, "cannot be") }) {
				t.Errorf("told: %v", s.told)
			}
		})
	}
}

// spoilLayers puts something in the place of what the kernel needs of each layer, so that it mounts
// none.
func (h *host) spoilLayers() {
	h.sh("true")
	for _, work := range h.layered("*", "work") {
		os.Chmod(work+"/work", 0o700)
		os.RemoveAll(work)
		h.write(work, "in the way")
	}
}

// What a command left in a layer does not stand in the way of a later workspace, or of a grant,
// below it.
func TestWhatALayerHoldsStandsInNoGrantsWay(t *testing.T) {
	for name, prepare := range map[string]string{
		"a link":                "rm -r src; ln -s /etc src",
		"a link at the end":     "rm -r src/a/granted src/a/file; ln -s /etc src/a/granted; ln -s /etc/passwd src/a/file",
		"nothing":               "rm -r src",
		"a file":                "rm -r src/a; echo x > src/a",
		"another directory":     "rm -r src; mkdir -p src; echo x > src/new",
		"another one, not ours": "rm -r src; mkdir -p src/a/granted/x src/a/file/x",
		"a pipe":                "rm -r src/a; mkfifo src/a",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t).copying()
			work := h.profile.Workspace
			h.write(work+"/src/a/granted/data", "data\n")
			h.write(work+"/src/a/file", "text\n")
			h.write(work+"/other", "as it was\n")
			h.sh("echo kept > other; " + prepare)
			h.grant(work+"/src/a/granted", profile.ReadWrite)
			h.grant(work+"/src/a/file", profile.ReadOnly)
			if out := h.sh("cat src/a/granted/data src/a/file other; echo more >> src/a/granted/data"); out != "data\ntext\nkept\n" {
				t.Errorf("%q", out)
			}
			if text, _ := os.ReadFile(work + "/src/a/granted/data"); string(text) != "data\nmore\n" {
				t.Errorf("the host has %q", text)
			}
		})
	}
}

// A program that a command installed in what it sees copy on write is found by the next, and one
// that it removed is not.
func TestProgramsInALayerAreFound(t *testing.T) {
	h := newHost(t).copying()
	work := h.profile.Workspace
	h.write(work+"/removed", "#!/bin/sh\n")
	os.Chmod(work+"/removed", 0o755)
	h.sh("mkdir bin; printf '#!/bin/sh\\necho it runs\\n' > bin/tool; chmod +x bin/tool; ln -s bin/tool link; rm removed")
	for _, name := range []string{"/bin/tool", "/link"} {
		if _, err := h.launcher.Run(t.Context(), h.build(), []string{work + name}, Stdio{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := h.launcher.Run(t.Context(), h.build(), []string{work + "/removed"}, Stdio{}); !errors.As(err, new(*CommandError)) {
		t.Errorf("%v", err)
	}
}

// Two sandboxes of one agent may reach different things. No directory that both write leads from
// one to the other while they run.
func TestSandboxesOfOneAgentShareNoCacheWhileTheyRun(t *testing.T) {
	h := newHost(t).copying()
	h.profile.Grants[1].Access = profile.ReadWrite
	h.profile.CachePaths = []profile.CachePath{{Path: h.mkdir(h.profile.Home + "/.cache"), Made: true}, {Path: h.profile.Home + "/.npm", Made: true}}
	first := h.liveShell()
	first.expect("echo first > ~/.npm/one; echo first > ~/.cache/one; echo first > /run/clai-sandbox/caches/one", "")
	if out := h.sh("cat ~/.npm/one ~/.cache/one /run/clai-sandbox/caches/one 2>/dev/null; echo second > ~/.npm/two; cat ~/.npm/two"); out != "second\n" {
		t.Errorf("%q", out)
	}
	first.expect("ls ~/.npm ~/.cache | grep two; cat ~/.npm/one", "first")
}

// Root that runs with a person's home leaves nothing of root's there, and its commands run.
func TestRootMakesNoLayersInAPersonsState(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can")
	}
	h := newHost(t).copying()
	h.profile.Grants[1].Access = profile.ReadWrite
	h.profile.CachePaths = []profile.CachePath{{Path: h.mkdir(h.profile.Home + "/.cache"), Made: true}, {Path: h.profile.Home + "/.npm", Made: true}}
	state := filepath.Dir(filepath.Dir(h.profile.Layers))
	h.mkdir(state)
	os.Chmod(state, 0o700)
	os.Chown(state, 65534, 65534)
	if out := h.sh("echo x 2>/dev/null > ~/.cache/x || echo refused"); out != "refused\n" {
		t.Errorf("%q", out)
	}
	if entries, _ := filepath.Glob(state + "/layers/*"); len(entries) > 0 {
		t.Errorf("%v", entries)
	}
}

// A layer in what it lies over cannot be, and nobody makes our files anew there.
func TestWhatHoldsOurFilesIsNotCopyOnWrite(t *testing.T) {
	h := newHost(t).copying()
	h.profile.Grants = append(h.profile.Grants, profile.Grant{Path: h.profile.Home, Access: profile.CopyOnWrite, Origin: profile.Origin{Kind: profile.OriginFlag}})
	if _, err := Build(h.profile, Host{}); err == nil || !strings.Contains(err.Error(), "keeps its own files in it") {
		t.Errorf("%v", err)
	}
}

// The repository of a worktree is elsewhere. What is committed is in a layer, as what is changed in
// the worktree is.
func TestAWorktreeThatIsCopiedCommits(t *testing.T) {
	needProgram(t, "git")
	h := newHost(t).copying()
	main, tree := h.profile.Home+"/main", h.profile.Home+"/tree"
	h.repository(main)
	h.git(main, "worktree", "add", "-q", tree)
	h.profile.Workspace, h.profile.WorkingDirectory, h.profile.Grants[1].Path = tree, tree, tree
	before := contentOf(t, main)
	h.sh("set -e; echo x > new; git add new; git -c user.name=A -c user.email=a@b.c commit -qm inside; git branch more; git config user.name inside; echo evil > ../main/.git/hooks/post-commit")
	if out := h.sh("git log -1 --format=%s; git status --porcelain; git branch --format='%(refname:short)'; git config user.name"); out != "inside\nmain\nmore\ntree\ninside\n" {
		t.Errorf("%q", out)
	}
	if after := contentOf(t, main); after != before {
		t.Errorf("the repository has\n%s\nand had\n%s", after, before)
	}
	if r := h.run("/bin/sh", "-c", "echo x > ../main/file"); r.ExitCode == 0 {
		t.Error("the other worktree can be written")
	}
}

// A repository that does not say that the workspace is a worktree of its own is only read.
func TestAForeignRepositoryIsNotCopied(t *testing.T) {
	needProgram(t, "git")
	h := newHost(t).copying()
	other := h.profile.Home + "/other"
	h.repository(other)
	h.write(h.profile.Workspace+"/.git", "gitdir: "+other+"/.git\n")
	if r := h.run("/bin/sh", "-c", "echo x > "+other+"/.git/new"); r.ExitCode == 0 {
		t.Error("it can be written")
	}
}

func TestTwoWorktreesOfOneAgentRunAtOnce(t *testing.T) {
	needProgram(t, "git")
	h := newHost(t).copying()
	main, tree := h.profile.Home+"/main", h.profile.Home+"/tree"
	h.repository(main)
	h.git(main, "worktree", "add", "-q", tree)
	h.profile.Workspace, h.profile.WorkingDirectory, h.profile.Grants[1].Path = tree, tree, tree
	held, err := cow.Open(filepath.Join(h.profile.Layers, cow.Name(main+"/.git")), cow.About{Path: main + "/.git"}, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	r := h.run("/bin/sh", "-c", "echo x > new && ! git add new 2>/dev/null && git log -1 --format=%s")
	if r.ExitCode != 0 || !slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Text, "nothing can be committed") }) {
		t.Errorf("%+v", r)
	}
}
