package sandbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
)

// sessionTmp gives the host's /tmp inside to a directory of the host's that lasts, as a session has
// it. What is granted below /tmp then has its mount points in a directory that earlier commands
// wrote.
func (h *host) sessionTmp() string {
	h.t.Helper()
	h.profile.PrivateTmp = h.mkdir(h.outside() + "/session-tmp")
	os.Chmod(h.profile.PrivateTmp, 0o1777)
	return h.profile.PrivateTmp
}

// inTmp is a directory below the host's /tmp.
func inTmp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "clai-sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shuttest.RemoveAll(dir) })
	return dir
}

// bwrap 0.8 followed such a link out of the new root, and made directories and files where it led.
func TestALinkInASessionsTmpLeadsNoMountOutside(t *testing.T) {
	needMounts(t)
	for name, plant := range map[string]string{
		"a link out of the new root":  "ln -s /oldroot%[1]s /tmp/%[2]s",
		"a link to a writable place":  "ln -s %[3]s /tmp/%[2]s",
		"a link to nothing":           "ln -s nowhere /tmp/%[2]s",
		"a file":                      "echo mine > /tmp/%[2]s",
		"a FIFO":                      "mkfifo /tmp/%[2]s",
		"a directory with a link":     "mkdir -p /tmp/%[2]s && ln -s /oldroot%[1]s /tmp/%[2]s/data",
		"a directory with a file":     "mkdir -p /tmp/%[2]s && echo mine > /tmp/%[2]s/data",
		"a directory nobody may read": "mkdir -p /tmp/%[2]s && chmod 0 /tmp/%[2]s",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.sessionTmp()
			base := inTmp(t)
			target := h.mkdir(h.outside() + "/autostart")
			file := h.write(base+"/data/file", "content")
			h.sh(fmt.Sprintf(plant, target, filepath.Base(base), h.profile.Workspace))
			h.grant(filepath.Dir(file), profile.ReadOnly)
			for range 2 {
				r := h.run("/bin/cat", file)
				if r.Failure != nil || r.Out != "content" {
					t.Errorf("%v %q %q", r.Failure, r.Out, r.Err)
				}
			}
			if left := lines(listing(t, target)); len(left) != 1 { // but itself
				t.Errorf("made outside: %q", left)
			}
			if left := listing(t, h.profile.Workspace); strings.Contains(left, "data") {
				t.Errorf("made in the workspace: %s", left)
			}
		})
	}
}

// What the command had there is set aside, and not lost.
func TestWhatStandsInTheWayInASessionsTmpIsKept(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	tmp := h.sessionTmp()
	base := inTmp(t)
	h.write(base+"/data/file", "content")
	h.sh("echo mine > /tmp/" + filepath.Base(base))
	h.grant(base+"/data", profile.ReadOnly)
	h.sh("cat " + base + "/data/file")
	kept, _ := filepath.Glob(tmp + "/" + filepath.Base(base) + ".set-aside-*")
	if len(kept) != 1 {
		t.Fatal(listing(t, tmp))
	}
	if text, _ := os.ReadFile(kept[0]); string(text) != "mine\n" {
		t.Errorf("%q", text)
	}
}

// A command that swaps the parents of two grants, so that one is found where the other was: what is
// revoked is what was granted.
func TestSwappedParentsChangeNothingOfWhatIsRevoked(t *testing.T) {
	needMounts(t)
	for name, c := range map[string]struct{ a, b string }{
		"below /tmp, beside each other": {"/a/data", "/b/data"},
		"three levels":                  {"/x/y/a/data", "/x/y/b/data"},
		"one a file":                    {"/a/data", "/b/data/file"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.sessionTmp()
			base := inTmp(t)
			first, second := base+c.a, base+c.b
			h.write(filepath.Join(base, "a", "x"), "")
			h.write(first+"/file", "first")
			if filepath.Base(second) == "file" {
				h.write(second, "second")
			} else {
				h.write(second+"/file", "second")
			}
			h.grant(first, profile.ReadWrite)
			h.grant(second, profile.ReadWrite)
			s := h.liveShell()
			s.sh("cd " + base + " && mv a c; mv b a; mv c b; cd x/y 2>/dev/null && mv a c; mv b a; mv c b; mv " + base + " " + base + "-other; true")
			h.revoke(first)
			s.show()
			if said := s.sh("find /tmp -name file -exec cat {} + 2>/dev/null"); strings.Contains(said, "first") || !strings.Contains(said, "second") {
				t.Errorf("%q", said)
			}
			s.expect("(echo x > "+first+"/file) 2>/dev/null || echo refused", "refused")
		})
	}
}

// Random swaps of everything that the command can move, while grants come and go: what is seen is
// what is granted.
func TestGrantsThatAreSwappedAtRandomAgainstAModel(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	h.sessionTmp()
	base := inTmp(t)
	const n = 64
	var dirs []string
	for i := range n {
		dir := fmt.Sprintf("%s/%c/%c/%d", base, 'a'+i%4, 'a'+i%3, i)
		h.write(dir+"/file", fmt.Sprintf("<%d>", i))
		dirs = append(dirs, dir)
	}
	always := slices.Clone(h.profile.Grants)
	s := h.liveShell()
	s.sh("(cd " + base + " || cd /tmp; while [ ! -e " + h.profile.Workspace + "/stop ]; do for x in a b c d; do for y in a b c; do mv -T $x/$y $x/z; mv -T $x/a $x/$y; done; mv -T $x z; mv -T a $x; mv -T z a; done; done) 2>/dev/null & true")
	random := rand.New(rand.NewPCG(1, 2))
	for step := range 25 {
		h.profile.Grants = slices.Clone(always)
		var want []string
		for i, dir := range dirs {
			if random.IntN(3) == 0 {
				h.profile.Grants = append(h.profile.Grants, profile.Grant{Path: dir, Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginApproval}})
				want = append(want, fmt.Sprintf("<%d>", i))
			}
		}
		s.show()
		got := strings.Fields(strings.ReplaceAll(s.sh("find "+base+" -name file -exec cat {} +"), "><", "> <"))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("step %d: %v, want %v", step, got, want)
		}
	}
	s.sh("touch stop; wait")
}

// "mv a z" in one run, and the next wrote in z what was read-only as a/b.
func TestAReadOnlyGrantInAWritableOneStaysWhereItIs(t *testing.T) {
	for name, below := range map[string]string{"one level": "a/fixed", "three levels": "a/b/c/fixed", "a file": "a/fixed.txt"} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			fixed := filepath.Join(h.profile.Workspace, below)
			file := fixed
			if filepath.Ext(below) == "" {
				file = fixed + "/file"
			}
			h.write(file, "fixed")
			h.grant(fixed, profile.ReadOnly)
			for range 2 {
				for dir := filepath.Dir(fixed); dir != h.profile.Workspace; dir = filepath.Dir(dir) {
					h.refused("mv " + dir + " " + dir + ".z")
				}
				h.run("/bin/sh", "-c", "mv a z; for f in z/"+strings.TrimPrefix(below, "a/")+" a/*; do echo changed > $f; done; mv z a")
				h.refused("echo changed > " + file)
			}
			if text, _ := os.ReadFile(file); string(text) != "fixed" {
				t.Errorf("%q", text)
			}
		})
	}
}

// The directory that holds .git in place is not the object that the grant is for.
func TestAStoredGrantOfARepositoryLetsLaterRunsBegin(t *testing.T) {
	h := newHost(t)
	repository := h.outside() + "/repository"
	for _, dir := range []string{".git/objects", ".git/refs", ".git/hooks", "sub"} {
		h.mkdir(repository + "/" + dir)
	}
	h.write(repository+"/.git/config", "[core]\n")
	h.write(repository+"/.git/HEAD", "ref: refs/heads/main\n")
	h.allow(repository)
	h.profile.Grants[len(h.profile.Grants)-1].Access = profile.ReadWrite
	for range 2 {
		h.sh("echo x > " + repository + "/sub/file && echo y > " + repository + "/.git/index")
		h.run("/bin/sh", "-c", "echo x >> "+repository+"/.git/config")
		if text, _ := os.ReadFile(repository + "/.git/config"); string(text) != "[core]\n" {
			t.Errorf("%q", text)
		}
	}
}

// What was taken away and is still held changes nothing any more: neither what is in it nor its
// permissions and times.
func TestAHeldDirectoryThatWasTakenAwayChangesNothing(t *testing.T) {
	needProgram(t, "python3")
	h := newHost(t)
	dir := h.mkdir(h.outside() + "/data")
	file := h.write(dir+"/file", "content")
	os.Chmod(file, 0o600)
	os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0))
	h.grant(dir, profile.ReadWrite)
	s := h.liveShell()
	h.write(h.profile.Workspace+"/hold.py", `
import os, time
os.chdir("`+dir+`")
d = os.open(".", os.O_RDONLY); f = os.open("file", os.O_RDONLY)
open("`+h.profile.Workspace+`/held", "w").close()
while not os.path.exists("`+h.profile.Workspace+`/revoked"): time.sleep(0.01)
for name, do in {"chmod": lambda: os.chmod("file", 0o777), "fchmod": lambda: os.fchmod(f, 0o777), "at": lambda: os.chmod("file", 0o777, dir_fd=d),
  "utime": lambda: os.utime("file"), "futime": lambda: os.utime(f), "xattr": lambda: os.setxattr(f, "user.x", b"x"), "dir": lambda: os.fchmod(d, 0o777),
  "unlink": lambda: os.unlink("file"), "mkdir": lambda: os.mkdir("new"), "open": lambda: os.open("file", os.O_RDONLY)}.items():
    try:
        do(); print("worked:", name, flush=True)
    except OSError as e: pass
print("done", flush=True)
`)
	s.expect("python3 hold.py & until [ -e held ]; do sleep 0.01; done", "")
	h.revoke(dir)
	s.show()
	if said := s.sh("touch revoked; wait"); said != "done" {
		t.Errorf("%q", said)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 || !info.ModTime().Equal(time.Unix(1, 0)) {
		t.Errorf("%v %v", info, err)
	}
}

// A home below /tmp is as protected as any other: what comes into being while the command runs is
// not seen.
func TestASecretThatComesIntoBeingInAHomeBelowTmpIsNotSeen(t *testing.T) {
	needMounts(t)
	for _, live := range []bool{false, true} {
		h := newHost(t)
		base := inTmp(t)
		h.profile.Home, h.profile.Workspace = base+"/home", h.mkdir(base+"/home/work")
		h.profile.WorkingDirectory = h.profile.Workspace
		h.profile.Grants = []profile.Grant{{Path: h.profile.Home, Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginDefault}},
			{Path: h.profile.Workspace, Access: profile.ReadWrite, Origin: profile.Origin{Kind: profile.OriginWorkspace}}}
		h.profile.OwnDirectories = nil
		h.profile.Hidden = []profile.HiddenPath{{Path: h.profile.Home + "/.netrc"}, {Path: h.profile.Home + "/.config/gh"}}
		h.mkdir(h.profile.Home + "/.config/other")
		if live {
			h.launcher.Live = &Live{}
		}
		result := make(chan ran, 1)
		go func() {
			result <- h.run("/bin/sh", "-c", "touch ready; until [ -e done ]; do sleep 0.01; done; cat ~/.netrc ~/.config/gh/hosts.yml; cat /proc/self/cwd/../.netrc; mv ~/.config ~/x; mv "+base+" "+base+"2; echo end")
		}()
		waitUntil(t, "the command runs", func() bool { _, err := os.Stat(h.profile.Workspace + "/ready"); return err == nil })
		h.write(h.profile.Home+"/.netrc", "secret")
		h.write(h.profile.Home+"/.config/gh/hosts.yml", "secret")
		h.write(h.profile.Workspace+"/done", "")
		if r := <-result; r.Out != "end\n" {
			t.Errorf("live %v: %q %q %v", live, r.Out, r.Err, r.Failure)
		}
	}
}

// The host renames what a grant's path leads through, in a loop, while sandboxes begin: nothing is
// made in the wrong place, and what is shown is what was granted.
func TestTheHostRenamesWhileSandboxesBegin(t *testing.T) {
	h := newHost(t)
	base := h.outside()
	h.write(base+"/a/data/file", "granted")
	h.write(base+"/b/data/file", "other")
	h.allow(base + "/a/data")
	stop := make(chan struct{})
	var renaming sync.WaitGroup
	renaming.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, base+"/a", unix.AT_FDCWD, base+"/b", unix.RENAME_EXCHANGE)
				runtime.Gosched()
			}
		}
	})
	defer renaming.Wait()
	defer close(stop)
	for range 60 {
		plan, err := Build(h.profile, h.tree)
		if err != nil {
			t.Fatal(err)
		}
		if r := h.runPlan(plan, "/bin/sh", "-c", "cat "+base+"/*/data/file; true"); strings.Contains(r.Out, "other") {
			t.Fatalf("%q", r.Out)
		}
	}
	if left := listing(t, base); len(lines(left)) != 7 {
		t.Errorf("%s", left)
	}
}

// Entries that nobody can open, and of every kind, stop nothing.
func TestADirectoryIsShownEntryByEntry(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	home := h.profile.Home
	h.profile.Hidden = []profile.HiddenPath{{Path: home + "/.none"}}
	h.write(home+"/file", "content")
	h.write(home+"/dir/below", "below")
	h.symlink("dir/below", home+"/link")
	h.symlink("/no/such", home+"/dangling")
	h.mkdir(home + "/closed")
	os.Chmod(home+"/closed", 0)
	t.Cleanup(func() { os.Chmod(home+"/closed", 0o700) })
	unix.Mkfifo(home+"/fifo", 0o600)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: home + "/socket"}); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(home+"/new\nline \xff", nil, 0o644)
	os.WriteFile(home+"/-rf", nil, 0o644)
	got := h.sh(`cd ~ && cat file link && readlink dangling link && [ -p fifo ] && [ -S socket ] && [ -d closed ] && [ -e -rf ] && ls -A | wc -l`)
	if got != "contentbelow/no/such\ndir/below\n13\n" {
		t.Errorf("%q: %s", got, h.sh("ls -A ~"))
	}
	h.refused("touch ~/x")
	h.refused("echo x > ~/file")
	h.refused("mv ~/file ~/file2")
	h.refused("chmod 777 ~ ~/dir ~/file")
	h.refused("rm -f ~/file ~/link; [ -e ~/file ] && [ -e ~/link ] && exit 1")
}

func TestAManyEntriesBoundIsTold(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	dir := h.mkdir(h.outside() + "/many")
	for i := range 4200 {
		h.write(fmt.Sprintf("%s/%d", dir, i), "")
	}
	h.profile.Hidden = []profile.HiddenPath{{Path: dir + "/secret"}}
	h.grant(dir, profile.ReadOnly)
	r := h.run("/bin/sh", "-c", "ls "+dir+" | wc -l")
	if r.Failure != nil || strings.TrimSpace(r.Out) != "4096" || !slices.ContainsFunc(r.Notices, func(n Notice) bool { return n.Path == dir && strings.Contains(n.Text, "more than 4096") }) {
		t.Errorf("%v %q %v", r.Failure, r.Out, r.Notices)
	}
}

// Two thousand grants take more descriptors than a process usually has, and more lists than one.
func TestTwoThousandGrants(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	base := h.outside()
	for i := range 2000 {
		h.grant(h.mkdir(fmt.Sprintf("%s/%d", base, i)), profile.ReadOnly)
	}
	if got := h.sh("ls " + base + " | wc -l; grep -c " + base + " /proc/self/mountinfo"); got != "2000\n2000\n" {
		t.Errorf("%q", got)
	}
}

func TestThisMachineMounts(t *testing.T) {
	needMounts(t)
	if !mounts.Supported() {
		t.Skip("this kernel has not the calls that mounting takes (Linux 5.12): bubblewrap mounts everything here")
	}
}
