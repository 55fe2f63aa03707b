package diagnosis

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// nothingThere is a host without files.
type nothingThere struct{ sandbox.Host }

func (nothingThere) Lstat(string) (sandbox.Object, error)    { return sandbox.Object{}, syscall.ENOENT }
func (nothingThere) Readlink(string) (string, error)         { return "", syscall.ENOENT }
func (nothingThere) ReadDir(string) ([]sandbox.Entry, error) { return nil, syscall.ENOENT }

// FuzzOf reads whatever a command may print: on a host that has nothing, nothing of it was lacking.
func FuzzOf(f *testing.F) {
	for _, text := range []string{"cat: /a: No such file or directory", "Error: EROFS: read-only file system, open '/a'", "Caused by:\n  No such file (os error 2)", "\x1b[31merror\x1b[0m", "‘/a’: Permission denied",
		"curl: (6) Could not resolve host: example.com", "sh: 1: x: not found", "fatal error: a.h: No such file"} {
		f.Add([]byte(text), "cat /a; b | c", 1)
	}
	plan := sandbox.Plan{WorkingDirectory: "/work", Environment: []profile.Variable{{Name: "PATH", Value: "/bin"}}, Network: profile.NetworkFiltered}
	f.Fuzz(func(t *testing.T, text []byte, line string, status int) {
		list := Of(Failure{Plan: &plan, Host: nothingThere{}, Command: []string{"sh", "-c", line}, ExitCode: status, Stderr: text, Stdout: text})
		for _, missing := range list {
			if missing.Kind == Path || status == 0 || len(list) > maxMissing {
				t.Fatalf("%+v", list)
			}
		}
	})
}

func TestALargeOutputIsReadInBoundedTime(t *testing.T) {
	h := newHost(t)
	plan := h.build()
	for _, line := range []string{"cat: " + h.other + "/f.txt: No such file or directory\n", "'''''''''''''''' \"\"\"\" no such file or directory\n", strings.Repeat("x", 100_000) + "\n", strings.Repeat(": ", 1000) + "enoent\n",
		strings.Repeat("/a/", 1000) + ": permission denied\n", "\x1b[", "\n", strings.Repeat("/x:", 500) + " no such file or directory\n"} {
		text := bytes.Repeat([]byte(line), 1<<20/len(line)+1)
		began := time.Now()
		list := Of(Failure{Plan: &plan, Command: []string{"/bin/sh", "-c", string(text)}, ExitCode: 1, Stderr: text, Stdout: text})
		if took := time.Since(began); took > 2*time.Second || len(list) > maxMissing {
			t.Errorf("%.40q: %v, %d", line, took, len(list))
		}
	}
}
