package socket

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process is known for a descendant also where its parent has ended, and it has left session and
// group.
func TestADescendantIsKnownHoweverItWasStarted(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"a child":      "echo $$; exec sleep 60",
		"a grandchild": "sh -c 'echo $$; exec sleep 60'; true",
		"an orphan":    "(setsid sh -c 'echo $$; exec sleep 60' &) & wait",
	} {
		command := exec.Command("sh", "-c", script)
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		pid, other := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || other != nil {
			t.Fatal(err, other)
		}
		if name == "an orphan" {
			command.Process.Wait()
		}
		if is, err := Descends(pid, os.Getpid()); !is || err != nil {
			t.Errorf("%s: %v, %v", name, is, err)
		}
		process, _ := os.FindProcess(pid)
		process.Kill()
		command.Process.Kill()
		command.Process.Wait()
		process.Wait()
		if _, err := Descends(pid, os.Getpid()); err == nil {
			t.Errorf("%s: told of one that has ended", name)
		}
	}
	if is, err := Descends(os.Getppid(), os.Getpid()); is || err != nil {
		t.Errorf("its own parent: %v, %v", is, err)
	}
}

// Whoever can add parents, hide one or take what it needs to look at them from this process is not
// taken for somebody else.
func TestParentsThatCannotBeToldMakeNobodyElse(t *testing.T) {
	is := func(pid int, err error) func(int) (int, error) { return func(int) (int, error) { return pid, err } }
	for name, c := range map[string]struct {
		from   func(pid int) (int, error) // of the caller, which is 10,000
		is     bool
		failed bool
	}{
		"a child of the ancestor":   {is(3, nil), true, false},
		"a child of another":        {is(4, nil), false, false},
		"one that has ended":        {is(0, unix.ESRCH), false, true},
		"one that is hidden itself": {is(0, errHidden), false, true},
		"as many parents as are followed": {func(pid int) (int, error) {
			if pid == 10_000-maxGenerations+2 {
				return 3, nil
			}
			return pid - 1, nil
		}, true, false},
		"one more": {func(pid int) (int, error) {
			if pid == 10_000-maxGenerations+1 {
				return 3, nil
			}
			return pid - 1, nil
		}, false, true},
		"parents without end": {func(pid int) (int, error) { return pid + 1, nil }, false, true},
		"no descriptor is left for the second look": {func(pid int) (int, error) {
			if pid == 10_000 {
				return 9_999, nil
			}
			return 0, unix.EMFILE
		}, false, true},
		"a parent that is hidden": {func(pid int) (int, error) {
			if pid == 10_000 {
				return 9_999, nil
			}
			return 0, errHidden
		}, false, false},
	} {
		got, err := descends(10_000, func(pid int) (int, error) {
			if pid <= 4 {
				return 0, nil
			}
			return c.from(pid)
		}, []int{3})
		if got != c.is || (err != nil) != c.failed {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestTheParentOfAHiddenProcessIsKnown(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	parent, err := hiddenParentOf(child.Process.Pid)
	if err != errHidden && (err != nil || parent != os.Getpid()) { // before Linux 6.13 it is not
		t.Errorf("%d, %v", parent, err)
	}
	child.Process.Kill()
	child.Wait()
	if parent, err := hiddenParentOf(child.Process.Pid); err == nil || err == errHidden {
		t.Errorf("of one that has ended: %d, %v", parent, err)
	}
}

// Whom admit does not want is told why, and takes no room.
func TestAGuardTurnsAwayWhomItIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	wanted := make(chan bool, 8)
	g := Guard(l, "", 1, func(p Peer) error {
		if p.PID == os.Getpid() && <-wanted {
			return nil
		}
		return errors.New("not wanted")
	})
	g.Refusal = func(why error) []byte { return []byte("out: " + why.Error()) }
	defer g.CloseAll()
	go func() {
		for {
			conn, err := g.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("in"))
			conn.Close()
		}
	}()
	for _, want := range []bool{false, false, true} {
		wanted <- want
		wantText := map[bool]string{true: "in", false: "out: not wanted"}[want]
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		if !want {
			conn.Write([]byte("a request"))
		}
		text, _ := bufio.NewReader(conn).ReadString(0)
		if text != wantText {
			t.Errorf("%q, want %q", text, wantText)
		}
		if want {
			conn.Close()
		} else {
			defer conn.Close() // who is refused and stays takes no room
		}
	}
}

func TestMain(m *testing.M) {
	if path := os.Getenv("CONNECT_AND_LEAVE"); path != "" {
		os.Exit(connectAndLeave(path))
	}
	os.Exit(m.Run())
}

// connectAndLeave hands its connection to a process that stays, which has been let in nowhere.
func connectAndLeave(path string) int {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return 1
	}
	file, err := conn.File()
	if err != nil {
		return 1
	}
	stays := exec.Command("sleep", "60")
	stays.ExtraFiles = []*os.File{file}
	if stays.Start() != nil {
		return 1
	}
	os.Stdout.WriteString(strconv.Itoa(stays.Process.Pid))
	return 0
}

// Its number may be another's by the time that it is looked at, and what it handed the connection
// to would be taken for that.
func TestWhoHasConnectedAndEndedIsNotLetIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	g := Guard(l, "", 4, func(Peer) error { return nil })
	defer g.CloseAll()
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), "CONNECT_AND_LEAVE="+path)
	text, err := other.Output()
	stays, wrong := strconv.Atoi(string(text))
	if err != nil || wrong != nil {
		t.Fatalf("%q: %v", text, err)
	}
	defer unix.Kill(stays, unix.SIGKILL)
	alive, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	conn, err := g.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if peer, err := PeerOf(conn.(*guardedConn).Conn); err != nil || peer.PID != os.Getpid() {
		t.Errorf("%+v was let in: %v", peer, err)
	}
}
