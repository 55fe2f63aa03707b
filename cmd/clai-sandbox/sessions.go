package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/integration/rooms"
	"github.com/clairun/clai-sandbox/profile"
)

func sessionsCommand() *cli.Command {
	asJSON := func() cli.Flag {
		return &cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print JSON"}
	}
	sub := func(name, usage, arguments, description string, action cli.ActionFunc, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: arguments, Description: description, Flags: flags, Action: action,
			OnUsageError: usageError, HideHelpCommand: true}
	}
	return &cli.Command{
		Name:  "sessions",
		Usage: "show the sandboxes that agents' sessions have, and reach into them",
		Description: "clai-sandbox mcp has one sandbox for all that a client calls. What runs there is listed, and a person can have a shell or a\n" +
			"command of their own in it: it sees what the agent's commands see, and may do what they may.",
		OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return &usage{fmt.Sprintf("unknown command %q", c.Args().First()), "clai-sandbox sessions --help lists the commands"}
			}
			return cli.ShowSubcommandHelp(c)
		},
		Subcommands: []*cli.Command{
			sub("list", "list them, the oldest first", "", "", sessionsList, asJSON()),
			sub("show", "show what runs in one", "ID", "", sessionsShow, asJSON()),
			sub("stop", "end one, with all that runs there", "ID", "The next call of the agent's begins a new one.", sessionsStop),
			sub("publish", "reach a port of one at this machine's 127.0.0.1, as long as the session stays", "ID PORT[:PORT]",
				"PORT is the same on both sides; with two, the first is this machine's. Of a session with a disabled or filtered network: with the\n"+
					"host's own, its ports are reached as they are. Whoever uses this machine can connect, and what answers is the agent's.", sessionsPublish),
			sub("attach", "open a shell in one, with a terminal of its own", "ID",
				"What the agent's commands print does not come there, nor can they read what is typed. The shell ends with this command.", sessionsAttach),
		},
	}
}

// roomsDirectory is where the sandboxes that stay are reached.
func roomsDirectory() (string, error) {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return "", err
	}
	return filepath.Join(grants.SocketDirectory(caller.Directories()), rooms.Directory), nil
}

// theSession is the one that a command is about.
func theSession(c *cli.Context) (dir, id string, err error) {
	if c.NArg() != 1 {
		return "", "", &usage{"which session?", "clai-sandbox sessions list shows their ids"}
	}
	dir, err = roomsDirectory()
	return dir, c.Args().First(), err
}

// aboutSession words what went wrong.
func aboutSession(id string, err error) error {
	var start *rooms.StartError
	switch {
	case errors.Is(err, rooms.ErrUnknown):
		return &usage{"there is no session " + profile.Printable(id), "clai-sandbox sessions list shows those that there are"}
	case errors.As(err, &start) && start.Status != 0:
		fmt.Fprintln(os.Stderr, "clai-sandbox: "+oneLine(err.Error()))
		return exit(start.Status)
	}
	return err
}

func sessionsList(c *cli.Context) error {
	if err := noArguments(c, "it lists all"); err != nil {
		return err
	}
	dir, err := roomsDirectory()
	if err != nil {
		return err
	}
	list, err := rooms.List(dir)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(os.Stdout, list)
	}
	if len(list) == 0 {
		fmt.Println("no session has a sandbox")
		return nil
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tAGENT\tWORKSPACE\tPROCESSES\tAGE")
	for _, r := range list {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", r.ID, profile.Printable(r.Agent), profile.Printable(r.Workspace), len(r.Processes), rough(time.Since(r.Began)))
	}
	return table.Flush()
}

func sessionsShow(c *cli.Context) error {
	dir, id, err := theSession(c)
	if err != nil {
		return err
	}
	r, err := rooms.Show(dir, id)
	if err != nil {
		return aboutSession(id, err)
	}
	if c.Bool("json") {
		return printJSON(os.Stdout, r)
	}
	fmt.Printf("agent      %s\nworkspace  %s\nsince      %s\nby         %s (process %d)\n", profile.Printable(r.Agent), profile.Printable(r.Workspace), rough(time.Since(r.Began)),
		profile.Printable(r.Command), r.PID)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, p := range r.Processes {
		fmt.Fprintf(table, "%d\t%s\n", p.PID, profile.Printable(p.Command))
	}
	return table.Flush()
}

func sessionsStop(c *cli.Context) error {
	dir, id, err := theSession(c)
	if err != nil {
		return err
	}
	return aboutSession(id, rooms.Stop(dir, id))
}

func sessionsPublish(c *cli.Context) error {
	if c.NArg() != 2 {
		return &usage{"publish wants a session and a port", "for example: clai-sandbox sessions publish ID 3000; clai-sandbox sessions list shows the ids"}
	}
	port, err := profile.ParsePublished(c.Args().Get(1))
	if err != nil {
		return err
	}
	dir, err := roomsDirectory()
	if err != nil {
		return err
	}
	if err := aboutSession(c.Args().First(), rooms.Publish(dir, c.Args().First(), port)); err != nil {
		return err
	}
	fmt.Printf("http://127.0.0.1:%d leads to port %d of the session\n", port.Host, port.Inside)
	return nil
}

func sessionsAttach(c *cli.Context) error {
	dir, id, err := theSession(c)
	if err != nil {
		return err
	}
	return joinSession(dir, id, nil)
}

// runJoined is run --join: a command in a sandbox that is there.
func runJoined(c *cli.Context) error {
	for _, name := range c.LocalFlagNames() {
		if name != "join" {
			return &usage{"--" + name + " says nothing with --join", "the sandbox is there already; leave it out"}
		}
	}
	command, err := commandFrom(c)
	if err != nil {
		return err
	}
	dir, err := roomsDirectory()
	if err != nil {
		return err
	}
	return joinSession(dir, c.String("join"), command)
}

// joinSession runs a command, or a shell, in a session's sandbox: at a terminal of its own if this
// is one, else with pipes.
func joinSession(dir, id string, command []string) error {
	join := joinPipes
	if isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		join = joinTerminal
	}
	status, err := join(func(c rooms.Command) (*rooms.Started, error) { return rooms.Start(dir, id, c) }, rooms.Command{Argv: command})
	if err != nil {
		return aboutSession(id, err)
	}
	return exit(status)
}
