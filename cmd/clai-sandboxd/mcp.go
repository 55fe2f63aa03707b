package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/integration/mcp"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/wire/socket"
)

// mcpAction serves agents' tools. Standard output is the protocol's.
func mcpAction(c *cli.Context) error {
	if c.Args().Present() {
		return &misuse{"mcp takes no argument", "clai-sandbox mcp --help lists the options"}
	}
	listen, tokenFile := c.String("listen"), c.String("token-file")
	if listen == "" && tokenFile != "" {
		return &misuse{"--token-file is for --listen", "leave it out"}
	}
	request, err := delegated.RequestFrom(c)
	if err != nil {
		return err
	}
	caller, err := profile.CurrentCaller()
	if err != nil {
		return err
	}
	directories := caller.Directories()
	config, err := profile.Load(directories)
	if err != nil {
		return err
	}
	// Told before anybody is served.
	if request.Agent, err = config.AgentOf(request); err != nil {
		return err
	}
	p, err := profile.Resolve(config, caller, request)
	if err != nil {
		return err
	}
	request.Workspace, request.Base = p.Workspace, p.Base()
	for _, dir := range []string{directories.Config, directories.State, directories.Runtime} { // what is not there cannot be covered
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, os.ErrPermission) && !errors.Is(err, syscall.EROFS) {
			return err
		}
	}
	options := mcp.Options{Version: version, Bwrap: os.Getenv(profile.BwrapVariable), TrustElicitation: p.TrustElicitation, OutputLimit: c.Int("output-limit"),
		Session: session.Options{Caller: caller, Config: config, Request: request, SSHAgent: sshAgent, Command: "clai-sandbox mcp"}}
	switch stay, never := c.Bool("session-sandbox"), c.Bool("sandbox-per-call"); {
	case stay && never:
		return &misuse{"--session-sandbox and --sandbox-per-call contradict each other", "leave one of them out"}
	case stay:
		options.Stay = mcp.StayAlways
	case never:
		options.Stay = mcp.StayNever
	}
	if options.Structured, err = mcp.ParseStructured(c.String("structured")); err != nil {
		return &misuse{"--structured: " + text.Line(err.Error()), "--structured auto is the default"}
	}
	if n := options.OutputLimit; n < mcp.MinOutputLimit || n > mcp.MaxOutputLimit {
		return &misuse{fmt.Sprintf("--output-limit: %d is not from %d to %d", n, mcp.MinOutputLimit, mcp.MaxOutputLimit), fmt.Sprintf("--output-limit %d is the default", mcp.DefaultOutputLimit)}
	}
	if !c.Bool("no-broker") {
		options.Session.Broker, options.Session.Live = client.Default(directories), true
	}
	tools := newToolPolicy(config, request.Agent).withWorkspace(p.WorkspaceAccess, p.AccessOrigin)
	options.Allowed = tools.allowed
	for _, m := range tools.mistakes {
		fmt.Fprintln(os.Stderr, "clai-sandbox: probably a mistake: "+policy.DisplayText(m))
	}
	debug.SetGCPercent(mcp.GCPercent)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	// A terminal that stops a job would leave the sandboxes running, and nobody there to look after
	// them.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	if listen == "" {
		return mcp.ServeStdio(ctx, options, os.Stdin, os.Stdout)
	}
	listener, token, err := listenMCP(directories, listen, tokenFile)
	if err != nil {
		return err
	}
	return mcp.ServeHTTP(ctx, options, listener, token)
}

// listenMCP listens where --listen says. On a unix socket a token may be asked for, elsewhere it
// must be. Token file and socket lie where no sandbox sees them, or what another agent runs would
// be a client.
func listenMCP(directories profile.Directories, address, tokenFile string) (net.Listener, string, error) {
	token := ""
	if tokenFile != "" {
		if err := checkOwnPlace(directories, "--token-file", tokenFile); err != nil {
			return nil, "", err
		}
		var err error
		if token, err = mcp.ReadToken(tokenFile); err != nil {
			return nil, "", err
		}
	}
	if path, isUnix := strings.CutPrefix(address, "unix:"); isUnix {
		if err := checkOwnPlace(directories, "--listen", path); err != nil {
			return nil, "", err
		}
		l, err := socket.Listen(path)
		return l, token, err
	}
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	switch {
	case err != nil || ip == nil || !ip.IsLoopback():
		return nil, "", &misuse{"--listen " + profile.Printable(address) + " is not unix:PATH, and not an address of this machine alone", "for example --listen 127.0.0.1:8377"}
	case token == "":
		return nil, "", &misuse{"--listen at an address needs a token, or anybody on this machine could run commands", "--token-file FILE; or --listen unix:PATH"}
	}
	l, err := net.Listen("tcp", address)
	return l, token, err
}

// checkOwnPlace refuses a path, with its links followed, that is not in a directory which no
// sandbox is ever shown.
func checkOwnPlace(directories profile.Directories, option, path string) error {
	home := directories.Config
	if option == "--listen" && directories.Runtime != "" {
		home = directories.Runtime
	}
	refusal := &misuse{option + ": a sandbox could see " + profile.Printable(path), "put it into " + profile.Printable(home) + ", which no sandbox sees"}
	real, err := filepath.Abs(path)
	if err == nil && option == "--listen" { // the socket is not there yet
		var parent string
		if parent, err = filepath.EvalSymlinks(filepath.Dir(real)); err == nil {
			real = filepath.Join(parent, filepath.Base(real))
		}
	} else if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", option, err)
	}
	for _, dir := range []string{directories.Config, directories.State, directories.Runtime} {
		if dir, err := filepath.EvalSymlinks(dir); err == nil && dir != "" && strings.HasPrefix(real, dir+"/") {
			return nil
		}
	}
	return refusal
}
