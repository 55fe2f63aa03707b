package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/integration/gateway"
	"github.com/clairun/clai-sandbox/profile"
)

// TestGrantsScripts runs the terminal sessions of testdata/grants, each with a gateway of its own,
// and $OTHER outside the home.
func TestGrantsScripts(t *testing.T) {
	root := newHome(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/grants",
		WorkdirRoot:         root,
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		Setup: func(env *testscript.Env) error {
			home, other, runtime := filepath.Join(env.WorkDir, "home"), filepath.Join(env.WorkDir, "other"), newRuntime(t)
			project := filepath.Join(home, "project")
			for _, dir := range []string{project, other} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
			}
			for name, value := range map[string]string{"HOME": home, "USER": "somebody", "SHELL": "/bin/sh", "LANG": "C.UTF-8", "OTHER": other,
				"XDG_RUNTIME_DIR": runtime, "ESC": "\x1b", "BIDI": "\u202e"} {
				env.Setenv(name, value)
			}
			for _, name := range []string{"agent", "person", "liar", "secret", "again", "outside", "hooks"} {
				if err := os.Rename(filepath.Join(env.WorkDir, name), filepath.Join(project, name)); err != nil && !os.IsNotExist(err) {
					return err
				}
			}
			env.Cd = project
			caller := profile.Caller{UID: os.Getuid(), Home: home, User: "somebody", Environ: []string{"XDG_RUNTIME_DIR=" + runtime}}
			ctx, cancel := context.WithCancel(context.Background())
			over := make(chan error, 1)
			go func() {
				over <- gateway.Run(ctx, gateway.Options{Directories: caller.Directories(), Home: home, User: "somebody", Version: "test"})
			}()
			env.Defer(func() { cancel(); <-over })
			broker := &client.Client{Socket: filepath.Join(grants.SocketDirectory(caller.Directories()), grants.SocketName)}
			for {
				if _, err := broker.Status(ctx); err == nil {
					return nil
				}
				select {
				case err := <-over:
					over <- err
					return err
				case <-time.After(5 * time.Millisecond):
				}
			}
		},
	})
}

// newRuntime is a runtime directory with a short name: the address of a socket has little room.
func newRuntime(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "g")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestTimeSpansAreRough(t *testing.T) {
	for text, want := range map[string]string{"-3s": "0s", "59s": "59s", "90s": "1m", "119m": "119m", "2h": "2h", "47h": "47h", "49h": "2d"} {
		d, err := time.ParseDuration(text)
		if got := rough(d); err != nil || got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestAWordIsQuotedForAShell(t *testing.T) {
	for word, want := range map[string]string{"/a b": `'/a b'`, "/a\x1b'\"": `$'/a\x1b\'"'`} {
		if got := quoteWord(word); got != want || strings.Contains(got, "\x1b") {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}
