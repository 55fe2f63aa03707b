// Command clai-sandbox runs commands in bubblewrap sandboxes that show exactly what was granted.
//
// The files of this package hold flags and printing, one command each; what the commands do is in
// the packages profile and sandbox. It starts on every command that an agent runs, so it links
// nothing heavy.
package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/integration/shell"
	"github.com/clairun/clai-sandbox/sandbox"
)

// version is set when the program is built.
var version = "dev"

func main() {
	sandbox.InsideMain()
	if program := client.Programs[filepath.Base(os.Args[0])]; program != nil { // a sandbox shows this program under these names
		os.Exit(program(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	switch name := filepath.Base(os.Args[0]); {
	case name == shellName, shell.Is(name): // a link, by which an agent finds it in place of its shell, or what it has in that place
		os.Exit(shellProgram(name, os.Args[1:]))
	case name == holderName:
		os.Exit(holderProgram(os.Args[1:]))
	}
	os.Exit(run(os.Args))
}

// run is the whole command, for main and for the tests. It returns the exit status.
func run(args []string) int {
	app := newApp()
	return statusOf(app.Run(delegated.OptionsFirst(app, args, "agent", "install-agent", "grants", "approvals", "quarantine", "sessions", "config", "agents", "audit", "token", "mcp")))
}
