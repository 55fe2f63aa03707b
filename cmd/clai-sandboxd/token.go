package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/outside/container"
	"github.com/clairun/clai-sandbox/outside/door"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
)

// tokenAction is what a command below token does.
func tokenAction(name string) cli.ActionFunc {
	switch name {
	case "create":
		return tokenCreate
	case "list":
		return tokenList
	case "revoke":
		return tokenRevoke
	}
	return noSubcommand("token")
}

func tokenCreate(c *cli.Context) error {
	if c.Args().Present() {
		return &misuse{fmt.Sprintf("create takes no argument %q", c.Args().First()), "--workspace DIR names the directory"}
	}
	caller, d, err := directories()
	if err != nil {
		return err
	}
	workspace, err := filepath.Abs(c.String("workspace"))
	if err == nil {
		workspace, err = filepath.EvalSymlinks(workspace)
	}
	if err != nil {
		return err
	}
	if info, err := os.Stat(workspace); err != nil || !info.IsDir() {
		return errors.Join(err, &misuse{profile.Printable(workspace) + " is no directory", "--workspace DIR names one that the container has"})
	}
	if workspace == caller.Home || workspace == "/" {
		return &misuse{profile.Printable(workspace) + " is no workspace for a container", "--workspace DIR names the project's"}
	}
	t, secret, err := door.In(d.State).Create(door.Token{Agent: cmp.Or(c.String("agent"), profile.DefaultAgent), Workspace: workspace, At: cmp.Or(c.String("at"), workspace),
		Project: c.String("project"), Branch: c.String("branch")})
	if err != nil {
		return err
	}
	socket := filepath.Join(grants.SocketDirectory(d), door.SocketName)
	fmt.Fprintf(os.Stderr, "token %s, for agent %s in %s; a container needs:\n"+
		"  the directory %s mounted, and %s=%s there, or %s=ADDRESS:PORT with clai-sandbox gateway --containers ADDRESS:PORT\n"+
		"  %s=TOKEN, or %s=FILE, and the program clai-sandbox-hostexec there, as hostexec\n"+
		"to take it back: clai-sandbox token revoke %s\n",
		t.ID, text.Line(t.Agent), text.Line(t.Workspace), text.Line(filepath.Dir(socket)), container.HostVariable, "PLACE/"+filepath.Base(socket), container.HostVariable,
		container.TokenVariable, container.TokenFileVariable, t.ID)
	_, err = fmt.Println(secret)
	return err
}

// A shownToken is what list shows of one: nothing of the secret.
type shownToken struct {
	ID        string `json:"id"`
	Agent     string `json:"agentId"`
	Workspace string `json:"workspace"`
	At        string `json:"at"`
	Project   string `json:"project,omitempty"`
	Branch    string `json:"branch,omitempty"`
	CreatedAt int64  `json:"createdAtUnixMs"`
}

func tokenList(c *cli.Context) error {
	if c.Args().Present() {
		return &misuse{fmt.Sprintf("list takes no argument %q", c.Args().First()), "clai-sandbox token --help lists the commands"}
	}
	_, d, err := directories()
	if err != nil {
		return err
	}
	list, err := door.In(d.State).List()
	if err != nil {
		return err
	}
	shown := []shownToken{}
	for _, t := range list {
		shown = append(shown, shownToken{t.ID, t.Agent, t.Workspace, t.At, t.Project, t.Branch, t.CreatedAt})
	}
	if c.Bool("json") {
		return printJSON(shown)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	for _, t := range shown {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, text.Line(t.Agent), text.Line(t.Workspace), text.Line(t.Project), text.Line(t.Branch), time.UnixMilli(t.CreatedAt).Format("2006-01-02 15:04"))
	}
	return table.Flush()
}

func tokenRevoke(c *cli.Context) error {
	if c.NArg() != 1 {
		return &misuse{"revoke takes the ID of one token", "clai-sandbox token list shows them"}
	}
	_, d, err := directories()
	if err != nil {
		return err
	}
	if err := door.In(d.State).Revoke(c.Args().First()); err != nil {
		return err
	}
	fmt.Printf("token %s is revoked\n", text.Line(c.Args().First()))
	return nil
}
