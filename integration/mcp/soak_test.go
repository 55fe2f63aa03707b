package mcp

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/integration/mcp/files"
	"github.com/clairun/clai-sandbox/integration/rooms"
)

// Variables of make soak: how long, and the program.
const (
	soakFor     = "CLAI_SANDBOX_TEST_SOAK"
	soakProgram = "CLAI_SANDBOX_TEST_SOAK_PROGRAM"
)

// soakEvery is how often there is a call: 50 a second.
const soakEvery = time.Second / 50

// A weight is what a server takes, with all that it has started.
type weight struct{ memory, descriptors, processes, files int }

func (w weight) String() string {
	return fmt.Sprintf("%d KiB of memory, %d descriptors, %d processes, %d files", w.memory, w.descriptors, w.processes, w.files)
}

// weigh weighs a server whose files are below some directories.
func weigh(pid int, dirs ...string) (w weight) {
	list := append(descendants(pid), pid)
	w.memory, w.processes = memoryOf(list), len(list)
	for _, pid := range list {
		open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		w.descriptors += len(open)
	}
	for _, dir := range dirs {
		filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { w.files++; return nil })
	}
	return w
}

// Nothing grows in a session that goes on and on, and nothing is left of it.
func TestSoak(t *testing.T) {
	text := os.Getenv(soakFor)
	if text == "" {
		t.Skip("make soak DURATION=1h")
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t)
	if out, err := exec.Command("git", "-C", p.work, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	caller := p.options.Session.Caller
	cmd := exec.Command(os.Getenv(soakProgram), "mcp", "--no-broker")
	cmd.Dir, cmd.Env, cmd.Stderr = p.work, append([]string{"HOME=" + caller.Home, "USER=somebody", "SHELL=/bin/bash"}, caller.Environ...), os.Stderr
	session, err := sdk.NewClient(&sdk.Implementation{Name: "soak", Version: "1"}, nil).Connect(context.Background(), &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{p: p, session: session}
	calls := []func(i int) bool{
		func(i int) bool { return a.sh(fmt.Sprintf("echo %d", i)).Output == fmt.Sprintf("%d\n", i) },
		func(int) bool {
			r, failed := call[FileResult[files.WriteResult]](a, "write", files.Write{Path: "file", Content: "text"})
			return !failed && r.Error == nil
		},
		func(int) bool {
			r, _ := call[FileResult[files.ReadResult]](a, "read", files.Read{Path: "file"})
			return r.Result != nil && r.Result.Text == "text"
		},
		func(int) bool { return a.sh("cat file; sleep 0.01 >/dev/null 2>&1 & true").ran() },
		func(int) bool {
			r, _ := call[Result](a, "exec", Exec{Argv: []string{"cat", "file"}})
			return r.Output == "text"
		},
		func(i int) bool {
			if i%100 > 0 {
				return true
			}
			return a.sh(fmt.Sprintf("git config branch.main.description %d; exit 0", i)).ExitCode == 0
		},
		func(int) bool {
			r, _ := call[ProcessResult](a, "process", Process{Action: "start", Command: "true"})
			return len(r.Processes) == 1
		},
		func(int) bool {
			r, _ := call[FileResult[files.GrepResult]](a, "grep", files.Grep{Pattern: "te.t", Path: "file"})
			return r.Result != nil && len(r.Result.Matches) == 1
		},
	}
	dirs := []string{filepath.Join(caller.Directories().State, sittingsName), grants.SocketDirectory(caller.Directories()), p.work}
	var first, last weight
	began, done := time.Now(), 0
	tick := time.NewTicker(soakEvery)
	defer tick.Stop()
	for look := began.Add(duration / 5); time.Since(began) < duration; done++ {
		<-tick.C
		if !calls[done%len(calls)](done / len(calls)) {
			t.Fatalf("call %d went wrong", done)
		}
		if time.Now().After(look) {
			time.Sleep(time.Second) // what the last calls left ends
			last = weigh(cmd.Process.Pid, dirs...)
			t.Logf("after %v and %d calls: %v", time.Since(began).Round(time.Second), done+1, last)
			if first.memory == 0 {
				first = last
			}
			look = time.Now().Add(duration / 5)
		}
	}
	if last.memory > first.memory*5/4+4<<10 || last.descriptors > first.descriptors+8 || last.processes > first.processes+2 || last.files > first.files+4 {
		t.Errorf("it grew: at first %v\nat last %v", first, last)
	}
	if rate := float64(done) / time.Since(began).Seconds(); rate < 45 {
		t.Logf("this machine is too busy for 50 calls a second: %.0f", rate)
	}
	inside := descendants(cmd.Process.Pid)
	session.Close()
	for _, pid := range inside {
		p.until("nothing runs any more", func() bool { _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); return err != nil })
	}
	for _, dir := range []string{dirs[0], filepath.Join(dirs[1], rooms.Directory)} {
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
}

// Many clients at once: each has a sandbox of its own, which the person sees, and all end together.
func TestManySessionsAtOnce(t *testing.T) {
	p := newRoom(t)
	const many = 16
	dir := filepath.Join(grants.SocketDirectory(p.options.Session.Caller.Directories()), rooms.Directory)
	clientSessions := make([]*clientSession, many)
	var all sync.WaitGroup
	for i := range clientSessions {
		all.Go(func() {
			s, err := p.options.open(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			clientSessions[i] = s
			line := fmt.Sprintf("echo %d > /tmp/mine; cat /tmp/mine; for i in 1 2 3 4 5 6 7 8 9; do n=$(ps x | grep -c '[s]leep 98'); [ $n = 1 ] && break; sleep 0.1; done; echo $n", i)
			if r := s.runInShell(context.Background(), "sleep 98 >/dev/null 2>&1 & "+line, "", time.Minute); strings.TrimSpace(r.Output) != fmt.Sprintf("%d\n1", i) {
				t.Errorf("%+v", r)
			}
		})
	}
	all.Wait()
	if list, err := rooms.List(dir); err != nil || len(list) != many || list[0].Workspace != p.work || list[0].PID != os.Getpid() {
		t.Errorf("%+v, %v", list, err)
	}
	began := time.Now()
	for _, s := range clientSessions {
		if s != nil {
			all.Go(s.close)
		}
	}
	all.Wait()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("to end they took %v", took)
	}
	if list, err := rooms.List(dir); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}
