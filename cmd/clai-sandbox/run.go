package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/diagnosis"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run a command in a sandbox",
		ArgsUsage: "-- COMMAND [ARGUMENT…]",
		Description: "The command sees the system read-only, the workspace read-write, and what was granted; nothing else of the\n" +
			"machine. Its standard streams are the caller's. The exit status is the command's own, 128+N if signal N ended it,\n" +
			"124 after --timeout, 125 if nothing was run, 126 if the command cannot be executed, 127 if it was not found.",
		Flags: append(runFlags(),
			&cli.StringFlag{Name: "join", Usage: "run the command in the sandbox of the session `ID` (clai-sandbox sessions list), with no other option"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "dry-run", Usage: "print a shell command line that shows the same files by bubblewrap alone, with comments that say what that lacks, and run nothing"},
		),
		OnUsageError: usageError,
		Before:       forgetFlags,
		Action:       runAction,
	}
}

// runFlags are those of whatever runs a command.
func runFlags() []cli.Flag {
	return append(delegated.ProfileFlags(),
		&cli.BoolFlag{DisableDefaultText: true, Name: "broker", Usage: "let the command ask for grants: fs_request_grant PATH"},
		&cli.BoolFlag{Name: "live", DefaultText: "with --broker, where the kernel can", Usage: "show what is granted, and take away what is revoked, while the command runs"},
		&cli.StringFlag{Name: "on-success", Usage: "when the command exits with 0, `apply|ask|discard` what it changed copy on write: apply what the configuration's rules allow, show all of it at the terminal, or throw it away", DefaultText: "it is kept"},
		&cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print one JSON object about the run on standard output, after the command's own output"},
		&cli.IntFlag{Name: "json-fd", Usage: "print that object on the descriptor `N` instead", DefaultText: "none"},
	)
}

// forgetFlags is for when the words have been read: what they say is in the context. For each flag
// that was not used the library would go through all of them, to find other names of its, and match
// each against a regular expression: five hundred times at each start.
func forgetFlags(c *cli.Context) error {
	c.Command.Flags = nil
	return nil
}

// shellCommand is run with the person's shell as its command.
func shellCommand() *cli.Command {
	command := runCommand()
	command.Name, command.Usage, command.ArgsUsage = "shell", "open an interactive shell in a sandbox", " "
	command.Description = "The shell is $SHELL where the sandbox has it, else bash, else sh. Options and exit status are those of clai-sandbox run."
	command.Action = func(c *cli.Context) error {
		if err := noArguments(c, "to run a command: clai-sandbox run -- COMMAND"); err != nil {
			return err
		}
		return runAction(c)
	}
	return command
}

// personsShell is the first that the sandbox has, of $SHELL and the usual ones.
func (j job) personsShell() []string {
	command := []string{"/bin/sh"}
	for _, shell := range []string{os.Getenv("SHELL"), "/bin/bash"} {
		if filepath.IsAbs(shell) && j.plan.Find(sandbox.Host{}, shell) == nil {
			command[0] = shell
			break
		}
	}
	if sandbox.ControlsTerminal(os.Stdin, os.Stdout, os.Stderr) {
		command = append(command, "-i")
	}
	return command
}

func runAction(c *cli.Context) error {
	if c.IsSet("join") {
		return runJoined(c)
	}
	report, err := reportFile(c)
	if err != nil {
		return err
	}
	if c.Bool("dry-run") {
		if c.IsSet("on-success") {
			return &usage{"--on-success says nothing with --dry-run", "leave one of them out"}
		}
		return dryRun(c)
	}
	return runErrand(c, errandFrom, report)
}

// errandFrom is what the command line says to run.
func errandFrom(c *cli.Context) (e errand, err error) {
	if e.command, err = commandFrom(c); err == nil {
		e.options, err = brokerOptions(c, e.command)
	}
	if err == nil {
		e.request, err = delegated.RequestFrom(c)
	}
	return e, err
}

// An errand is what is run in a sandbox.
type errand struct {
	command []string // nil: the person's shell
	request profile.Request
	options session.Options
	prepare preparation                 // nil: as for any command
	control *sandbox.Control            // of the run
	over    func()                      // is called when nothing runs any more
	begins  func(job) ([]string, error) // says what the command is, once the sandbox is known; nil: command
	ended   func(job, *sandbox.Result)  // is told how it ended, while the session lasts; nil: nobody
}

// runErrand runs a command, and tells how it went: a program in the report, or a person.
func runErrand(c *cli.Context, what func(*cli.Context) (errand, error), report *os.File) error {
	result, missing, err := runSandboxed(c, what)
	switch {
	case report != nil:
		if !c.Bool("broker") && !c.Bool("live") { // nobody inside can ask
			for i, l := range missing {
				missing[i].Hint = l.Remedy(c.String("agent"))
			}
		}
		r := newRunResult(err, result)
		r.Missing = append(r.Missing, missing...)
		if err := printJSON(report, r); err != nil {
			return err
		}
		return exit(statusAfter(err, result))
	case err != nil:
		return err
	}
	warn(result.Notices)
	never := neverOffered{}
	if len(missing) > 0 {
		if caller, err := profile.CurrentCaller(); err == nil {
			never = readNever(caller.Directories().State)
		}
	}
	for _, l := range missing {
		if never.has(cmp.Or(c.String("agent"), profile.DefaultAgent), l.Path) {
			continue
		}
		told := func(n sandbox.Notice) bool { return n.Kind == sandbox.NoticeNetwork }
		if l.Kind == diagnosis.Domain && slices.ContainsFunc(result.Notices, told) {
			continue // with what allows it
		}
		fmt.Fprintln(os.Stderr, "clai-sandbox: "+oneLine(remedy(l, c.String("agent"))))
	}
	return exit(statusAfter(nil, result))
}

// remedy is what to type about a lack, with what a person is warned of who grants it.
func remedy(l diagnosis.Missing, agent string) string {
	text := l.Remedy(agent)
	if !l.Grantable() {
		return text
	}
	if told := riskOf(l.Path, l.Access); told != "" {
		text += " (" + told + ")"
	}
	return text
}

// riskOf is what a person is warned of before a path is granted.
func riskOf(path string, access profile.Access) string {
	return warnings(path, access, func(k grants.WarningKind) bool {
		return k == grants.WarnTooBroad || k == grants.WarnSensitive || k == grants.WarnExecuted
	})
}

// runSandboxed runs the command of the command line, and says what it lacked. The error means that
// nothing was run.
func runSandboxed(c *cli.Context, what func(*cli.Context) (errand, error)) (sandbox.Result, []diagnosis.Missing, error) {
	var none sandbox.Result
	e, err := what(c)
	if err != nil {
		return none, nil, err
	}
	command, options := e.command, e.options
	prepare := e.prepare
	if prepare == nil {
		prepare = (*session.Session).PrepareRun
	}
	j, err := prepareRequest(e.request, options, prepare)
	if err != nil {
		return none, nil, err
	}
	defer j.session.Close()
	if e.over != nil {
		defer e.over()
	}
	if e.begins != nil {
		if command, err = e.begins(j); err != nil {
			return none, nil, err
		}
	}
	if command == nil {
		command = j.personsShell()
	}
	if why := sandbox.CanBeLive(j.profile); options.Live && c.IsSet("live") && why != "" {
		return none, nil, &usage{"--live: not here: " + why, "leave it out: grants then reach the next command"}
	}
	after, err := onSuccess(c, j.prepared.Plan, j.profile.Agent)
	if err != nil {
		return none, nil, err
	}
	bwrap, err := j.bwrap()
	if err != nil {
		return none, nil, err
	}
	j.sayClosed(c)
	launcher := sandbox.Launcher{Bwrap: bwrap, State: j.directories.State, Control: e.control, Terminal: sandbox.ControlsTerminal(os.Stdin, os.Stdout, os.Stderr), Job: true}
	launcher.Relay = relayedSignals(launcher.Terminal)
	told := &tellPorts{quiet: c.Bool("json") || c.IsSet("json-fd")}
	launcher.Unpublished = told.tell
	stdio := sandbox.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	heard := listen(&stdio)
	ctx := context.Background()
	if launcher.Terminal && !signal.Ignored(syscall.SIGHUP) { // the terminal is closed: end the command, and leave nothing undone
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	result, err := j.prepared.Run(ctx, launcher, command, stdio)
	said := heard.end()
	result.Notices = slices.DeleteFunc(append(result.Notices, j.session.Notices()...), told.has)
	if err != nil {
		return result, nil, err
	}
	result.Notices = append(result.Notices, after.done(result.Outcome == sandbox.Exited && result.ExitCode == 0)...)
	if result.Outcome == sandbox.Exited && result.ExitCode == 0 && diagnosis.LeavesInBackground(command) {
		result.Notices = append(result.Notices, sandbox.Notice{Kind: sandbox.NoticeBackground,
			Text: "what the command left in the background ended with it; for a server that stays, leave & out, or start it in: clai-sandbox shell"})
	}
	if e.ended != nil {
		e.ended(j, &result)
	}
	missing := j.missing(command, result, said, heard == nil)
	j.keepLastRun(command, missing)
	return result, missing, nil
}

// sayClosed tells a person before the command runs that its network reaches nothing, or nothing
// that nobody is asked about. A program hears of it in the notices.
func (j job) sayClosed(c *cli.Context) {
	why := j.profile.Closed()
	if why != "" && j.session.ID() != "" {
		why = "the network is filtered: each connection waits until you allow it: clai-sandbox grants review"
	}
	if why != "" && !c.Bool("json") && !c.IsSet("json-fd") {
		fmt.Fprintln(os.Stderr, "clai-sandbox: "+oneLine(why))
		j.prepared.Plan.Notices = slices.DeleteFunc(j.prepared.Plan.Notices, func(n sandbox.Notice) bool { return n.Kind == session.NoticeClosed })
	}
}

// tellPorts tells a person, while the command runs, of what it serves in vain. A program hears of
// it in the notices, and so does who has a terminal that the command draws on.
type tellPorts struct {
	quiet bool
	mu    sync.Mutex
	said  []string
}

func (t *tellPorts) tell(n sandbox.Notice) {
	settings, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS)
	if drawn := err == nil && settings.Oflag&unix.OPOST == 0; t.quiet || drawn {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said = append(t.said, n.Text)
	fmt.Fprintln(os.Stderr, "clai-sandbox: "+oneLine(n.Text))
}

// has reports whether something was told.
func (t *tellPorts) has(n sandbox.Notice) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.said, n.Text)
}

// brokerOptions attach the run to the broker, where that is asked for.
func brokerOptions(c *cli.Context, command []string) (session.Options, error) {
	live := c.Bool("live")
	if !c.Bool("broker") && !live {
		return session.Options{}, nil
	}
	if c.IsSet("broker") && !c.Bool("broker") {
		return session.Options{}, &usage{"--live takes a broker", "leave --broker=false out"}
	}
	caller, err := profile.CurrentCaller()
	if err != nil {
		return session.Options{}, err
	}
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = sandbox.Quote(word)
	}
	return session.Options{Broker: client.Default(caller.Directories()), Live: live || !c.IsSet("live"), Command: strings.Join(words, " ")}, nil
}

// relayedSignals are those that the command gets from us. Those of a terminal it gets from the
// terminal.
func relayedSignals(terminal bool) []os.Signal {
	list := []os.Signal{syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2}
	if !terminal {
		list = append(list, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP)
	}
	return slices.DeleteFunc(list, signal.Ignored)
}

func dryRun(c *cli.Context) error {
	command, err := commandFrom(c)
	if err != nil {
		return err
	}
	j, err := prepare(c, session.Options{}, (*session.Session).Prepare)
	if err != nil {
		return err
	}
	if command == nil {
		command = j.personsShell()
	}
	bwrap, err := j.bwrap()
	if err != nil {
		return err
	}
	fmt.Println(j.plan.ShellCommand(bwrap, command))
	fmt.Println("# This is what bubblewrap alone can do. clai-sandbox run has bubblewrap make the base, mounts the rest itself before the\n# command begins, and adds:")
	for _, line := range j.plan.Beyond() {
		fmt.Println("#   " + oneLine(line))
	}
	fmt.Fprintln(os.Stderr, "clai-sandbox: the printed line protects less than clai-sandbox run does; its comments say what is missing")
	warn(j.plan.Notices)
	return nil
}

// commandFrom is the command behind the options. Nil: the person's shell.
func commandFrom(c *cli.Context) ([]string, error) {
	if c.Command.Name == "shell" {
		return nil, nil
	}
	command := c.Args().Slice()
	if len(command) == 0 {
		return nil, &usage{"no command given", "write it after --, for example: clai-sandbox run -- ls -l"}
	}
	return command, nil
}

// statusAfter is the exit status of a run.
func statusAfter(err error, result sandbox.Result) int {
	switch {
	case err != nil:
		return statusFor(err)
	case result.Outcome == sandbox.TimedOut:
		return statusTimeout
	default:
		return result.ExitCode
	}
}
