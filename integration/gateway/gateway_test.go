package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/outside/door"
	"github.com/clairun/clai-sandbox/profile"
)

const timeout = 20 * time.Second

// The test binary is also the gateways that the tests start and kill.
func TestMain(m *testing.M) {
	if os.Getenv("GATEWAY_TEST_ROLE") == "" {
		os.Exit(m.Run())
	}
	if role, isCampaign := strings.CutPrefix(os.Getenv("GATEWAY_TEST_ROLE"), "campaign"); isCampaign {
		if err := runCampaign(role != ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	caller, err := profile.CurrentCaller()
	if err != nil {
		panic(err)
	}
	if os.Getenv("GATEWAY_TEST_ROLE") == "asks" {
		_, err := (&client.Client{Socket: os.Args[1]}).Status(context.Background())
		fmt.Println(err)
		os.Exit(0)
	}
	listener, err := Passed()
	if err == nil {
		idle, _ := time.ParseDuration(os.Getenv("GATEWAY_TEST_IDLE"))
		err = Run(context.Background(), Options{Directories: caller.Directories(), Home: caller.Home, User: caller.User, Version: "test", Idle: idle, Listener: listener})
	}
	var running *RunningError
	if errors.As(err, &running) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// place is a home for gateways.
type place struct {
	home string
	d    profile.Directories
}

func newPlace(t *testing.T) place {
	t.Helper()
	// A short name: the address of a socket has little room.
	home, err := os.MkdirTemp("", "g")
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	for name, dir := range map[string]string{"HOME": home, "XDG_CONFIG_HOME": home + "/config", "XDG_STATE_HOME": home + "/state", "XDG_RUNTIME_DIR": home + "/run"} {
		t.Setenv(name, dir)
	}
	os.Mkdir(home+"/run", 0o700)
	t.Setenv("GATEWAY_TEST_ROLE", "gateway")
	caller, err := profile.CurrentCaller()
	if err != nil {
		t.Fatal(err)
	}
	p := place{home, caller.Directories()}
	t.Cleanup(func() { p.stop(t) })
	return p
}

func (p place) socket() string {
	return filepath.Join(grants.SocketDirectory(p.d), grants.SocketName)
}

// client starts gateways on demand.
func (p place) client() *client.Client {
	return &client.Client{Socket: p.socket(), Start: client.Starter{Program: os.Args[0], Socket: p.socket(), Log: p.d.State + "/gateway.log"}.Start}
}

// pid is the gateway's that answers, or 0.
func (p place) pid() int {
	s, err := (&client.Client{Socket: p.socket()}).Status(context.Background())
	if err != nil {
		return 0
	}
	return s.PID
}

// stop ends the gateway, and those that waited for its end. Each has the log open that its starter
// gave it.
func (p place) stop(t *testing.T) {
	eventually(t, "all gateways of the test are gone", func() bool {
		gone := true
		outputs, _ := filepath.Glob("/proc/[0-9]*/fd/2")
		for _, output := range outputs {
			if log, err := os.Readlink(output); err != nil || log != p.d.State+"/gateway.log" {
				continue
			}
			gone = false
			if pid, err := strconv.Atoi(strings.Split(output, "/")[2]); err == nil {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return gone
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", timeout, what)
		}
	}
}

func (p place) add(t *testing.T, c *client.Client, name string) grants.Grant {
	t.Helper()
	g, err := c.Add(t.Context(), grants.NewGrant{Agent: "main", Path: p.home + "/" + name, Access: profile.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestAGatewayIsStartedOnDemandAndAgainAfterAKill(t *testing.T) {
	p := newPlace(t)
	c := p.client()
	var want []string
	for i := range 5 {
		g := p.add(t, c, fmt.Sprint("file", i))
		want = append(want, g.ID)
		pid := p.pid()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		all, err := c.Grants(t.Context())
		if err != nil || len(all) != len(want) {
			t.Fatalf("after a kill: %+v, %v; want %v", all, err, want)
		}
		if p.pid() == pid {
			t.Fatal("it is the same one")
		}
	}
}

func TestOfManyThatStartAtOnceOneIsLeft(t *testing.T) {
	p := newPlace(t)
	var all sync.WaitGroup
	pids := make([]int, 8)
	for i := range pids {
		all.Go(func() {
			s, err := p.client().Status(t.Context())
			if err != nil {
				t.Error(err)
			}
			pids[i] = s.PID
		})
	}
	all.Wait()
	for _, pid := range pids {
		if pid != pids[0] {
			t.Errorf("several answer: %v", pids)
		}
	}
}

// A gateway is for one state directory; whoever has another is not served by it.
func TestTwoStateDirectoriesHaveTwoGateways(t *testing.T) {
	p := newPlace(t)
	p.add(t, p.client(), "file")
	first := p.socket()
	for name, variable := range map[string]string{"XDG_STATE_HOME": p.home + "/state2", "HOME": p.home + "/home2"} {
		t.Run(name, func(t *testing.T) {
			if name == "HOME" {
				t.Setenv("XDG_STATE_HOME", "")
			}
			t.Setenv(name, variable)
			caller, err := profile.CurrentCaller()
			if err != nil {
				t.Fatal(err)
			}
			other := place{p.home, caller.Directories()}
			t.Cleanup(func() { other.stop(t) })
			if other.socket() == first {
				t.Fatal("one socket for both")
			}
			if all, err := other.client().Grants(t.Context()); err != nil || len(all) != 0 {
				t.Errorf("%v, %v", all, err)
			}
			other.add(t, other.client(), "another")
			if other.pid() == p.pid() {
				t.Error("one gateway for both")
			}
		})
	}
	if all, err := p.client().Grants(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

// A sandbox that was made for another state or runtime directory may show the socket, and what runs
// in it has the person's user.
func TestNobodyInAnotherNamespaceIsThePerson(t *testing.T) {
	p := newPlace(t)
	p.add(t, p.client(), "file")
	t.Setenv("GATEWAY_TEST_ROLE", "asks")
	for name, c := range map[string]struct {
		flags uintptr
		want  string
	}{
		"the person's own": {0, `^<nil>\n$`},
		"a user namespace": {syscall.CLONE_NEWUSER, `^the gateway does not answer this process: process \d+ is in another user namespace, as one in a sandbox is; leave toolbox, .*\n$`},
		"a sandbox":        {syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, `^the gateway does not answer this process: process \d+ is in another (mount|user) namespace, as one in a sandbox is; leave`},
	} {
		asks := exec.Command(os.Args[0], p.socket())
		if c.flags != 0 {
			asks.SysProcAttr = &syscall.SysProcAttr{Cloneflags: c.flags,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}}
		}
		if out, err := asks.CombinedOutput(); !regexp.MustCompile(c.want).Match(out) || err != nil {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
}

func TestTheSecondGatewayEndsWithoutAFailure(t *testing.T) {
	p := newPlace(t)
	if _, err := p.client().Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(os.Args[0]).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "answers already") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestAGatewayThatNobodyNeedsEnds(t *testing.T) {
	p := newPlace(t)
	t.Setenv("GATEWAY_TEST_IDLE", "300ms")
	c := p.client()
	s, err := c.Open(t.Context(), grants.SessionSpec{Agent: "main", Workspace: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	pid := p.pid()
	<-time.After(700 * time.Millisecond) // longer than it would wait for nobody
	if syscall.Kill(pid, 0) != nil {
		t.Error("it ended while a session was open")
	}
	s.Close()
	eventually(t, "the gateway ends", func() bool { _, err := os.Stat(p.socket()); return err != nil })
	if g := p.add(t, c, "file"); g.ID == "" {
		t.Error("no new one")
	}
	if now := p.pid(); now == pid {
		t.Error("it is the same one")
	}
}

// A client that comes just when a gateway ends finds another one.
func TestNobodyIsTurnedAwayByAGatewayThatEnds(t *testing.T) {
	p := newPlace(t)
	t.Setenv("GATEWAY_TEST_IDLE", "20ms")
	c := p.client()
	seen := map[int]bool{}
	for i := range 60 {
		s, err := c.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen[s.PID] = true
		<-time.After(time.Duration(15+i%20) * time.Millisecond) // about as long as it stays
	}
	if len(seen) < 2 {
		t.Error("none ended: the test tries nothing")
	}
}

func TestSystemdMayHandOverTheSocket(t *testing.T) {
	p := newPlace(t)
	path := p.home + "/passed.sock"
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	// LISTEN_PID has to be that of the process, which only a shell that becomes it can say.
	command := exec.Command("sh", "-c", `LISTEN_FDS=1 LISTEN_PID=$$ exec "$0"`, os.Args[0])
	command.ExtraFiles = []*os.File{file}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	file.Close()
	defer command.Wait()
	defer command.Process.Kill()
	s, err := (&client.Client{Socket: path}).Status(t.Context())
	if err != nil || s.PID != command.Process.Pid {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := os.Stat(p.socket()); err == nil {
		t.Error("it made a socket of its own as well")
	}
}

func TestADamagedDatabaseIsToldToWhoeverAsks(t *testing.T) {
	p := newPlace(t)
	c := p.client()
	p.add(t, c, "file")
	syscall.Kill(p.pid(), syscall.SIGKILL)
	os.WriteFile(p.d.State+"/"+grants.DatabaseName, []byte(strings.Repeat("x", 1<<16)), 0o600)
	s, err := c.Status(t.Context())
	if err != nil || len(s.Notices) != 1 || s.Notices[0].Kind != grants.NoticeStore {
		t.Errorf("%+v, %v", s, err)
	}
	if all, err := c.Grants(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestAGatewayThatCannotStartSaysWhy(t *testing.T) {
	p := newPlace(t)
	os.MkdirAll(p.d.State, 0o700)
	os.Mkdir(p.d.State+"/"+grants.DatabaseName, 0o700)
	_, err := p.client().Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), grants.DatabaseName) {
		t.Errorf("%v", err)
	}
}

// The directory of the containers' socket is shown to containers: whatever one puts there, a
// gateway starts.
func TestWhateverAContainerPutsAtItsSocketAGatewayStarts(t *testing.T) {
	for name, c := range map[string]struct {
		put  func(path string) error
		door bool // it is there all the same
	}{
		"a file":      {func(path string) error { return os.WriteFile(path, nil, 0o600) }, true},
		"a directory": {func(path string) error { return os.MkdirAll(path+"/in", 0o700) }, true},
		"a link":      {func(path string) error { return os.Symlink("/etc/passwd", path) }, true},
		"no directory": {func(path string) error {
			return errors.Join(os.Remove(filepath.Dir(path)), os.WriteFile(filepath.Dir(path), nil, 0o600))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			socket := filepath.Join(grants.SocketDirectory(p.d), door.SocketName)
			if err := errors.Join(os.MkdirAll(filepath.Dir(socket), 0o700), c.put(socket)); err != nil {
				t.Fatal(err)
			}
			s, err := p.client().Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(socket)
			if is := err == nil && info.Mode() == os.ModeSocket|0o600; is != c.door {
				t.Errorf("the socket: %v, %v", info, err)
			}
			if told := slices.ContainsFunc(s.Notices, func(n grants.Notice) bool { return n.Kind == NoticeDoor }); told == c.door {
				t.Errorf("told %v", s.Notices)
			}
		})
	}
}

// Whatever stands in the place of a file of ours, a gateway starts, and what was granted can be
// taken away.
func TestWhateverStandsInTheStateDirectoryAPersonCanRevoke(t *testing.T) {
	makes := map[string]func(path string) error{
		"a directory":                  func(path string) error { return os.MkdirAll(path+"/in", 0o700) },
		"a pipe":                       func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link to nowhere":            func(path string) error { return os.Symlink("/nowhere", path) },
		"a file that may not be read":  func(path string) error { return os.WriteFile(path, []byte("x\n"), 0) },
		"a link to something endless":  func(path string) error { return os.Symlink("/dev/zero", path) },
		"a file with nothing in it":    func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a very large file of nothing": func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
	}
	p := newPlace(t)
	if err := os.WriteFile(p.home+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"gateway.lock", "gateway.log", grants.UsesName, grants.UsesName + ".taken", "audit.log", grants.SnapshotName, "runs"} {
		for name, make := range makes {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			g := p.add(t, p.client(), "file")
			syscall.Kill(p.pid(), syscall.SIGKILL)
			if err := errors.Join(os.RemoveAll(filepath.Join(p.d.State, file)), make(filepath.Join(p.d.State, file))); err != nil {
				t.Fatal(err)
			}
			grants.Current(p.d.State, "main", time.Now()) // as a run does
			if _, err := p.client().Revoke(ctx, g.ID); err != nil {
				t.Errorf("%s is %s: %v", file, name, err)
			}
			if list, err := p.client().Grants(ctx); err != nil || len(list) != 0 {
				t.Errorf("%s is %s: %+v, %v", file, name, list, err)
			}
			os.RemoveAll(filepath.Join(p.d.State, file))
			cancel()
			if pid := p.pid(); pid > 0 {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// What a session asked is withdrawn when the process that opened it is killed.
func TestASessionEndsWithItsProcess(t *testing.T) {
	p := newPlace(t)
	c := p.client()
	ctx, die := context.WithCancel(t.Context())
	s, err := c.Open(ctx, grants.SessionSpec{Agent: "main", Workspace: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	inside := client.Client{Socket: s.Socket}
	go inside.Ask(t.Context(), "", grants.Asking{Path: p.home + "/file", Access: profile.ReadOnly})
	waiting := func(n int) func() bool {
		return func() bool { list, err := c.Pending(t.Context()); return err == nil && len(list) == n }
	}
	eventually(t, "the request waits", waiting(1))
	die() // the connection goes, as the kernel closes that of a process that was killed
	eventually(t, "the request is withdrawn", waiting(0))
	eventually(t, "the socket of the session is gone", func() bool { _, err := os.Stat(s.Socket); return err != nil })
}
