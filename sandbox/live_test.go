package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/landlock"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

// A liveShell is a shell in a live sandbox.
type liveShell struct {
	t     testing.TB
	h     *host
	live  *Live
	in    *io.PipeWriter
	out   *bufio.Reader
	ended chan error
	told  []Notice // of the result, when it has ended
}

func (h *host) liveShell() *liveShell {
	h.t.Helper()
	if t, is := h.t.(*testing.T); is {
		needMounts(t)
	}
	inRead, in := io.Pipe()
	out, outWrite := io.Pipe()
	s := &liveShell{t: h.t, h: h, live: &Live{}, in: in, out: bufio.NewReader(out), ended: make(chan error, 1)}
	launcher := h.launcher
	launcher.Live = s.live
	plan := h.build()
	go func() {
		result, err := launcher.Run(context.Background(), plan, []string{"/bin/sh"}, Stdio{In: inRead, Out: outWrite, Err: outWrite})
		s.told = result.Notices
		inRead.Close()
		outWrite.Close()
		s.ended <- err
	}()
	h.t.Cleanup(func() {
		in.Close()
		out.Close()
		select {
		case <-s.ended:
		case <-time.After(10 * time.Second):
			h.t.Error("the sandbox does not end")
		}
	})
	return s
}

// sh runs one line in the shell, and returns what it says.
func (s *liveShell) sh(line string) string {
	s.t.Helper()
	fmt.Fprintf(s.in, "{ %s\n} 2>&1; printf '\\n=%%s=\\n' $?\n", line)
	var said strings.Builder
	for {
		text, err := s.out.ReadString('\n')
		if err != nil {
			ended := <-s.ended
			s.ended <- ended
			s.t.Fatalf("%s: %v, after %q: the sandbox ended: %v %v", line, err, said.String(), ended, s.told)
		}
		if strings.HasPrefix(text, "=") && strings.HasSuffix(text, "=\n") {
			return strings.TrimSpace(said.String())
		}
		said.WriteString(text)
	}
}

func (s *liveShell) show() []Notice {
	s.t.Helper()
	notices, err := s.live.Show(context.Background(), s.h.profile)
	if err != nil {
		s.t.Fatal(err)
	}
	return notices
}

func (s *liveShell) expect(line, want string) {
	s.t.Helper()
	if got := s.sh(line); got != want && !(strings.HasPrefix(want, "…") && strings.HasSuffix(got, want[len("…"):])) {
		s.t.Errorf("%s: %q, want %q", line, got, want)
	}
}

// revoke takes the grant of a path out of the profile.
func (h *host) revoke(path string) {
	for i, g := range h.profile.Grants {
		if g.Path == path {
			h.profile.Grants = append(h.profile.Grants[:i:i], h.profile.Grants[i+1:]...)
			return
		}
	}
	h.t.Fatalf("%s is not granted", path)
}

func TestAGrantReachesTheRunningSandboxAndLeavesIt(t *testing.T) {
	h := newHost(t)
	dir := h.mkdir(h.outside() + "/data")
	file := h.write(h.outside()+"/data/file", "content")
	s := h.liveShell()
	s.expect("cat "+file, "…No such file or directory")

	h.grant(dir, profile.ReadOnly)
	s.show()
	s.expect("cat "+file, "content")
	s.expect("echo x > "+file, "…Read-only file system")

	h.revoke(dir)
	h.grant(dir, profile.ReadWrite)
	s.show()
	s.expect("echo more >> "+file+" && cat "+file, "contentmore")

	h.revoke(dir)
	h.grant(dir, profile.ReadOnly)
	s.show()
	s.expect("echo x > "+file, "…Read-only file system")
	s.expect("cat "+file, "contentmore")

	h.revoke(dir)
	s.show()
	s.expect("cat "+file, "…No such file or directory")
	s.expect("ls "+dir, "…No such file or directory")
}

func TestASingleFileIsGrantedLive(t *testing.T) {
	h := newHost(t)
	file := h.write(h.outside()+"/data/file", "content")
	h.write(h.outside()+"/data/other", "secret")
	s := h.liveShell()
	h.grant(file, profile.ReadOnly)
	s.show()
	s.expect("cat "+file, "content")
	s.expect("ls "+filepath.Dir(file), "file")
	h.revoke(file)
	s.show()
	s.expect("cat "+file, "…No such file or directory")
}

func TestALiveMountHasNoDevicesAndNoSetuidPrograms(t *testing.T) {
	h := newHost(t)
	dir := h.mkdir(h.outside() + "/data")
	s := h.liveShell()
	h.grant(dir, profile.ReadWrite)
	s.show()
	options := s.sh("while read -r line; do case $line in *' " + dir + " '*) echo $line;; esac; done < /proc/self/mountinfo")
	if !strings.Contains(options, "nosuid") || !strings.Contains(options, "nodev") {
		t.Errorf("%q", options)
	}
}

func TestWhatIsHiddenStaysHiddenInALiveGrant(t *testing.T) {
	h := newHost(t)
	secret := h.write(h.outside()+"/data/keys/secret", "key")
	plain := h.write(h.outside()+"/data/plain", "text")
	token := h.write(h.outside()+"/data/token", "token")
	dir := filepath.Dir(plain)
	h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: filepath.Dir(secret)}, profile.HiddenPath{Path: token})
	s := h.liveShell()
	h.grant(dir, profile.ReadWrite)
	s.show()
	s.expect("cat "+plain, "text")
	s.expect("ls "+filepath.Dir(secret), "")
	s.expect("cat "+secret, "…No such file or directory")
	s.expect("cat "+token, "")

	// One that is granted itself shows up.
	h.grant(secret, profile.ReadOnly)
	s.show()
	s.expect("cat "+secret, "key")
	s.expect("ls "+filepath.Dir(secret), "secret")
	h.revoke(secret)
	s.show()
	s.expect("cat "+secret, "…No such file or directory")
	s.expect("cat "+plain, "text")
}

func TestAHiddenPathOfAGrantThatWasThereShowsUpLive(t *testing.T) {
	h := newHost(t)
	secret := h.write(h.outside()+"/data/keys/secret", "key")
	h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: filepath.Dir(secret)})
	h.grant(filepath.Dir(filepath.Dir(secret)), profile.ReadOnly)
	s := h.liveShell()
	s.expect("cat "+secret, "…No such file or directory")
	h.grant(filepath.Dir(secret), profile.ReadOnly)
	s.show()
	s.expect("cat "+secret, "key")
	h.revoke(filepath.Dir(secret))
	s.show()
	s.expect("cat "+secret, "…No such file or directory")
}

func TestAGrantThatWasThereFromTheBeginningIsTakenAwayLive(t *testing.T) {
	h := newHost(t)
	dir := h.mkdir(h.outside() + "/data")
	file := h.write(h.outside()+"/data/file", "content")
	single := h.write(h.outside()+"/single", "one")
	h.grant(dir, profile.ReadWrite)
	h.grant(single, profile.ReadOnly)
	s := h.liveShell()
	s.expect("cat "+file+" "+single, "contentone")
	h.revoke(dir)
	h.grant(dir, profile.ReadOnly)
	s.show()
	s.expect("cat "+file, "content")
	s.expect("echo x > "+file, "…Read-only file system")
	h.revoke(dir)
	h.revoke(single)
	s.show()
	s.expect("cat "+file, "…No such file or directory")
	s.expect("cat "+single, "…No such file or directory")
	h.grant(dir, profile.ReadOnly)
	s.show()
	s.expect("cat "+file, "content")
}

func TestGrantsInsideEachOtherComeAndGoLive(t *testing.T) {
	h := newHost(t)
	inner := h.write(h.outside()+"/a/b/c/file", "inner")
	outer := h.write(h.outside()+"/a/file", "outer")
	a, c := filepath.Dir(outer), filepath.Dir(inner)
	s := h.liveShell()
	h.grant(c, profile.ReadWrite)
	s.show()
	h.grant(a, profile.ReadOnly)
	s.show()
	s.expect("cat "+outer+" "+inner, "outerinner")
	s.expect("echo x > "+outer, "…Read-only file system")
	s.expect("printf x > "+inner+" && cat "+inner, "x")
	h.revoke(a)
	s.show()
	s.expect("cat "+outer, "…No such file or directory")
	s.expect("cat "+inner, "x")
	h.grant(a, profile.ReadOnly)
	s.show()
	h.revoke(c)
	s.show()
	s.expect("printf y > "+inner, "…Read-only file system")
	s.expect("cat "+outer, "outer")
	h.revoke(a)
	s.show()
	s.expect("cat "+inner, "…No such file or directory")
}

// The workspace below is the same mount as before: a command that works in it notices nothing.
func TestTheWorkspaceStaysWhatItIsBelowALiveGrant(t *testing.T) {
	h := newHost(t)
	h.profile.Workspace = h.mkdir(h.outside() + "/project/work")
	h.profile.WorkingDirectory = h.profile.Workspace
	h.profile.Grants = []profile.Grant{{Path: h.profile.Workspace, Access: profile.ReadWrite, Origin: profile.Origin{Kind: profile.OriginWorkspace}}}
	file := h.write(h.outside()+"/project/beside", "text")
	home := filepath.Dir(file)
	s := h.liveShell()
	s.expect("echo kept > mine; pwd", h.profile.Workspace)
	h.grant(home, profile.ReadOnly)
	s.show()
	s.expect("cat "+file, "text")
	s.expect("pwd; cat "+h.profile.Workspace+"/mine; /bin/pwd", h.profile.Workspace+"\nkept\n"+h.profile.Workspace)
	s.expect("echo again > "+h.profile.Workspace+"/mine; cat mine", "again")
	h.revoke(home)
	s.show()
	s.expect("cat "+file, "…No such file or directory")
	s.expect("/bin/pwd; cat mine", h.profile.Workspace+"\nagain")
}

func TestWhatACommandStillHoldsIsTold(t *testing.T) {
	h := newHost(t)
	dir := h.mkdir(h.outside() + "/data")
	h.write(h.outside()+"/data/file", "content")
	s := h.liveShell()
	h.grant(dir, profile.ReadOnly)
	if notices := s.show(); len(notices) > 0 {
		t.Errorf("%v", notices)
	}
	s.expect("cd "+dir+" && cat file", "content")
	s.sh("exec 5<" + dir)
	h.revoke(dir)
	notices := s.show()
	if landlock.ABI() >= landlock.FilesABI { // nothing more can be opened from where it stands
		s.expect("cat file", "…Permission denied")
		s.expect("cat /proc/self/fd/5/file", "…Permission denied")
		s.expect("ls .", "…Permission denied")
	}
	if len(notices) != 1 || notices[0].Kind != NoticeHeld {
		t.Errorf("%v", notices)
	}
}

// A shell that stands in a directory which becomes read-only can write it no more.
func TestWhatBecomesReadOnlyIsSoForWhoeverIsInIt(t *testing.T) {
	h := newHost(t)
	dir := h.mkdir(h.outside() + "/data")
	s := h.liveShell()
	h.grant(dir, profile.ReadWrite)
	s.show()
	s.expect("cd "+dir+" && echo x > file && cat file", "x")
	h.revoke(dir)
	h.grant(dir, profile.ReadOnly)
	s.show()
	s.expect("echo y > file", "…Read-only file system")
}

func TestAnotherObjectThanWasAllowedIsNotMountedLive(t *testing.T) {
	h := newHost(t)
	dir := h.mkdir(h.outside() + "/data")
	h.write(h.outside()+"/data/file", "content")
	s := h.liveShell()
	h.profile.Grants = append(h.profile.Grants, profile.Grant{Path: dir, Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginApproval},
		Expected: &profile.Expected{Path: dir, Device: 1, Inode: 1}})
	_, err := s.live.Show(context.Background(), h.profile)
	var failed *LiveError
	if !errors.As(err, &failed) || !errors.Is(err, descriptor.ErrReplaced) && !strings.Contains(err.Error(), "something else stands") {
		t.Errorf("%v", err)
	}
	s.expect("ls "+dir, "…No such file or directory")
}

func TestALinkInThePlaceOfADirectoryIsNotFollowedLive(t *testing.T) {
	h := newHost(t)
	h.write(h.outside()+"/elsewhere/file", "secret")
	dir := h.mkdir(h.outside() + "/data")
	s := h.liveShell()
	s.sh("true")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	h.symlink("elsewhere", dir)
	h.profile.Grants = append(h.profile.Grants, profile.Grant{Path: dir, Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginApproval},
		Expected: &profile.Expected{Path: dir}})
	if notices := s.show(); len(notices) != 1 {
		t.Errorf("%v", notices)
	}
	s.expect("cat "+dir+"/file", "…No such file or directory")
}

func TestShowSaysWhenTheSandboxHasEnded(t *testing.T) {
	h := newHost(t)
	dir := h.mkdir(h.outside() + "/data")
	s := h.liveShell()
	s.sh("true")
	s.in.Close()
	<-s.ended
	s.ended <- nil
	h.grant(dir, profile.ReadOnly)
	if _, err := s.live.Show(context.Background(), h.profile); !errors.Is(err, ErrNotLive) {
		t.Errorf("%v", err)
	}
	if _, err := (&Live{}).Show(canceled(), h.profile); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// outside is a directory that nothing grants, the same one for a test.
func (h *host) outside() string {
	if h.other == "" {
		h.other = newDirectory(h.t)
	}
	return h.other
}

// What hides and what is hidden come in one move: there is no moment in which a command could look.
func TestALiveGrantNeverShowsWhatItHides(t *testing.T) {
	h := newHost(t)
	secret := h.write(h.outside()+"/data/keys/secret", "key")
	token := h.write(h.outside()+"/data/token", "token")
	dir := filepath.Dir(token)
	h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: filepath.Dir(secret)}, profile.HiddenPath{Path: token})
	s := h.liveShell()
	s.sh("(while [ ! -e stop ]; do cat " + secret + " " + token + " >> leak 2>/dev/null; done) & true")
	for i := range 60 {
		h.grant(dir, []profile.Access{profile.ReadOnly, profile.ReadWrite}[i%2])
		s.show()
		h.revoke(dir)
		s.show()
	}
	s.expect("touch stop; wait; cat leak", "")
}

// What leads to a grant below the command's own /tmp is a mount, and nothing that the command could
// move, with its own directory in the place of it.
func TestWhatLeadsToAGrantInTmpStaysWhereItIs(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "clai-sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shuttest.RemoveAll(base) })
	h := newHost(t)
	first, second := filepath.Dir(h.write(base+"/first/data/file", "one")), filepath.Dir(h.write(base+"/second/data/file", "two"))
	h.grant(first, profile.ReadOnly)
	s := h.liveShell()
	s.expect("cat "+first+"/file", "one")
	h.grant(second, profile.ReadOnly)
	s.show()
	s.expect("cat "+second+"/file", "two")
	for _, dir := range []string{base + "/first", base + "/second", base} {
		if said := s.sh("mv " + dir + " " + base + "-moved"); !strings.Contains(said, "busy") && !strings.Contains(said, "Read-only") && !strings.Contains(said, "cross-device") {
			t.Errorf("mv %s: %q", dir, said)
		}
	}
	h.revoke(second)
	s.show()
	s.expect("cat "+second+"/file", "…No such file or directory")
	s.expect("cat "+first+"/file", "one")
	h.revoke(first)
	s.show()
	s.expect("cat "+first+"/file", "…No such file or directory")
	s.expect("echo x > /tmp/own && cat /tmp/own", "x")
}

// As long as something inside has a file open for writing, the kernel does not make a mount
// read-only. Who has is ended; and where nobody can be found, the sandbox.
func TestWhatCannotBeTakenAwayEndsTheSandbox(t *testing.T) {
	needProgram(t, "python3")
	h := newHost(t)
	dir := h.mkdir(h.outside() + "/data")
	h.grant(dir, profile.ReadWrite)
	s := h.liveShell()
	s.expect("(exec 7>"+dir+"/held; echo $$ > ready; exec sleep 1000) & until [ -s ready ]; do sleep 0.01; done", "")
	h.revoke(dir)
	notices := s.show()
	if !slices.ContainsFunc(notices, func(n Notice) bool { return n.Kind == NoticeHeld && strings.Contains(n.Text, "was ended") }) {
		t.Errorf("%v", notices)
	}
	s.expect("ls "+dir, "…No such file or directory")

	h.grant(dir, profile.ReadWrite)
	s.show()
	s.expect(`python3 -c 'import mmap, time
f = open("`+dir+`/mapped", "w+b"); f.write(b"x"); f.flush(); m = mmap.mmap(f.fileno(), 1); f.close()
import os; os.closerange(3, 100); open("mapped", "w").write("x"); time.sleep(1000)' 2>err & until [ -s mapped ]; do sleep 0.01; done`, "")
	h.revoke(dir)
	if _, err := s.live.Show(context.Background(), h.profile); err == nil || !strings.Contains(err.Error(), "so the sandbox was ended") {
		t.Errorf("%v", err)
	}
	s.expectEnd(dir)
}

// expectEnd expects that the sandbox was ended because a path could not be taken away, and that its
// result says so.
func (s *liveShell) expectEnd(path string) {
	s.t.Helper()
	select {
	case err := <-s.ended:
		if err != nil || !slices.ContainsFunc(s.told, func(n Notice) bool { return n.Path == path && strings.Contains(n.Text, "so the sandbox was ended") }) {
			s.t.Errorf("%+v, %v", s.told, err)
		}
		s.ended <- nil
	case <-time.After(10 * time.Second):
		s.t.Error("it runs on")
	}
}

// mistake makes what is unmounted be one mount, and what has to be gone another one.
func (s *liveShell) mistake(unmounted, gone string) {
	at := func(path string) layer {
		return s.live.layers[slices.IndexFunc(s.live.layers, func(l layer) bool { return l.path == path })]
	}
	wrong := at(unmounted).mounted[unmounted]
	wrong.ID = at(gone).mounted[gone].ID
	at(unmounted).mounted[unmounted] = wrong
}

// The kernel's word that something was unmounted is not believed: if the mount is still in the list
// of mounts, the sandbox is ended.
func TestWhatIsNotProvedGoneEndsTheSandbox(t *testing.T) {
	h := newHost(t)
	first, second := h.mkdir(h.outside()+"/first"), h.mkdir(h.outside()+"/second")
	s := h.liveShell()
	h.grant(first, profile.ReadOnly)
	h.grant(second, profile.ReadOnly)
	s.show()
	s.expect("ls -d "+first, first)
	s.mistake(first, second)
	h.revoke(first)
	if _, err := s.live.Show(context.Background(), h.profile); err == nil || !strings.Contains(err.Error(), "so the sandbox was ended") {
		t.Errorf("%v", err)
	}
	s.expectEnd(first)
}

// What is put in the place of something is proved to be there alone, too.
func TestWhatIsNotProvedReplacedEndsTheSandbox(t *testing.T) {
	h := newHost(t)
	first, second := h.mkdir(h.outside()+"/first"), h.mkdir(h.outside()+"/second")
	s := h.liveShell()
	h.grant(first, profile.ReadWrite)
	h.grant(second, profile.ReadOnly)
	s.show()
	s.mistake(first, second)
	h.revoke(first)
	h.grant(first, profile.ReadOnly)
	if _, err := s.live.Show(context.Background(), h.profile); err == nil || !strings.Contains(err.Error(), "so the sandbox was ended") {
		t.Errorf("%v", err)
	}
	s.expectEnd(first)
}

// A grant that arrives before the command has begun waits: until then the trampoline enters the
// working directory and makes the rules of the Landlock layer, for what is mounted at that moment.
// Its report's other end is closed when it has become the command.
func TestAGrantThatArrivesBeforeTheCommandHasBegunWaits(t *testing.T) {
	// As bwrap, pid 1 inside, and the trampoline are: each the other's only child.
	out, said, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	tree, err := process.Start("/bin/sh", []string{"sh", "-c", "/bin/sh -c '/bin/sleep 1000 & echo; wait' & wait"}, Stdio{Out: said}, nil, &syscall.SysProcAttr{Setpgid: true})
	said.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Wait()
	defer syscall.Kill(-tree.PID(), syscall.SIGKILL)
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	read, write, err := descriptor.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	live := &Live{}
	live.begin(&attempt{plan: &Plan{}, report: read, ended: make(chan struct{}), process: tree})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := live.running(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before: %v", err)
	}
	write.Close()
	if init, err := live.running(context.Background()); err != nil || init != process.Children(tree.PID())[0] {
		t.Errorf("after: %d, %v", init, err)
	}
}

// What was put together for the sandbox does not stay mounted in the mounter: a layer, for one, may
// be the next sandbox's.
func TestNothingStaysWhereTreesArePutTogether(t *testing.T) {
	h := newHost(t)
	secret := h.write(h.outside()+"/data/secret", "key")
	h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: secret})
	h.grant(filepath.Dir(secret), profile.ReadWrite)
	s := h.liveShell()
	s.expect("cat "+secret, "")
	stage := func() (list []string) {
		for _, pid := range process.Children(os.Getpid()) {
			command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if string(command) != "mounter\x00" {
				continue
			}
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
			for line := range strings.Lines(string(text)) {
				if place := strings.Fields(line)[4]; strings.HasPrefix(place, "/proc/t") {
					list = append(list, place)
				}
			}
		}
		return list
	}
	for end := time.Now().Add(5 * time.Second); len(stage()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%v", stage())
		}
	}
}

// A stream is open for what it is open for, and leads nowhere.
func TestALiveSandboxHasNoWayOutByAStream(t *testing.T) {
	if landlock.ABI() < landlock.FilesABI {
		t.Skip("this kernel's Landlock cannot lock files")
	}
	h := newHost(t)
	secret := h.write(h.outside()+"/secret", "content")
	file, err := os.Open(secret)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	h.launcher.Live = &Live{}
	var out bytes.Buffer
	if _, err := h.launcher.Run(context.Background(), h.build(), []string{"/bin/sh", "-c", "cat; echo changed > /proc/self/fd/0; echo changed > /dev/stdin; true"}, Stdio{In: file, Out: &out}); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(secret); string(text) != "content" || out.String() != "content" {
		t.Errorf("%s, %s", text, out.String())
	}
}

// As for a grant that is there from the beginning: what is executed outside and was made is told.
func TestWhatIsMadeInALiveGrantIsTold(t *testing.T) {
	h := newHost(t)
	dir := h.mkdir(h.outside() + "/data")
	s := h.liveShell()
	h.grant(dir, profile.ReadWrite)
	s.show()
	s.expect("mkdir "+dir+"/.vscode && echo x > "+dir+"/.vscode/tasks.json", "")
	s.in.Close()
	<-s.ended
	s.ended <- nil
	if !slices.ContainsFunc(s.told, func(n Notice) bool { return n.Kind == NoticeProtected && strings.HasPrefix(n.Path, dir+"/.vscode") }) {
		t.Errorf("%v", s.told)
	}
}

func TestASandboxWithNamespacesOfItsOwnIsNotLive(t *testing.T) {
	h := newHost(t)
	h.profile.NestedNamespaces = true
	h.launcher.Live = &Live{}
	var setup *SetupError
	if _, err := h.launcher.Run(context.Background(), h.build(), []string{"/bin/true"}, Stdio{}); !errors.As(err, &setup) {
		t.Errorf("%v", err)
	}
	if CanBeLive(h.profile) == "" {
		t.Error("it says that it can be")
	}
}

// Whatever came and went before, a live sandbox shows what a new one of the same profile would.
func TestALiveSandboxShowsWhatANewOneWould(t *testing.T) {
	for _, seed := range []uint64{0, 1, 2, 3, 4, 5, 30, 101, 108, 189} { // some that found something
		random := rand.New(rand.NewPCG(seed, 1))
		h := newHost(t)
		base := h.outside()
		var dirs, files []string
		for _, dir := range []string{"a", "a/b", "a/b/c", "a/d", "e", "e/f", "work/x"} {
			dirs = append(dirs, h.mkdir(base+"/"+dir))
			files = append(files, h.write(base+"/"+dir+"/file", dir))
		}
		if seed%3 == 0 { // something of the sandbox's own below what may be granted
			h.profile.Workspace = base + "/a/d"
			h.profile.WorkingDirectory = h.profile.Workspace
			h.profile.Grants = []profile.Grant{{Path: h.profile.Workspace, Access: profile.ReadWrite, Origin: profile.Origin{Kind: profile.OriginWorkspace}}}
		}
		for _, path := range append(dirs, files...) {
			if random.IntN(6) == 0 {
				h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: path})
			}
		}
		always := slices.Clone(h.profile.Grants)
		choose := func() {
			h.profile.Grants = slices.Clone(always)
			for _, path := range append(dirs, files...) {
				if random.IntN(4) == 0 {
					g := profile.Grant{Path: path, Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginApproval}}
					if random.IntN(2) == 0 {
						g.Access = profile.ReadWrite
					}
					h.profile.Grants = append(h.profile.Grants, g)
				}
			}
			slices.SortStableFunc(h.profile.Grants, func(a, b profile.Grant) int { return depth(a.Path) - depth(b.Path) })
		}
		// What a grant for a file that is hidden by an empty one shows is told from it by its
		// length.
		probe := "for f in " + strings.Join(files, " ") + "; do r=-; w=-; [ -s $f ] && r=r && [ -w $f ] && w=w; echo $r$w; done"
		choose()
		s := h.liveShell()
		s.live.gap = seed%2 == 0
		for step := range 12 {
			choose()
			if _, err := s.live.Show(context.Background(), h.profile); err != nil {
				ended := <-s.ended
				s.ended <- ended
				t.Fatalf("seed %d, step %d: %v: %v, %v", seed, step, h.profile.Grants, err, ended)
			}
			got, want := s.sh(probe), strings.TrimSpace(h.sh(probe))
			if got != want {
				t.Fatalf("seed %d, step %d: %v, hidden %v: live\n%s\nnew\n%s", seed, step, h.profile.Grants, h.profile.Hidden, got, want)
			}
		}
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func BenchmarkAGrantReachesARunningSandbox(b *testing.B) {
	h := newHost(b)
	dir := h.mkdir(h.outside() + "/data")
	s := h.liveShell()
	s.sh("true")
	var came, went []time.Duration
	for b.Loop() {
		began := time.Now()
		h.grant(dir, profile.ReadOnly)
		s.show()
		came = append(came, time.Since(began))
		h.revoke(dir)
		s.show()
		went = append(went, time.Since(began)-came[len(came)-1])
	}
	for name, took := range map[string][]time.Duration{"in": came, "out": went} {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/"+name)
		b.ReportMetric(float64(took[0].Microseconds())/1000, "ms/"+name+"-min")
	}
}

func TestWhatCouldNotBeLessenedIsTold(t *testing.T) {
	for access, want := range map[profile.Access]string{profile.NoAccess: "taken away", profile.ReadOnly: "made read_only", profile.CopyOnWrite: "made copy_on_write"} {
		if got := lessened(access); got != want {
			t.Errorf("%v: %q", access, got)
		}
	}
}

// What the settings of a repository name that is granted while the command runs is set aside there
// as well.
func TestWhatIsAwaitedInALiveGrantIsSetAside(t *testing.T) {
	h := newHost(t)
	dir := h.repository(h.outside() + "/project")
	h.git(dir, "config", "core.hooksPath", ".gh")
	h.mkdir(dir + "/scripts")
	h.symlink("../../scripts/hook", dir+"/.git/hooks/pre-commit")
	s := h.liveShell()
	h.grant(dir, profile.ReadWrite)
	s.show()
	s.expect("cd "+dir+"; mkdir .gh; echo x > .gh/pre-commit; echo x > scripts/hook; echo made", "made")
	for _, path := range []string{"/.gh/pre-commit", "/scripts/hook"} {
		waitUntil(t, "it is set aside: "+path, func() bool { _, err := os.Lstat(dir + path); return err != nil })
	}
}
