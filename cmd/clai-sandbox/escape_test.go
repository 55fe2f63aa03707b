package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/sandbox/mounts/nomount"
)

// The suite of escapes: each is a command that a person could type inside, and that tries to get
// out, to see what it must not, or to leave something behind for others to execute.
// escape_attempts_test.go has them. Each is made twice: in a sandbox, where it must come to
// nothing, and without one on a place of its own, where it must work, or the test would show
// nothing.
//
// make escape prints the table; docs/escapes.md has it.

var updateEscapes = flag.Bool("update-escapes", false, "write docs/escapes.md anew")

// escapeImages is a directory of images, as in this program's state, on the file system of /var/tmp
// and of the user who tests.
var escapeImages = flag.String("images", "", "make the escapes in image base of the directory `DIR`")

// An attempt is one way out.
type attempt struct {
	class, title string
	options      []string            // of clai-sandbox run, besides the usual
	prepare      func(p *place)      // on the host, before
	command      string              // for sh -c; its variables are the place's
	again        string              // a second run, with the same options
	during       func(p *place)      // on the host, once the command has made the file "ready"
	through      func(p *place) bool // whether it got through, by a look at the host; nil: by the exit status
	terminal     bool                // on a terminal
	refused      bool                // nothing is run
	by           string              // what stops it
	uncontrolled string              // why it is not made without a sandbox
	only         string              // "root" or "user"
	mounter      bool                // bubblewrap's own mounts do not stop it (docs/security.md)
	byStreams    bool                // it is about a stream that a session's command does not get
}

// A place is a host of an attempt's own: a home with secrets, a project in it, and a directory
// outside that nobody grants.
type place struct {
	t                   *testing.T
	dir                 string
	home, work, outside string
	vars                []string // NAME=VALUE, given to the command inside
	files               []*os.File
	stdin               string  // what the command's standard input is opened from
	bus, bwrap          string  // the session bus; another bwrap
	copied              bool    // the command sees the project copy on write
	touched             reached // by a packet
	cmd                 *exec.Cmd
	out                 string // what the command said
	status              int
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir := newHome(t)
	p := &place{t: t, dir: dir, home: dir + "/home", work: dir + "/home/work", outside: dir + "/outside"}
	for _, d := range []string{p.home, p.work, p.outside, p.home + "/run"} {
		p.mkdir(d)
	}
	os.Chmod(p.home+"/run", 0o700)
	p.write(p.outside+"/secret", "secret-outside")
	for _, name := range []string{".ssh/id_ed25519", ".netrc", ".aws/credentials", ".config/gh/hosts.yml", ".bash_history", ".mozilla/firefox/x/logins.json",
		".local/share/keyrings/login.keyring", ".config/clai-sandbox/secret", ".local/state/clai-sandbox/secret"} {
		p.write(filepath.Join(p.home, name), "secret-in-home")
		os.Chmod(filepath.Join(p.home, name), 0o600)
	}
	p.write(p.home+"/notes", "notes")
	if *escapeImages != "" {
		images := p.home + "/.local/state/clai-sandbox/images"
		if out, err := exec.Command("cp", "-al", *escapeImages, images).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	p.setenv("WORK", p.work)
	p.setenv("OUT", p.outside)
	return p
}

func (p *place) setenv(name, value string) { p.vars = append(p.vars, name+"="+value) }

func (p *place) mkdir(path string) {
	p.t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) write(path, text string) {
	p.t.Helper()
	p.mkdir(filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) environment() []string {
	list := p.base()
	if p.bus != "" {
		list = append(list, "DBUS_SESSION_BUS_ADDRESS="+p.bus)
	}
	if p.bwrap != "" {
		list = append(list, "CLAI_SANDBOX_BWRAP="+p.bwrap)
	}
	if why := os.Getenv(nomount.Variable); why != "" {
		list = append(list, nomount.Variable+"="+why)
	}
	return list
}

func (p *place) base() []string {
	return []string{"HOME=" + p.home, "PATH=" + os.Getenv("PATH"), "USER=somebody", "SHELL=/bin/sh", "LANG=C.UTF-8", "GIT_CONFIG_NOSYSTEM=1", "XDG_RUNTIME_DIR=" + p.home + "/run",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com"}
}

// sh is what a person types on the host.
func (p *place) sh(script string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "sh", "-euc", script)
	cmd.Dir = p.work
	cmd.Env = append(p.environment(), p.vars...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// repository makes the project one.
func (p *place) repository() {
	p.sh(`git init -q -b main . && echo 1 > file && git add file && git commit -q -m first`)
}

// start runs something on the host that ends with the test.
func (p *place) start(words ...string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(p.environment(), p.vars...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

// reached is set when somebody connects to a listener of the host's.
type reached chan struct{}

func (p *place) listen(network, address string) (net.Addr, reached) {
	p.t.Helper()
	touched := make(reached, 16)
	if strings.HasPrefix(network, "udp") {
		conn, err := net.ListenPacket(network, address)
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { conn.Close() })
		go func() {
			for buffer := make([]byte, 100); ; touched <- struct{}{} {
				if _, _, err := conn.ReadFrom(buffer); err != nil {
					return
				}
			}
		}()
		return conn.LocalAddr(), touched
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, "reached")
			conn.Close()
			touched <- struct{}{}
		}
	}()
	return listener.Addr(), touched
}

func (p *place) port(network string) {
	addr, _ := p.listen(network, "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(addr.String())
	p.setenv("PORT", port)
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// A driver starts a shell script as one launcher of sandboxes does, or without any.
type driver struct {
	name string
	argv func(p *place, a attempt, script string) []string
}

var unprotected = driver{"no sandbox", func(_ *place, _ attempt, script string) []string { return []string{"sh", "-c", script} }}

var ours = driver{"clai-sandbox", func(p *place, a attempt, script string) []string {
	argv := append([]string{"clai-sandbox", "run"}, expand(p, a.options)...)
	if *escapeImages != "" {
		argv = append(argv, "--image", "base")
	}
	for _, variable := range append(p.vars, p.base()[7:]...) {
		argv = append(argv, "--env", variable)
	}
	return append(argv, "--", "sh", "-c", script)
}}

// expand puts the place's variables into options.
func expand(p *place, options []string) []string {
	list := slices.Clone(options)
	for i := range list {
		list[i] = os.Expand(list[i], func(name string) string {
			for _, v := range append(p.vars, p.environment()...) {
				if value, found := strings.CutPrefix(v, name+"="); found {
					return value
				}
			}
			return ""
		})
	}
	return list
}

// escapeLimit bounds one run of an attempt.
const escapeLimit = 20 * time.Second

// make makes an attempt at a place, and reports whether it got through. The error is about the
// launcher.
func (a attempt) make(p *place, d driver) (bool, error) {
	p.t.Helper()
	if a.prepare != nil {
		a.prepare(p)
	}
	if err := a.run(p, d, a.command, a.during); err != nil {
		return false, err
	}
	if a.again != "" {
		if err := a.run(p, d, a.again, nil); err != nil {
			return false, err
		}
	}
	if a.through != nil {
		return a.through(p), nil
	}
	return p.status == 0, nil
}

func (a attempt) run(p *place, d driver, script string, during func(*place)) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), escapeLimit)
	defer cancel()
	argv := d.argv(p, a, script)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = p.work
	cmd.Env = append(append(p.environment(), p.vars...), "CALLERS_SECRET=in-the-environment")
	cmd.ExtraFiles = p.files
	cmd.WaitDelay = time.Second
	if p.stdin != "" {
		file, err := os.Open(p.stdin)
		if err != nil {
			return err
		}
		defer file.Close()
		cmd.Stdin = file
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if a.terminal { // as its own, through script(1)
		cmd.Args = []string{"script", "-qec", quoted(argv), "/dev/null"}
		path, err := exec.LookPath("script")
		if err != nil {
			return err
		}
		cmd.Path = path
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd = cmd
	if during != nil {
		for deadline := time.Now().Add(10 * time.Second); !p.ready() && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		during(p)
		p.write(p.work+"/done", "")
	}
	err := cmd.Wait()
	if !a.refused && d.name == ours.name && cmd.ProcessState.ExitCode() == statusNoSandbox {
		return fmt.Errorf("nothing was run: %s", out.String())
	}
	p.out, p.status = out.String(), cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, p.out)
	}
	return nil
}

func quoted(words []string) string {
	var list []string
	for _, word := range words {
		list = append(list, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
	}
	return strings.Join(list, " ")
}

// applies reports whether an attempt is one for this user.
func (a attempt) applies() bool {
	root := os.Getuid() == 0
	return a.only == "" || a.only == "root" && root || a.only == "user" && !root
}

func TestEscapes(t *testing.T) {
	if len(attempts) < 60 {
		t.Errorf("%d attempts", len(attempts))
	}
	user := "user"
	if os.Getuid() == 0 {
		user = "root"
	}
	for i, a := range attempts {
		if !a.applies() {
			continue // it takes the other user's rights, with or without a sandbox
		}
		t.Run(fmt.Sprintf("%02d %s", i+1, a.title), func(t *testing.T) {
			t.Parallel()
			if a.mounter && os.Getenv(nomount.Variable) != "" {
				t.Skip("the mounts are bubblewrap's in this run, which cannot do that")
			}
			p := newPlace(t)
			through, err := a.make(p, ours)
			if err != nil {
				t.Fatal(err)
			}
			if through {
				t.Errorf("it got through; exit status %d:\n%s", p.status, p.out)
			}
			if left := p.residue(); left != "" {
				t.Errorf("left on the host:\n%s", left)
			}
			control := "works without a sandbox"
			if a.uncontrolled == "" {
				p := newPlace(t)
				if through, err := a.make(p, unprotected); err != nil || !through {
					t.Errorf("without a sandbox it comes to nothing, so this shows nothing: %v, exit status %d\n%s", err, p.status, p.out)
				}
			} else {
				control = a.uncontrolled
			}
			t.Logf("held for %s: %s: %s: by %s (%s)", user, a.class, a.title, a.by, control)
		})
	}
}

// residue is what a run left in the project that is not the command's: what was set aside goes to
// the quarantine.
func (p *place) residue() string {
	left, err := filepath.Glob(p.work + "/.clai-sandbox-*")
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Join(left, " ")
}

// TestTheTableOfEscapesIsUpToDate holds docs/escapes.md to the attempts; -update-escapes writes it.
func TestTheTableOfEscapesIsUpToDate(t *testing.T) {
	var text strings.Builder
	text.WriteString("# Escapes that are tried\n\n" +
		"Written by `go test ./cmd/clai-sandbox -run TestTheTableOfEscapesIsUpToDate -update-escapes`. `make escape` makes each of these, as root\n" +
		"and as an ordinary user, in a sandbox, where it must come to nothing, and without one, where it must work. The command\n" +
		"is for `clai-sandbox run OPTIONS -- sh -c COMMAND`, in a project whose variables the test sets. Each is made once more with\n" +
		"`--workspace-access cow`. Nothing is protected by its name there; of what is executed later, or made for others, the test holds that\n" +
		"nothing at all of the project is changed on the host: it is in the layer. And each is made as a command of a session, in a sandbox that\n" +
		"was there before and stays (docs/mcp.md).\n\n" +
		"| | class | attempt | stopped by | with a workspace that is copied | in a session | who | without a sandbox |\n|---|---|---|---|---|---|---|---|\n")
	for i, a := range attempts {
		who, control := "both", "works"
		if a.only != "" {
			who = a.only
		}
		if a.uncontrolled != "" {
			control = "not tried: " + a.uncontrolled
		}
		copied := "the same"
		if a.byCopied() != a.by {
			copied = a.byCopied()
		}
		staying := "the same"
		if a.byStaying() != a.by {
			staying = a.byStaying()
		}
		fmt.Fprintf(&text, "| %d | %s | %s | %s | %s | %s | %s | %s |\n", i+1, a.class, a.title, a.by, copied, staying, who, control)
	}
	text.WriteString("\n## The commands\n")
	for i, a := range attempts {
		fmt.Fprintf(&text, "\n%d. %s", i+1, a.title)
		if len(a.options) > 0 {
			fmt.Fprintf(&text, ", with `%s`", strings.Join(a.options, " "))
		}
		fmt.Fprintf(&text, "\n\n```sh\n%s\n```\n", strings.TrimSpace(a.command))
		if a.again != "" {
			fmt.Fprintf(&text, "\nand in a second run\n\n```sh\n%s\n```\n", strings.TrimSpace(a.again))
		}
	}
	path := filepath.Join("..", "..", "docs", "escapes.md")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The end of the file is that of a test of ../../sandbox.
	const heading = "\n## A session's commands against its server and each other\n"
	got, rest, found := strings.Cut(string(file), heading)
	if !found {
		t.Errorf("%s lacks the attacks on a session", path)
	}
	switch {
	case *updateEscapes:
		if err := os.WriteFile(path, []byte(text.String()+heading+rest), 0o644); err != nil {
			t.Fatal(err)
		}
	case got != text.String():
		t.Errorf("%s is out of date", path)
	}
}
