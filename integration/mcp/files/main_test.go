package files

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// TestMain makes the test binary the program, where a sandbox shows it.
func TestMain(m *testing.M) {
	if len(os.Args) == 1 && os.Args[0] == Place {
		os.Exit(Program(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// host is a home with a workspace, and a sandbox that shows both, the workspace for writing.
type host struct {
	t          testing.TB
	home, work string
	profile    profile.Profile
	launcher   sandbox.Launcher
}

func newHost(t testing.TB) *host {
	t.Helper()
	bwrap, err := sandbox.FindBwrap("", "")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, launcher: sandbox.Launcher{Bwrap: bwrap}}
	h.home = newDirectory(t)
	h.work = filepath.Join(h.home, "work")
	h.file("work/.keep", "")
	h.profile = profile.Profile{
		Agent: "main", UID: os.Getuid(), Home: h.home, Workspace: h.work, WorkingDirectory: h.work,
		Environment: []profile.Variable{{Name: "HOME", Value: h.home}, {Name: "PATH", Value: "/usr/local/bin:/usr/bin:/bin"}},
		Grants:      []profile.Grant{{Path: h.work, Access: profile.ReadWrite, Origin: profile.Origin{Kind: profile.OriginWorkspace}}},
	}
	return h
}

// newDirectory is not below /tmp, of which every sandbox has its own.
func newDirectory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "clai-sandbox-test-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// file writes a file below the home.
func (h *host) file(name, text string) string {
	h.t.Helper()
	return put(h.t, filepath.Join(h.home, name), text)
}

func put(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func (h *host) grant(path string, access profile.Access) {
	h.profile.Grants = append(h.profile.Grants, profile.Grant{Path: path, Access: access, Origin: profile.Origin{Kind: profile.OriginConfig, Source: "config.json:1"}})
}

// call runs a tool inside the sandbox.
func (h *host) call(r Request) Response {
	h.t.Helper()
	text, err := Encode(r)
	if err != nil {
		h.t.Fatal(err)
	}
	response, err := Decode(r, bytes.NewReader(h.run(text)))
	if err != nil {
		h.t.Fatal(err)
	}
	return response
}

// run gives the program inside a text, and returns what it wrote.
func (h *host) run(text []byte) []byte {
	h.t.Helper()
	plan, err := sandbox.Build(h.profile, sandbox.Host{})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var out, complaints bytes.Buffer
	result, err := h.launcher.Run(ctx, plan, []string{plan.ShowProgram("files", "")}, sandbox.Stdio{In: bytes.NewReader(text), Out: &out, Err: &complaints})
	if err != nil || result.ExitCode != 0 {
		h.t.Fatalf("the program: %v, exit status %d, %s", err, result.ExitCode, complaints.String())
	}
	return out.Bytes()
}

// here are the tools in a directory of the test's own, without a sandbox: for what is about their
// work alone.
func here(t testing.TB) tools {
	return tools{cwd: newDirectory(t), until: time.Now().Add(maxTime)}
}

func (t tools) at(name string) string { return filepath.Join(t.cwd, name) }

func content(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// codeOf is the code of a tool's error, or "".
func codeOf(err error) Code {
	if err == nil {
		return ""
	}
	return failure("", err).Code
}
