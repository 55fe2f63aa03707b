// Command clai-sandboxd holds the long-running modes of clai-sandbox, which finds it beside itself:
// people know one command. It links what that one must not, to start fast.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/grants/store"
	"github.com/clairun/clai-sandbox/integration/gateway"
	"github.com/clairun/clai-sandbox/integration/mcp/files"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/bus"
	"github.com/clairun/clai-sandbox/sandbox/sshagent/serve"
)

// version is set when the program is built.
var version = "dev"

// statusFailed is the exit status where nothing could be started, as that of clai-sandbox.
const statusFailed = 125

func main() {
	sandbox.InsideMain()
	if program := client.Programs[filepath.Base(os.Args[0])]; program != nil { // a sandbox shows this program under these names
		os.Exit(program(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	if len(os.Args) == 1 && os.Args[0] == files.Place { // a sandbox shows this program there
		os.Exit(files.Program(os.Stdin, os.Stdout))
	}
	if len(os.Args) == 2 && os.Args[0] == files.Place && os.Args[1] == files.Stays {
		os.Exit(files.Stay(os.Stdin, os.Stdout))
	}
	if len(os.Args) == 2 && os.Args[1] == delegated.SSHAgent { // a launcher starts it
		if err := serve.Program(); err != nil {
			fmt.Fprintln(os.Stderr, text.Line(err.Error()))
			os.Exit(statusFailed)
		}
		return
	}
	app := newApp()
	typed := len(os.Args) > 1 && slices.Contains([]string{"agents", "approvals", "audit", "changes", "config", "explain", "image", "mcp", "token", delegated.Review}, os.Args[1])
	if typed { // by a person, as clai-sandbox
		app.HelpName = "clai-sandbox"
		os.Exit(statusOf(app.Run(os.Args)))
	}
	if err := app.Run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "clai-sandboxd: "+text.Line(oneLine(err)))
		os.Exit(statusFailed)
	}
}

// oneLine is an error with what mends it.
func oneLine(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	var open *store.OpenError
	if errors.As(err, &open) && open.Hint != "" {
		text += "; " + open.Hint
	}
	return text
}

// sshAgent is this program as what serves a sandbox's ssh-agent.
func sshAgent() ([]string, error) {
	self, err := os.Executable()
	return []string{self, delegated.SSHAgent}, err
}

func newApp() *cli.App {
	return &cli.App{
		Name:            "clai-sandboxd",
		Usage:           "the long-running modes of clai-sandbox",
		Version:         version,
		HideHelpCommand: true,
		Commands: []*cli.Command{gatewayCommand(), runnerCommand(), delegated.Approvals(approvalsAction, usageError), delegated.Audit(auditAction, usageError), delegated.Changes(changesAction, usageError), delegated.Config(configAction, usageError), delegated.Token(tokenAction, usageError), delegated.Agents(agentsAction, usageError), delegated.Decision(explainAction, usageError), delegated.Image(imageAction, usageError), delegated.MCP(mcpAction, usageError),
			{Name: delegated.Review, Hidden: true, Action: reviewAction, OnUsageError: usageError, HideHelpCommand: true}},

		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("unknown mode %q; clai-sandboxd --help lists them", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
}

func gatewayCommand() *cli.Command {
	return &cli.Command{
		Name:            "gateway",
		Usage:           "hold what agents ask until a person answers",
		HideHelpCommand: true,
		Description: "Owns the database of path grants, and listens on a unix socket in the runtime directory that only its user reaches. It is\n" +
			"started on demand, by systemd or by the command that needs it, and ends when nobody has needed it for a while.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "idle", Value: 10 * time.Minute, Usage: "end after `DURATION` without use; 0 for never"},
			&cli.DurationFlag{Name: "timeout", Value: 5 * time.Minute, Usage: "end a request that nobody answers after `DURATION`"},
			&cli.BoolFlag{Name: "no-notify", Usage: "show no notifications on the desktop"},
			&cli.StringFlag{Name: "containers", Usage: "answer containers on `ADDRESS:PORT`, too"},
		},
		Action: runGateway,
	}
}

func runGateway(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("gateway takes no argument %q", c.Args().First())
	}
	if c.Duration("timeout") <= 0 || c.Duration("idle") < 0 {
		return errors.New("--timeout must be longer than 0, and --idle not less")
	}
	umask := syscall.Umask(0o077)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	caller, err := profile.CurrentCaller()
	if err != nil {
		return err
	}
	listener, err := gateway.Passed()
	if err != nil {
		return err
	}
	if err := gateway.CloseInherited(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	desktop := ""
	if !c.Bool("no-notify") {
		desktop = sessionBus(caller)
	}
	err = gateway.Run(ctx, gateway.Options{Desktop: desktop,
		Directories: caller.Directories(), Home: caller.Home, User: caller.User, Version: version, Caller: caller, Runner: []string{self, runnerMode, fmt.Sprintf("--umask=%d", umask)}, Programs: programs(caller.Directories()),
		Timeout: c.Duration("timeout"), Idle: c.Duration("idle"), Containers: c.String("containers"), Listener: listener,
		Notify: func(n grants.Notice) { fmt.Fprintln(os.Stderr, "clai-sandboxd: "+profile.Printable(n.Text)) },
	})
	var running *gateway.RunningError
	if errors.As(err, &running) {
		said := running.Error()
		if is, err := (&client.Client{Socket: running.Socket}).Status(c.Context); err == nil {
			said += fmt.Sprintf(", version %s, as process %d; to have the one that is installed in its place: kill %d", profile.Printable(is.Version), is.PID, is.PID)
		}
		fmt.Fprintln(os.Stderr, "clai-sandbox: "+said)
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// sessionBus is the address of the person's session bus, if there may be one. A bus of a sandboxed
// command's would answer for the person: a socket that it could have made is none, and what an
// address starts is not started.
func sessionBus(c profile.Caller) string {
	addresses, runtime := os.Getenv("DBUS_SESSION_BUS_ADDRESS"), os.Getenv("XDG_RUNTIME_DIR")
	if addresses == "" && filepath.IsAbs(runtime) {
		addresses = "unix:runtime=yes"
	}
	list, err := bus.ParseAddress(addresses)
	if err != nil || addresses == "" {
		return ""
	}
	for _, address := range list {
		server, why := address.Server(runtime)
		if why != "" || server.Path != "" && c.CouldBeChosen(server.Path) {
			continue
		}
		if server.Path == "" {
			return "unix:abstract=" + dbus.EscapeBusAddressValue(server.Abstract)
		}
		if info, err := os.Stat(server.Path); err == nil && info.Mode().Type() == os.ModeSocket {
			return "unix:path=" + dbus.EscapeBusAddressValue(server.Path)
		}
	}
	return ""
}

// programs are the directories with bwrap and with this program.
func programs(d profile.Directories) []string {
	var list []string
	if bwrap, err := sandbox.FindBwrap(os.Getenv(profile.BwrapVariable), d.State); err == nil {
		list = append(list, filepath.Dir(bwrap.Path))
	} else {
		list = append(list, "/usr/bin")
	}
	if self, err := os.Executable(); err == nil {
		list = append(list, filepath.Dir(self))
	}
	return list
}
