package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
)

// answersName is a program that allows whatever waits, if it is let.
const answersName = "answers"

// answers is run on the host by an agent, and would answer for the person.
func answers() int {
	c := &client.Client{Socket: os.Args[1]}
	list, err := c.Pending(context.Background())
	for _, r := range list {
		_, err = c.Decide(context.Background(), r.ID, grants.Decision{Kind: grants.AllowOnce, Shown: r.Outside.Shown})
	}
	if err != nil {
		fmt.Println("not let in:", err)
		return 1
	}
	fmt.Println("let in", len(list))
	return 0
}

// desk is a gateway with a runner, each in a process of its own, and a session.
type desk struct {
	testing.TB
	home, bin string
	own       string // the home directory of whoever runs the tests
	client    *client.Client
	session   *grants.Session
	gateway   int
}

func newDesk(t testing.TB, args ...string) *desk {
	t.Helper()
	home, err := os.MkdirTemp("/var/tmp", "clai-sandbox-test-")
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shuttest.RemoveAll(home) })
	d := &desk{TB: t, home: home, bin: home + "/bin", own: os.Getenv("HOME")}
	for _, dir := range []string{d.bin, home + "/work", home + "/config/clai-sandbox"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"clai-sandboxd", answersName, client.HostExecName, inContainerName} {
		copyFile(t, self, filepath.Join(d.bin, name)) // and no link: the gateway starts the runner by its own real path
	}
	d.write("config/clai-sandbox/config.json", `{"defaults": {"execution": {"outside": {"host": "auto", "security": "allowlist"},
		"hostexec": {"autoApprove": ["printf .*", "sh -c .*", "sleep .*"], "manualApprove": ["id .*"]}}}}`)
	d.write("config/clai-sandbox/exec-approvals.json", `{"version": 1, "agents": {"main": {"allowlist": [{"pattern": "/usr/bin/printf"}]}}}`)
	t.Setenv("HOME", home)
	for name, dir := range map[string]string{"XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run"} {
		t.Setenv(name, filepath.Join(home, dir))
	}
	caller, err := profile.CurrentCaller()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(grants.SocketDirectory(caller.Directories()), grants.SocketName)
	d.client = &client.Client{Socket: socket, Start: client.Starter{Program: d.bin + "/clai-sandboxd", Args: append([]string{"gateway", "--idle", "1m"}, args...), Socket: socket,
		Log: home + "/gateway.log"}.Start}
	d.begin()
	t.Cleanup(func() {
		if text, _ := os.ReadFile(home + "/gateway.log"); t.Failed() {
			t.Logf("the gateway said: %s", text)
		}
		syscall.Kill(d.gateway, syscall.SIGTERM)
	})
	return d
}

// begin finds the gateway, and opens a session with it.
func (d *desk) begin() {
	d.Helper()
	status, err := d.client.Status(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	d.gateway = status.PID
	if d.session, err = d.client.Open(d.Context(), grants.SessionSpec{Agent: "main", Workspace: d.home + "/work"}); err != nil {
		d.Fatal(err)
	}
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	if os.Link(from, to) == nil {
		return
	}
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700)
	if err == nil {
		_, err = io.Copy(out, in)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
}

func (d *desk) write(name, text string) {
	d.Helper()
	if err := os.WriteFile(filepath.Join(d.home, name), []byte(text), 0o600); err != nil {
		d.Fatal(err)
	}
}

// inside runs hostexec as a sandbox of the session would.
func (d *desk) inside(args ...string) (out, complaints string, status int) {
	d.Helper()
	command := exec.Command(d.bin+"/"+client.HostExecName, args...)
	command.Env, command.Dir = []string{client.SocketVariable + "=" + d.session.Socket}, d.home+"/work"
	var o, e strings.Builder
	command.Stdout, command.Stderr = &o, &e
	var exited *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exited) {
		d.Fatal(err)
	}
	return o.String(), e.String(), command.ProcessState.ExitCode()
}

// waiting is the command that waits for a person.
func (d *desk) waiting() grants.Request {
	d.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if list, err := d.client.Pending(d.Context()); err == nil && len(list) == 1 {
			return list[0]
		}
	}
	d.Fatal("nobody asks")
	return grants.Request{}
}

// allow allows the command that waits.
func (d *desk) allow() {
	d.Helper()
	r := d.waiting()
	if _, err := d.client.Decide(d.Context(), r.ID, grants.Decision{Kind: grants.AllowOnce, Shown: r.Outside.Shown}); err != nil {
		d.Fatal(err)
	}
}

// A command leaves the sandbox: by a list, by an answer, or not at all. Words, bytes and status
// arrive as they are.
func TestACommandLeavesTheSandbox(t *testing.T) {
	d := newDesk(t)
	for _, c := range []struct {
		args            []string
		out, complaints string
		status          int
	}{
		{[]string{"printf", `%s|`, "a b", "$(id)", "c'd"}, "a b|$(id)|c'd|", "", 0},
		{[]string{"sh", "-c", `printf '\000\377'; echo err >&2; pwd; exit 9`}, "\x00\xff" + d.home + "/work\n", "err\n", 9},
		{[]string{"--", "printf", "x"}, "x", "", 0},
		{[]string{"touch", "made"}, "", "hostexec: denied: no-pattern: neither list of hostexec has it\n", 1},
	} {
		if out, complaints, status := d.inside(c.args...); out != c.out || complaints != c.complaints || status != c.status {
			t.Errorf("%q: %q, %q, %d", c.args, out, complaints, status)
		}
	}
	for _, args := range [][]string{{}, {""}, {"-x"}} {
		if _, complaints, status := d.inside(args...); status != client.AskMisused || !strings.Contains(complaints, "which command?") {
			t.Errorf("%q: %d, %q", args, status, complaints)
		}
	}
	if out, complaints, status := d.inside("printf", "\xff"); out != "" || status != client.AskMisused || !strings.Contains(complaints, "UTF-8") {
		t.Errorf("other words than these are run: %q, %q, %d", out, complaints, status)
	}
	for _, allow := range []bool{true, false} {
		type result struct {
			out, complaints string
			status          int
		}
		answered := make(chan result, 1)
		go func() {
			out, complaints, status := d.inside("id", "-u")
			answered <- result{out, complaints, status}
		}()
		if allow {
			d.allow()
			if got := <-answered; got.out != fmt.Sprintln(os.Getuid()) || got.status != 0 {
				t.Errorf("%+v", got)
			}
		} else {
			if _, err := d.client.Decide(t.Context(), d.waiting().ID, grants.Decision{Kind: grants.Deny, Reason: "not\x1b[2J now"}); err != nil {
				t.Fatal(err)
			}
			if got := <-answered; got.out != "" || got.status != 1 || !strings.Contains(got.complaints, `denied: not`) || strings.Contains(got.complaints, "\x1b") {
				t.Errorf("%+v", got)
			}
		}
	}
}

// What runs on the host for an agent does not answer for the person, whatever it leaves behind and
// whomever it kills.
func TestWhatRunsOnTheHostAnswersNothing(t *testing.T) {
	d := newDesk(t)
	asked := make(chan grants.CommandAnswer, 1)
	go func() {
		a, _ := d.client.RunOutside(t.Context(), "", false, grants.Command{Argv: []string{"id", "-g"}, Cwd: d.home})
		asked <- a
	}()
	waits := d.waiting()
	program := d.bin + "/" + answersName + " " + d.client.Socket
	for name, line := range map[string]string{
		"itself":                               program + " > seen.new; mv seen.new seen",
		"an orphan":                            "(setsid sh -c 'sleep 0.1; " + program + " > seen.new; mv seen.new seen' &)",
		"an orphan of a runner that it killed": "R=$PPID; (setsid sh -c \"kill -9 $R; " + program + " > seen.new; mv seen.new seen\" &); sleep 1",
	} {
		os.Remove(d.home + "/work/seen")
		d.inside("sh", "-c", line)
		var said []byte
		waitTimeout := 20 * time.Second
		if strings.Contains(line, "kill") {
			waitTimeout = 200 * time.Millisecond // it is ended at once, if it was not as quick
		}
		for end := time.Now().Add(waitTimeout); len(said) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			said, _ = os.ReadFile(d.home + "/work/seen")
		}
		if strings.HasPrefix(string(said), "let in") || len(said) == 0 && !strings.Contains(line, "kill") {
			t.Errorf("%s: %q", name, said)
		}
	}
	if os.Getuid() != 0 { // root reads everybody's
		for _, file := range []string{"environ", "maps", "fd"} {
			if out, _, status := d.inside("sh", "-c", fmt.Sprintf("[ -d /proc/%[1]d ] && ls /proc/%[1]d/%[2]s/ || cat /proc/%[1]d/%[2]s", d.gateway, file)); status == 0 || out != "" {
				t.Errorf("it reads the gateway's %s", file)
			}
		}
	}
	if r := d.waiting(); r.ID != waits.ID {
		t.Errorf("%+v", r)
	}
	if _, err := d.client.Decide(t.Context(), waits.ID, grants.Decision{}); err != nil {
		t.Fatal(err)
	}
	if a := <-asked; a.Status != grants.CommandDenied {
		t.Errorf("%+v", a)
	}
}

// Whoever asked hears of a gateway that is killed, once for all: the command is not run again, and
// what ran was ended.
func TestAKilledGatewayRunsNothingTwice(t *testing.T) {
	d := newDesk(t)
	type result struct {
		grants.CommandAnswer
		error
	}
	asked := make(chan result, 1)
	go func() {
		a, err := d.client.RunOutside(t.Context(), "", false, grants.Command{Line: "echo $$ >> pids; exec sleep 600", Cwd: d.home + "/work"})
		asked <- result{a, err}
	}()
	d.allow()
	var pid int
	for end := time.Now().Add(20 * time.Second); pid == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		text, _ := os.ReadFile(d.home + "/work/pids")
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	syscall.Kill(d.gateway, syscall.SIGKILL)
	if a := <-asked; a.error != nil || a.Status != grants.CommandError || !strings.Contains(a.Reason, "the gateway ended while the command ran") {
		t.Errorf("%+v", a)
	}
	for end := time.Now().Add(20 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it goes on")
		}
	}
	d.begin()
	if out, complaints, status := d.inside("printf", "again"); out != "again" || status != 0 {
		t.Errorf("%q, %q, %d", out, complaints, status)
	}
	if text, _ := os.ReadFile(d.home + "/work/pids"); strings.Count(string(text), "\n") != 1 {
		t.Errorf("%q", text)
	}
}

// build puts a program as it ships in the place of the test's own.
func (d *desk) build(name, of string) {
	d.Helper()
	os.Remove(d.bin + "/" + name)
	if _, err := os.Stat(d.own + "/.cache/go-build"); err != nil { // everything would be compiled anew
		if built, err := filepath.EvalSymlinks("../../bin/" + filepath.Base(of)); err == nil {
			copyFile(d.TB, built, d.bin+"/"+name)
			return
		}
	}
	build := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-o", d.bin+"/"+name, of)
	build.Env = append(os.Environ(), "HOME="+d.own) // where the compiler has what it compiled before
	if out, err := build.CombinedOutput(); err != nil {
		d.Fatalf("%v: %s", err, out)
	}
}

// In pairs: hostexec of what needs no answer, as it is typed in a sandbox, and the same program
// begun without any of it. The difference is what the way outside costs: the program that asks, the
// socket, the policy, the record on the disk, the runner.
func BenchmarkHostExec(b *testing.B) {
	d := newDesk(b)
	d.write("config/clai-sandbox/config.json", `{"defaults": {"execution": {"outside": {"host": "auto", "security": "allowlist"}, "hostexec": {"autoApprove": ["true"]}}}}`)
	program, err := exec.LookPath("true")
	if err != nil {
		b.Fatal(err)
	}
	// The program that a sandbox has: it begins with each command.
	d.build(client.HostExecName, "../clai-sandbox")
	if _, complaints, status := d.inside("true"); status != 0 {
		b.Fatal(complaints)
	}
	var ours, bare []time.Duration
	for b.Loop() {
		begun := time.Now()
		for {
			_, complaints, status := d.inside("true")
			if status == 0 {
				break
			}
			if !strings.Contains(complaints, "asks too often") {
				b.Fatal(complaints)
			}
			time.Sleep(200 * time.Millisecond) // it may ask again some times then
			begun = time.Now()
		}
		ours = append(ours, time.Since(begun))
		begun = time.Now()
		if err := exec.Command(program).Run(); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, time.Since(begun))
	}
	for name, times := range map[string][]time.Duration{"hostexec": ours, "bare": bare} {
		slices.Sort(times)
		for part, at := range map[string]int{"min": 0, "p50": len(times) / 2, "p99": len(times) * 99 / 100} {
			b.ReportMetric(float64(times[at].Microseconds())/1000, name+"-"+part+"-ms")
		}
	}
}

func TestAGatewayKeepsNothingOfWhoeverStartsIt(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	inherited, err := syscall.Dup(int(write.Fd())) // without FD_CLOEXEC, as a shell's
	if err != nil {
		t.Fatal(err)
	}
	newDesk(t)
	syscall.Close(inherited)
	write.Close()
	read.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := read.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("%d, %v: the gateway holds it", n, err)
	}
}
