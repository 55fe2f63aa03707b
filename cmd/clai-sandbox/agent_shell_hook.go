package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/clairun/clai-sandbox/integration/shell"
	"github.com/clairun/clai-sandbox/sandbox"
)

// hookRefuses is the exit status by which a hook keeps an agent from running a command.
const hookRefuses = 2

// hookProgram has an agent run its line by clai-shell. Whatever goes wrong, the line does not run.
func hookProgram(agent string, args []string) int {
	refuse := func(err error) int {
		fmt.Fprintln(os.Stderr, shellName+": "+explainError(err)+"; the command does not run")
		return hookRefuses
	}
	if len(args) > 0 {
		return refuse(&usage{"--hook takes no word behind it", shellName + " --help"})
	}
	program, err := shellPath()
	if err != nil {
		return refuse(err)
	}
	answer, err := shell.Hook(os.Stdin, func(line string) string {
		words := sandbox.Quote(program)
		if agent != "" {
			words += " --agent=" + sandbox.Quote(agent)
		}
		return words + " -c " + sandbox.Quote(line)
	})
	if err != nil {
		return refuse(err)
	}
	if _, err := os.Stdout.Write(append(answer, '\n')); err != nil {
		return refuse(err)
	}
	return 0
}

// shellPath is where clai-shell lies: beside this program.
func shellPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), shellName)
	if there, err := os.Stat(path); err != nil || !there.Mode().IsRegular() || there.Mode().Perm()&0o111 == 0 {
		return "", &sandbox.SetupError{Why: path + " is not there", Hint: "make it a link: ln -s clai-sandbox " + sandbox.Quote(path)}
	}
	return path, nil
}
