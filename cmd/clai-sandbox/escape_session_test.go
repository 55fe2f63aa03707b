package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/integration/rooms"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/mounts/nomount"
)

// The same attempts as a command of a session: in a sandbox that was there before, and is live
// where it can be, as clai-sandbox mcp has it.

// staysName is this test's binary as a program that takes the options of run, opens a session's
// sandbox and has one command in it.
const staysName = "clai-sandbox-stays"

var staying = driver{"clai-sandbox", func(p *place, a attempt, script string) []string {
	argv := ours.argv(p, a, script)
	argv[0] = staysName
	return argv
}}

// byStaying is what stops an attempt there.
func (a attempt) byStaying() string {
	if a.byStreams {
		return "streams are pipes"
	}
	return a.by
}

func staysMain() {
	command := runCommand()
	command.Action = func(c *cli.Context) error {
		j, err := prepare(c, session.Options{}, (*session.Session).PrepareRun)
		if err != nil {
			return err
		}
		defer j.session.Close()
		bwrap, err := j.bwrap()
		if err != nil {
			return err
		}
		launcher := sandbox.Launcher{Bwrap: bwrap, State: j.directories.State}
		if sandbox.CanBeLive(j.profile) == "" {
			launcher.Live = &sandbox.Live{}
		}
		opened, err := j.prepared.Open(context.Background(), launcher)
		if err != nil {
			return err
		}
		defer opened.Close()
		dir, err := roomsDirectory()
		unreached := func() {}
		if err == nil {
			_, unreached, err = rooms.Serve(dir, rooms.About{Agent: j.profile.Agent, Workspace: j.profile.Workspace, Command: "a test", Shell: "/bin/sh"}, opened, nil)
		}
		if err != nil {
			return err
		}
		defer func() { opened.Close(); unreached() }()
		p, err := opened.Start(sandbox.Command{Argv: c.Args().Slice(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
		if err != nil {
			return err
		}
		result, err := p.Wait()
		if err != nil {
			return err
		}
		return exit(result.ExitCode)
	}
	app := newApp()
	app.Commands = []*cli.Command{command}
	os.Exit(statusOf(app.Run(os.Args)))
}

func TestEscapesOfASessionsCommand(t *testing.T) {
	if os.Getenv(nomount.Variable) != "" {
		t.Skip("no sandbox stays here")
	}
	for i, a := range attempts {
		if !a.applies() {
			continue
		}
		t.Run(fmt.Sprintf("%02d %s", i+1, a.title), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			a.refused = a.refused || a.byStreams
			through, err := a.make(p, staying)
			if err != nil {
				t.Fatal(err)
			}
			if through {
				t.Errorf("it got through; exit status %d:\n%s", p.status, p.out)
			}
			if a.byStreams && p.status != statusNoSandbox {
				t.Errorf("exit status %d:\n%s", p.status, p.out)
			}
			if left := p.residue(); left != "" {
				t.Errorf("left on the host:\n%s", left)
			}
			user := map[bool]string{true: "root", false: "user"}[os.Getuid() == 0]
			t.Logf("held for %s: %s: %s: by %s (in a session)", user, a.class, a.title, a.byStaying())
		})
	}
}
