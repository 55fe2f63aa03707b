package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/policy/host"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/wire/socket"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "runner" {
		caller, err := profile.CurrentCaller()
		if err == nil {
			err = Main(context.Background(), caller)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == "impostor" {
		os.Exit(impostor(os.Args[2]))
	}
	os.Exit(m.Run())
}

// impostor takes the runner's name, says so, and answers for it.
func impostor(path string) int {
	os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("listens")
	conn, err := l.Accept()
	if err == nil {
		request, _ := bufio.NewReader(conn).ReadString('\n')
		fmt.Fprintf(conn, `{"status": "completed", "exitCode": %d}`+"\n", len(request))
	}
	return 0
}

// Who takes the name of the runner's socket is told no secret, and answers nothing.
func TestWhoTakesTheRunnersPlaceAnswersNothing(t *testing.T) {
	b := newBench(t)
	other := exec.Command(os.Args[0], "impostor", b.client.Socket)
	out, err := other.StdoutPipe()
	if err == nil {
		err = other.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Process.Kill(); other.Wait() })
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "listens\n" {
		t.Fatalf("%q, %v", said, err)
	}
	if a, started, err := b.client.Run(t.Context(), b.request("printf", "x")); err == nil || started {
		t.Errorf("%+v, %v", a, started)
	}
}

// bench is a runner in a process of its own, for a person with a home.
type bench struct {
	*testing.T
	home, work string
	starter    *Starter
	client     Client
}

const (
	allowing = `{"defaults": {"execution": {"outside": {"security": "allowlist"}}}}`
	entries  = `{"version": 1, "agents": {
		"*": {"denylist": [{"pattern": "touch"}]},
		"main": {"allowlist": [{"pattern": "/usr/bin/printf"}, {"pattern": "/usr/bin/cat"}, {"pattern": "/usr/bin/env"}, {"pattern": "/usr/bin/pwd"}]}}}`
)

func newBench(t *testing.T) *bench {
	t.Helper()
	home, err := os.MkdirTemp("", "r") // the address of a socket has little room
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	b := &bench{T: t, home: home, work: home + "/work"}
	b.write(".config/clai-sandbox/config.json", allowing)
	b.write(".config/clai-sandbox/"+host.ApprovalsName, entries)
	b.write(".local/state/clai-sandbox/"+profile.WrittenName, fmt.Sprintf("0 0 %q\n", b.work)) // a command in a sandbox could put programs there
	if err := errors.Join(os.Mkdir(b.work, 0o755), os.Symlink("work", home+"/link")); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"HOME": home, "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": "", "PATH": "/usr/bin:/bin:" + b.work + "/bin", "GIT_SSH_COMMAND": "evil", "KEPT": "yes",
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": "evil", "PAGER": "evil",
		"KUBECONFIG": home + "/.kube/config:" + b.work + "/kubeconfig", "DOCKER_HOST": "unix://" + b.work + "/docker.sock", "DOCKER_CONFIG": b.work, "AWS_CONFIG_FILE": home + "/link/aws",
		"DBUS_SESSION_BUS_ADDRESS": "unix:path=" + b.work + "/bus,guid=1", "SSL_CERT_FILE": home + "/.certificates", "DOCKER_CONTEXT": "work", "OLDPWD": b.work} {
		t.Setenv(name, value)
	}
	b.starter = &Starter{Program: os.Args[0], Args: []string{"runner"}, Socket: home + "/run/runner.sock", Log: os.Stderr}
	t.Cleanup(b.starter.Close)
	if b.client, err = b.starter.Client(); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) write(name, text string) string {
	b.Helper()
	path := filepath.Join(b.home, name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
	return path
}

// request is a command that the person themselves sent to this host.
func (b *bench) request(argv ...string) Request {
	q := Request{ID: "1", Cwd: b.work, Agent: "main", Layers: Layers{Person: true}}
	if len(argv) == 1 {
		q.Command = argv[0]
	} else {
		q.Argv = argv
	}
	return q
}

// approved is the request with an answer to what the policy says of it now.
func (b *bench) approved(q Request) Request {
	b.Helper()
	caller, err := profile.CurrentCaller()
	if err != nil {
		b.Fatal(err)
	}
	h, err := host.Load(caller, os.Getenv("PATH"), q.Agent)
	if err != nil {
		b.Fatal(err)
	}
	d := h.Policy(q.Layers.Policy()).Decide(q.Policy())
	if d.Verdict != policy.AskPerson {
		b.Fatalf("%s %s: %v", d.Verdict, d.Reason, d.Lines())
	}
	q.Approved = &Approved{Answer: "allow-once", Bound: d.BoundTo, Runs: RunsOf(d)}
	return q
}

func (b *bench) run(q Request) Answer {
	b.Helper()
	a, _, err := b.client.Run(b.Context(), q)
	if err != nil {
		b.Fatal(err)
	}
	return a
}

func TestWhatThePolicyLetsRunRuns(t *testing.T) {
	b := newBench(t)
	b.write("work/text", "\x00\xff\n")
	fails := b.approved(b.request("sh", "-c", "echo out; echo err >&2; exit 7"))
	killed := b.approved(b.request("kill -9 $$"))
	for name, c := range map[string]struct {
		q    Request
		want Answer
	}{
		"words":          {b.request("printf", "%s|", "a b", "$(id)", "c'd"), Answer{Stdout: []byte("a b|$(id)|c'd|")}},
		"a line":         {b.request("cat text | cat"), Answer{Stdout: []byte("\x00\xff\n")}},
		"its directory":  {b.request("pwd"), Answer{Stdout: []byte(b.work + "\n")}},
		"no input":       {b.request("cat", "-"), Answer{}},
		"both, a status": {fails, Answer{Stdout: []byte("out\n"), Stderr: []byte("err\n"), ExitCode: 7}},
		"a signal":       {killed, Answer{ExitCode: 137}},
	} {
		a := b.run(c.q)
		if a.Status != Completed || a.ExitCode != c.want.ExitCode || string(a.Stdout) != string(c.want.Stdout) || string(a.Stderr) != string(c.want.Stderr) {
			t.Errorf("%s: %+v, %q, %q", name, a, a.Stdout, a.Stderr)
		}
	}
}

// A command that may write where the directory lies puts a link in its place and takes it away,
// again and again.
func TestACommandStartsInNoDirectoryButTheOneThatWasJudged(t *testing.T) {
	b := newBench(t)
	cwd, link := filepath.Join(b.work, "sub"), filepath.Join(b.work, "link")
	if err := errors.Join(os.Mkdir(cwd, 0o755), os.Symlink("/etc", link)); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			if err := unix.Renameat2(unix.AT_FDCWD, cwd, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				stopped <- err
				return
			}
			select {
			case <-stop:
				stopped <- nil
				return
			case <-time.After(300 * time.Microsecond): // not a wait: how long it stands there
			}
		}
	}()
	for range 60 {
		q := b.request("pwd", "-P")
		q.Cwd = cwd
		a := b.run(q)
		if at := strings.TrimSpace(string(a.Stdout)); a.Status == Completed && at != cwd && at != link {
			t.Errorf("it ran in %s", at)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

// Whoever asks, and whatever they claim, what the policy does not let run does not.
func TestNobodyTalksTheRunnerIntoMore(t *testing.T) {
	b := newBench(t)
	script := b.write("work/script.sh", "echo one")
	changed := b.approved(b.request("sh", "script.sh"))
	if err := os.WriteFile(script, []byte("echo two"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := b.approved(b.request("id -u"))
	other.Command = "id -g"
	runs := b.approved(b.request("id -u"))
	runs.Approved.Runs.Command = "id -g"
	elsewhere := b.approved(b.request("id", "-u"))
	elsewhere.Cwd = b.home
	denied := b.approved(b.request("id", "-u"))
	denied.Approved.Answer = "deny"
	none := b.approved(b.request("id", "-u"))
	none.Approved.Answer = "none"
	strange := b.approved(b.request("id", "-u"))
	strange.Approved.Answer = "yes"
	touch := b.approved(b.request("id", "-u"))
	touch.Argv = []string{"touch", "made"}
	agent := b.approved(b.request("id", "-u"))
	agent.Agent = "other"
	env := b.request("env")
	env.Env = map[string]string{"GIT_SSH_COMMAND": "evil"}
	tight := b.request("printf", "x")
	tight.Layers.Security = "deny"
	strict := b.request("printf", "x")
	strict.Layers.Ask = "always"
	unread := b.request("printf", "x")
	unread.Layers.Security = "ful"
	agentAsks := b.request("printf", "x")
	agentAsks.Layers = Layers{InSandbox: true}
	outsideOf := b.request("printf", "x")
	outsideOf.Workdir = b.work + "/below"
	for name, c := range map[string]struct {
		q      Request
		reason string
	}{
		"not on the list":                 {b.request("id", "-u"), policy.ReasonApprovalRequired},
		"an approval for another command": {other, ReasonChanged},
		"other words than were shown":     {runs, ReasonChanged},
		"another directory":               {elsewhere, ReasonChanged},
		"another agent":                   {agent, ReasonChanged},
		"a script that changed":           {changed, ReasonChanged},
		"a denial":                        {denied, policy.ReasonUserDenied},
		"no answer":                       {none, policy.ReasonTimeout},
		"an answer that is none":          {strange, ReasonRequest},
		"a deny entry":                    {touch, policy.ReasonDenyEntry},
		"an override":                     {env, policy.ReasonEnvironment},
		"the request tightens":            {tight, policy.ReasonSecurityDeny},
		"the request wants a question":    {strict, policy.ReasonApprovalRequired},
		"a word that nobody knows":        {unread, policy.ReasonSecurityDeny},
		"the configuration says sandbox":  {agentAsks, "host"},
		"outside of its directory":        {outsideOf, ReasonWorkdir},
		"a relative directory":            {Request{Command: "id", Cwd: ".", Agent: "main"}, ReasonRequest},
		"nothing":                         {Request{Cwd: "/", Agent: "main"}, ReasonRequest},
		"two things":                      {Request{Command: "id", Argv: []string{"id"}, Cwd: "/", Agent: "main"}, ReasonRequest},
		"a zero byte":                     {b.request("printf", "a\x00b"), ReasonRequest},
		"no such program":                 {b.request("/usr/bin/no-such-program", "x"), policy.ReasonApprovalRequired},
	} {
		if a := b.run(c.q); a.Status != Failed || a.Reason != c.reason || a.Error == "" {
			t.Errorf("%s: %+v, %q; want %s", name, a, a.Stdout, c.reason)
		}
	}
	forged := b.client
	forged.Secret[0]++
	if a, _, err := forged.Run(t.Context(), b.request("printf", "x")); err != nil || a.Reason != ReasonSecret || a.Error != "invalid secret" {
		t.Errorf("%+v, %v", a, err)
	}
	// A file that cannot be read denies everything, at once.
	b.write(".config/clai-sandbox/"+host.ApprovalsName, "{")
	if a := b.run(b.request("printf", "x")); a.Reason != policy.ReasonPolicyUnreadable {
		t.Errorf("%+v", a)
	}
	if made, _ := filepath.Glob(b.work + "/made"); len(made) > 0 {
		t.Error("something ran")
	}
}

func TestTheEnvironmentIsTheHostsWithoutWhatChoosesCode(t *testing.T) {
	b := newBench(t)
	q := b.approved(b.request("env"))
	q.Env = nil
	text := string(b.run(q).Stdout)
	for _, want := range []string{"KEPT=yes\n", policy.MarkerVariable + "=1\n", "HOME=" + b.home + "\n", "PATH=/usr/bin:/bin\n",
		"SSL_CERT_FILE=" + b.home + "/.certificates\n", "DOCKER_CONTEXT=work\n", "OLDPWD=" + b.work + "\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	for _, gone := range []string{"evil", "GIT_", "KUBECONFIG", "DOCKER_HOST", "DOCKER_CONFIG", "AWS_CONFIG_FILE", "DBUS_SESSION"} {
		if strings.Contains(text, gone) {
			t.Errorf("%s in %q", gone, text)
		}
	}
}

func TestALongOutputIsCut(t *testing.T) {
	b := newBench(t)
	a := b.run(b.approved(b.request("head -c 300000 /dev/zero; echo more >&2")))
	if len(a.Stdout)+len(a.Stderr) != policy.MaxOutput || !a.Truncated {
		t.Errorf("%d + %d, %v", len(a.Stdout), len(a.Stderr), a.Truncated)
	}
}

// When the time is over, the whole group ends, and what there was until then is answered.
func TestTheGroupEndsWithItsTime(t *testing.T) {
	b := newBench(t)
	q := b.approved(b.request("trap '' TERM; sleep 600 & echo $!; echo so far; wait; sleep 600"))
	q.TimeoutMs = 300
	a := b.run(q)
	pid, rest, _ := strings.Cut(string(a.Stdout), "\n")
	if a.Status != TimedOut || rest != "so far\n" {
		t.Fatalf("%+v, %q", a, a.Stdout)
	}
	n, err := strconv.Atoi(pid)
	for end := time.Now().Add(10 * time.Second); err == nil && alive(n); runtime.Gosched() { // a busy machine takes a moment to end what was killed
		if time.Now().After(end) {
			t.Fatalf("%s goes on", pid)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func (b *bench) until(what string, done func() bool) {
	b.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatal("not in time: " + what)
		}
	}
}

// begin starts a command that tells its process, and stays.
func (b *bench) begin(ctx context.Context) (pid int, answered chan error) {
	b.Helper()
	path := b.work + "/pid"
	os.Remove(path)
	answered = make(chan error, 1)
	q := b.approved(b.request("echo $$ > pid.new; mv pid.new pid; exec sleep 600"))
	go func() {
		_, started, err := b.client.Run(ctx, q)
		if !started {
			err = errors.Join(errors.New("not started"), err)
		}
		answered <- err
	}()
	b.until("it runs", func() bool {
		text, _ := os.ReadFile(path)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	return pid, answered
}

func TestWhoLeavesEndsTheCommand(t *testing.T) {
	b := newBench(t)
	ctx, leave := context.WithCancel(t.Context())
	pid, answered := b.begin(ctx)
	leave()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	b.until("the command ends", func() bool { return !alive(pid) })
}

// A runner that is killed takes along what it runs; whoever asked is told, and the next one is
// another.
func TestAKilledRunnerIsToldOf(t *testing.T) {
	b := newBench(t)
	pid, answered := b.begin(t.Context())
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	runner, _ := strconv.Atoi(strings.Fields(string(line))[3])
	if is, err := socket.Descends(pid, runner); !is || err != nil || runner == os.Getpid() {
		t.Fatalf("%d descends from %d: %v, %v", pid, runner, is, err)
	}
	syscall.Kill(runner, syscall.SIGKILL)
	if err := <-answered; !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	b.until("the command ends", func() bool { return !alive(pid) })
	b.until("the next one runs", func() bool {
		next, err := b.starter.Client()
		if err != nil {
			t.Fatal(err)
		}
		changed := next.Secret != b.client.Secret
		b.client = next
		return changed
	})
	if a := b.run(b.request("printf", "x")); string(a.Stdout) != "x" {
		t.Errorf("%+v", a)
	}
}

func TestTheRunnerEndsWithItsGateway(t *testing.T) {
	b := newBench(t)
	pid, answered := b.begin(t.Context())
	b.starter.Close()
	if err := <-answered; err != nil && !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	if alive(pid) {
		t.Error("the command goes on")
	}
	if _, started, err := b.client.Run(t.Context(), b.request("printf", "x")); err == nil || started {
		t.Errorf("%v, %v", started, err)
	}
}

// What a command leaves in the background holds nobody, is known for its descendant, and ends with
// the runner, however that ends.
func TestWhatStaysInTheBackgroundIsKnown(t *testing.T) {
	for name, end := range map[string]func(*bench, int){
		"with its gateway": func(b *bench, _ int) { b.starter.Close() },
		"killed":           func(_ *bench, runner int) { syscall.Kill(runner, syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			defer b.starter.AdoptOrphans()()
			a := b.run(b.approved(b.request("(setsid sh -c 'sleep 600 & setsid sleep 600 & wait' & echo $!)")))
			pid, err := strconv.Atoi(strings.TrimSpace(string(a.Stdout)))
			if err != nil || a.Status != Completed {
				t.Fatalf("%+v, %q, %v", a, a.Stdout, err)
			}
			if is, err := socket.Descends(pid, os.Getpid()); !is || err != nil {
				t.Errorf("%v, %v", is, err)
			}
			var below []int
			b.until("it has children", func() bool { below = childrenOf(pid); return len(below) == 2 })
			if !b.starter.Busy() {
				t.Error("nothing is known of it")
			}
			end(b, b.starter.running.pid)
			for _, left := range append(below, pid) {
				b.until("it ends", func() bool { return !alive(left) })
			}
		})
	}
}

// All of a line of processes is ended at once, and not one generation after the other: in that time
// its last could wait for the end of whoever knows it.
func TestALongLineOfProcessesEndsAtOnce(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	const generations = 20
	script := filepath.Join(t.TempDir(), "line")
	if err := os.WriteFile(script, []byte(`echo $$; [ "$1" = 0 ] && exec sleep 600; sh "$0" $(($1-1)) & wait`), 0o644); err != nil {
		t.Fatal(err)
	}
	top := exec.Command("sh", "-c", "setsid sh "+script+" "+strconv.Itoa(generations-1)+" &")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	top.Stdout = write
	if err := top.Run(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	var line []int
	for lines := bufio.NewScanner(read); len(line) < generations && lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		line = append(line, pid)
	}
	last := line[generations-1]
	for text := ""; text != "sleep\n"; { // it is there with all of its parents
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", last))
		if err != nil {
			t.Fatal(err)
		}
		text = string(comm)
	}
	var c children
	if left := c.endAll(); left < generations {
		t.Errorf("%d were left", left)
	}
	for end := time.Now().Add(5 * time.Second); slices.ContainsFunc(line, alive); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Error("some of them live")
			break
		}
	}
	c.end()
}

func TestSlowAndLongRequestsAreCutOff(t *testing.T) {
	b := newBench(t)
	q := b.request("printf", strings.Repeat("x", maxRequest))
	if _, _, err := b.client.Run(t.Context(), q); err == nil {
		t.Error("too long a request is sent")
	}
	conn, err := net.Dial("unix", b.client.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	for range maxRequest/1000 + 100 { // and a buffer more
		if _, err := conn.Write([]byte(strings.Repeat(" ", 1000))); err != nil {
			return // it hung up
		}
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d, %v", n, err)
	}
}
