package agents

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
)

// A machine is a person's, on which an agent works.
type machine struct {
	t       testing.TB
	base    string
	home    string
	work    string
	command string // clai-sandbox, as it is installed
	agent   string // the agent's program
	env     map[string]string
	model   *model
	running map[string]*running
}

func newMachine(t testing.TB, agent string) *machine {
	t.Helper()
	command, err := filepath.Abs("../../bin/clai-sandbox")
	if err == nil {
		_, err = os.Stat(command)
	}
	if err != nil {
		t.Skipf("make build: %v", err)
	}
	base, err := os.MkdirTemp("/var/tmp", "clai-agents-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shuttest.RemoveAll(base) })
	m := &machine{t: t, base: base, home: base + "/home", work: base + "/home/work", command: command, agent: agent, model: newModel(t), running: map[string]*running{}}
	for _, dir := range []string{m.work, base + "/run", base + "/tmp"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.env = map[string]string{"HOME": m.home, "USER": "somebody", "SHELL": "/bin/sh", "LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin",
		"XDG_RUNTIME_DIR": base + "/run", "TMPDIR": base + "/tmp"}
	return m
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// environment is the machine's, and what is given besides.
func (m *machine) environment(more map[string]string) (list []string) {
	for _, variables := range []map[string]string{m.env, more} {
		for name, value := range variables {
			list = append(list, name+"="+value)
		}
	}
	return list
}

// alone are variables by which a program's network ends at the model's server, which refuses all
// that is not for the model.
func (m *machine) alone(more map[string]string) map[string]string {
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy"} {
		more[name], more[strings.ToUpper(name)] = m.model.address, m.model.address
	}
	more["no_proxy"], more["NO_PROXY"] = "127.0.0.1,localhost", "127.0.0.1,localhost"
	return more
}

// A running program. What it says is kept, for when a test fails.
type running struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // of its standard output; closed at its end
	mu    sync.Mutex
	said  []string
	ended bool
}

// maxSaid bounds the lines that are kept.
const maxSaid = 60

func (r *running) keep(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said = append(r.said, line[:min(len(line), 500)]); len(r.said) > maxSaid {
		r.said = r.said[1:]
	}
}

// heard is what it said at last.
func (r *running) heard() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.said, "\n")
}

// start starts a program, which ends with the test.
func (m *machine) start(name string, more map[string]string, argv ...string) *running {
	m.t.Helper()
	r := &running{cmd: exec.Command(argv[0], argv[1:]...), lines: make(chan string, 1000)}
	r.cmd.Dir, r.cmd.Env = m.work, m.environment(more)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, write, err := os.Pipe()
	if err != nil {
		m.t.Fatal(err)
	}
	r.cmd.Stdout, r.cmd.Stderr = write, write
	if r.in, err = r.cmd.StdinPipe(); err == nil {
		err = r.cmd.Start()
	}
	write.Close()
	if err != nil {
		m.t.Fatal(err)
	}
	go func() {
		defer close(r.lines)
		defer out.Close()
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			r.keep(lines.Text())
			select {
			case r.lines <- lines.Text():
			default: // nobody waits for one
			}
		}
	}()
	m.running[name] = r
	m.t.Cleanup(func() {
		m.end(name)
		if m.t.Failed() {
			m.t.Logf("%s said at last:\n%s", name, r.heard())
		}
	})
	return r
}

// end ends a program.
func (m *machine) end(name string) {
	r := m.running[name]
	if r.ended {
		return
	}
	r.ended = true
	r.in.Close()
	r.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(10*time.Second, func() { syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	r.cmd.Wait()
}

func (m *machine) until(what string, is func() bool) {
	m.t.Helper()
	for end := time.Now().Add(40 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("not in time: %s; until then:\n%s", what, m.heard())
		}
	}
}

// person runs a command of the person's.
func (m *machine) person(arguments ...string) string {
	m.t.Helper()
	cmd := exec.Command(m.command, arguments...)
	cmd.Dir, cmd.Env = m.home, m.environment(nil)
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("%v: %v: %s", arguments, err, out)
	}
	return string(out)
}

// answers has the person answer the request for a path, or for a connection. Agents connect to
// more, of their own accord.
func (m *machine) answers(answer, what string) {
	m.t.Helper()
	id := ""
	m.until("somebody asks for "+what, func() bool {
		var pending struct {
			Requests []struct {
				RequestID, RequestedPath string
				Domain                   struct{ Destination string }
			}
		}
		text := m.person("grants", "pending", "--json")
		if err := json.Unmarshal([]byte(text), &pending); err != nil {
			m.t.Fatalf("%v: %s", err, text)
		}
		for _, r := range pending.Requests {
			if r.RequestedPath == what || r.Domain.Destination == what {
				id = r.RequestID
			}
		}
		return id != ""
	})
	m.person("grants", answer, id)
}

// Names of our server, as agents have it: with the structured content that it decides on for each
// client, and with it always.
const (
	usual  = "sandbox"
	always = "fields"
)

// own stands for no server: a tool is the agent's own.
const own = "own"

// servers are the commands that start our server, by its names.
func (m *machine) servers() map[string][]string {
	argv := []string{m.command, "mcp", "--workspace", m.work}
	return map[string][]string{usual: argv, always: append(slices.Clone(argv), "--structured", "always")}
}

func object(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}
