package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/protect"
	"github.com/clairun/clai-sandbox/sandbox/repository"
)

func quarantineCommand() *cli.Command {
	asJSON := func() cli.Flag {
		return &cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print JSON"}
	}
	sub := func(name, usage, arguments, description string, action cli.ActionFunc, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: arguments, Description: description, Flags: flags, Action: action,
			OnUsageError: usageError, HideHelpCommand: true}
	}
	return &cli.Command{
		Name:  "quarantine",
		Usage: "show what commands made that something outside would execute, and put it back or discard it",
		Description: "What comes into being under a protected name while a command runs is set aside, and when the command has ended it is\n" +
			"moved here. So are settings of git's that a command changed and that did not reach the repository, because git would execute\n" +
			"them or be led elsewhere. git does not miss what is here of a repository's files, until it is put back or discarded.\n" +
			"Look at it before you put it back: something outside the sandbox executes it or does as it says.",
		OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return &usage{fmt.Sprintf("unknown command %q", c.Args().First()), "clai-sandbox quarantine --help lists the commands"}
			}
			return cli.ShowSubcommandHelp(c)
		},
		Subcommands: []*cli.Command{
			sub("list", "list what is there, the latest first", "", "", quarantineList, asJSON()),
			sub("show", "show what it is and how it begins", "ID", "", quarantineShow, asJSON()),
			sub("restore", "put it back to where it came into being, or make the setting", "ID…",
				"No file that is there is replaced, and no link is followed. Not while a command runs that may write there; a setting at any time.", quarantineRestore),
			sub("discard", "remove it for good", "ID…", "", quarantineDiscard),
		},
	}
}

// quarantine is that of the caller.
func quarantine() (*protect.Quarantine, string, error) {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return nil, "", err
	}
	state := caller.Directories().State
	return protect.QuarantineIn(state), state, nil
}

func quarantineList(c *cli.Context) error {
	if err := noArguments(c, "it lists everything"); err != nil {
		return err
	}
	q, _, err := quarantine()
	if err != nil {
		return err
	}
	list, err := q.List()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		if list == nil {
			list = []protect.Entry{}
		}
		return printJSON(os.Stdout, list)
	}
	if len(list) == 0 {
		fmt.Println("nothing is in the quarantine")
		return nil
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tPATH\tKIND\tSIZE\tAGENT\tAGE")
	for _, e := range list {
		place := e.Path
		if e.Setting != nil {
			place += ": " + e.Setting.Key
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", e.ID, profile.Printable(place), profile.Printable(e.Kind), e.Size, profile.Printable(e.Agent), rough(time.Since(e.When)))
	}
	return table.Flush()
}

// maxShown is how much of a file is shown, in bytes.
const maxShown = 4096

func quarantineShow(c *cli.Context) error {
	if c.NArg() != 1 {
		return &usage{"show takes one ID", "clai-sandbox quarantine list shows them"}
	}
	q, _, err := quarantine()
	if err != nil {
		return err
	}
	id := c.Args().First()
	e, err := q.Load(id)
	if err != nil {
		return notThere(id, err)
	}
	head := ""
	if e.At == "" && e.Setting == nil {
		if head, err = q.Head(id, maxShown); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return printJSON(os.Stdout, struct {
			protect.Entry
			Head string `json:"head"`
		}{e, head})
	}
	if e.Setting != nil {
		showSetting(e)
		return nil
	}
	fmt.Printf("%s %s, %d bytes, made %s ago by agent %s in %s\nallowed by: --unprotect %s\n", profile.Printable(e.Kind), profile.Printable(e.Path), e.Size,
		rough(time.Since(e.When)), profile.Printable(e.Agent), profile.Printable(e.Workspace), profile.Printable(e.Rule))
	if e.At != "" {
		fmt.Println("it was too large to be moved, and is at " + profile.Printable(e.At))
	}
	for line := range strings.Lines(head) {
		fmt.Println("  | " + profile.Printable(strings.TrimSuffix(line, "\n")))
	}
	if len(head) >= maxShown {
		fmt.Println("  and more")
	}
	return nil
}

// showSetting shows a setting of git's that waits.
func showSetting(e protect.Entry) {
	fmt.Printf("setting of %s, made %s ago by agent %s in %s\n", profile.Printable(e.Path), rough(time.Since(e.When)), profile.Printable(e.Agent), profile.Printable(e.Workspace))
	if e.Setting.Removed {
		fmt.Println("  - " + profile.Printable(e.Setting.Key))
		return
	}
	fmt.Println("  + " + profile.Printable(e.Setting.Key) + " = " + profile.Printable(e.Setting.Value))
}

// restoreSetting makes a change of git's settings that a person wants.
func restoreSetting(q *protect.Quarantine, e protect.Entry) error {
	if err := repository.Set(e.Path, repository.Left{Key: e.Setting.Key, Value: e.Setting.Value, Removed: e.Setting.Removed}); err != nil {
		return fmt.Errorf("change %s: %w", profile.Printable(e.Path), err)
	}
	showSetting(e)
	return q.Discard(e.ID)
}

func quarantineRestore(c *cli.Context) error {
	return eachInQuarantine(c, func(q *protect.Quarantine, state, id string) error {
		e, err := q.Load(id)
		if err != nil {
			return notThere(id, err)
		}
		if e.Setting != nil {
			return restoreSetting(q, e)
		}
		if protect.Runs(state, e.Path) {
			return &usage{"a command runs that may write " + profile.Printable(e.Path) + ", and it would be set aside again", "wait until it has ended"}
		}
		if e, err = q.Restore(id); err != nil {
			var errno syscall.Errno
			if errors.As(err, &errno) {
				err = errno
			}
			return fmt.Errorf("put %s back: %w", profile.Printable(e.Path), err)
		}
		fmt.Println(profile.Printable(e.Path))
		return lookAgain(e.Path)
	})
}

func quarantineDiscard(c *cli.Context) error {
	return eachInQuarantine(c, func(q *protect.Quarantine, _, id string) error {
		e, err := q.Load(id)
		if err := q.Discard(id); err != nil || e.Setting != nil {
			return notThere(id, err)
		}
		if err != nil { // nobody can say what it was
			return nil
		}
		return lookAgain(e.Path)
	})
}

// lookAgain has git look for a file in its working tree that was in the quarantine.
func lookAgain(path string) error {
	if err := repository.LookAgain(path); err != nil {
		return fmt.Errorf("git takes %s for unchanged, whatever it holds, until 'git update-index --no-skip-worktree': %w", profile.Printable(path), err)
	}
	return nil
}

func eachInQuarantine(c *cli.Context, do func(q *protect.Quarantine, state, id string) error) error {
	if !c.Args().Present() {
		return &usage{c.Command.Name + " takes an ID", "clai-sandbox quarantine list shows them"}
	}
	q, state, err := quarantine()
	if err != nil {
		return err
	}
	for _, id := range c.Args().Slice() {
		if err := do(q, state, id); err != nil {
			return err
		}
	}
	return nil
}

func notThere(id string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return &usage{"nothing in the quarantine is called " + profile.Printable(id), "clai-sandbox quarantine list shows what is"}
	}
	return err
}
