package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// A command works in a directory, is shown another one, and sees nothing else of the home.
func Example() {
	home, err := os.MkdirTemp("/var/tmp", "clai-sandbox-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(home)
	work := filepath.Join(home, "work")
	for path, text := range map[string]string{"work/main.txt": "mine", "shown/plan.txt": "ship it", "secret.txt": "no"} {
		os.MkdirAll(filepath.Dir(filepath.Join(home, path)), 0o755)
		os.WriteFile(filepath.Join(home, path), []byte(text+"\n"), 0o644)
	}

	// What the sandbox may see and do is data. The zero value shows nothing but the system.
	p := profile.Profile{
		Agent: profile.DefaultAgent, UID: os.Getuid(), Home: home, Workspace: work, WorkingDirectory: work,
		Grants: []profile.Grant{
			{Path: work, Access: profile.ReadWrite},
			{Path: filepath.Join(home, "shown"), Access: profile.ReadOnly},
		},
		Environment: []profile.Variable{{Name: "HOME", Value: home}, {Name: "PATH", Value: "/usr/bin:/bin"}},
	}
	plan, err := sandbox.Build(p, sandbox.Host{})
	if err != nil {
		panic(err)
	}
	command := []string{"sh", "-c", "cat main.txt ~/shown/plan.txt; ls ~; touch ~/shown/x 2>/dev/null || exit 3"}
	result, err := sandbox.Run(context.Background(), plan, command, sandbox.Stdio{Out: os.Stdout, Err: os.Stderr})
	if err != nil { // nothing was run, and it says why
		panic(err)
	}
	fmt.Println(result.Outcome, result.ExitCode)
	// Output:
	// mine
	// ship it
	// shown
	// work
	// exited 3
}
