// Command clai-sandbox-hostexec is put into containers as hostexec; their programs run commands on
// the host by it, where a person lets them.
package main

import (
	"os"

	"github.com/clairun/clai-sandbox/outside/container"
)

func main() { os.Exit(container.Program(os.Args[1:], os.Stdout, os.Stderr)) }
