package delegated

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
)

// Misuse is a command line that cannot be understood.
type Misuse struct{ Why, Hint string }

func (m *Misuse) Error() string { return m.Why }

// ProfileFlags say what the sandbox shows. run, explain and mcp share them, so that one explains
// the other.
func ProfileFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "agent", Value: profile.DefaultAgent, DefaultText: profile.DefaultAgent, Usage: "use the configuration of agent `NAME`"},
		&cli.StringFlag{Name: "session", Usage: "run for the session with `KEY`, as agent:NAME:REST; where the command may not write the workspace, it has one of the session's own at /workspace"},
		&cli.StringFlag{Name: "scope", Usage: "share that with `session|agent|shared`: no other session, those of the agent, all (default: the configuration's, else agent)"},
		&cli.StringFlag{Name: "workspace", Usage: "make `DIR` writable (default: the configuration's, else the git repository that the working directory is in, else that)"},
		&cli.StringFlag{Name: "workspace-access", Usage: "let the command do `rw|ro|cow|none` in its workspace; with cow its changes are kept apart (default: the configuration's, else rw)"},
		&cli.StringFlag{Name: "home", Usage: "put at the home directory `readable|private|ephemeral`: the caller's own, one of the agent's own, an empty one (default: the configuration's, else readable, or private if extraPaths leave it out)"},
		&cli.StringFlag{Name: "caches", Usage: "make tools' caches in a readable home `cow|private|off|rw` (default: the configuration's, else cow)"},
		&cli.StringSliceFlag{Name: "grant", KeepSpace: true, Usage: "show `PATH`[:ro|:cow|:rw][:explicit], read-only if not said, hidden paths below it only if explicit; may be repeated"},
		&cli.StringSliceFlag{Name: "hide", KeepSpace: true, Usage: "hide `PATH` as credential stores are hidden: only a grant of its own shows it; may be repeated"},
		&cli.StringSliceFlag{Name: "protect", KeepSpace: true, Usage: "make `NAME` read-only in writable directories, as .git/hooks is; may be repeated"},
		&cli.StringSliceFlag{Name: "unprotect", KeepSpace: true, Usage: "leave `NAME` writable where the workspace is, such as .vscode; may be repeated"},
		&cli.StringFlag{Name: "protect-mode", Usage: "`watch|strict` for protected names that the command makes: set them aside at once, or keep all that it writes until it has ended (default: the configuration's, else watch)"},
		&cli.StringFlag{Name: "network", Usage: "set the network to `enabled|filtered|disabled` (default: the configuration's, else enabled)"},
		&cli.StringSliceFlag{Name: "allow-domain", KeepSpace: true, Usage: "let a filtered network reach `DOMAIN`[:port]: a name, *.name, an address or a range; may be repeated"},
		&cli.StringSliceFlag{Name: "deny-domain", KeepSpace: true, Usage: "let a filtered network never reach `DOMAIN`[:port], whatever is allowed; may be repeated"},
		&cli.StringFlag{Name: "upstream-proxy", Usage: "have a filtered network connect through `PROXY`: http://HOST:PORT, environment for the one of HTTPS_PROXY, HTTP_PROXY and NO_PROXY, or none (default: the configuration's, else none)"},
		&cli.StringSliceFlag{Name: "publish", KeepSpace: true, Usage: "lead `PORT` of the host's 127.0.0.1 to the same port of a disabled or filtered network, or as HOST:INSIDE to another; may be repeated"},
		&cli.StringFlag{Name: "session-bus", Usage: "set the session bus to `filtered|allow|deny` (default: the configuration's, else filtered)"},
		&cli.StringSliceFlag{Name: "session-bus-name", KeepSpace: true, Usage: "let calls to `NAME` through the filtered session bus too, and to all below with NAME.*; may be repeated"},
		&cli.StringSliceFlag{Name: "ssh-agent", KeepSpace: true, Usage: "let the command sign in by ssh with a key of your ssh-agent, as `HOST=KEY`: git@github.com=id_ed25519, a name in ~/.ssh, a file or a fingerprint; may be repeated"},
		&cli.StringSliceFlag{Name: "sign-commits", KeepSpace: true, Usage: "let git sign commits and tags with `KEY` of your ssh-agent; may be repeated"},
		&cli.StringSliceFlag{Name: "env", KeepSpace: true, Usage: "pass the `VARIABLE`, or set it: VARIABLE=VALUE; may be repeated"},
		&cli.StringSliceFlag{Name: "env-as", KeepSpace: true, Usage: "pass a variable under another name, as `NAME=VARIABLE`; may be repeated"},
		&cli.BoolFlag{DisableDefaultText: true, Name: "no-project-file", Usage: "leave the workspace's own .clai-sandbox.json out, which narrows what the sandbox has"},
		&cli.StringFlag{Name: "cwd", Usage: "start the command in `DIR` (default: the working directory, else the workspace)"},
		&cli.StringFlag{Name: "timeout", DefaultText: "none", Usage: "end the command after `DURATION`, such as 90s or 10m; a bare number is seconds"},
		&cli.StringSliceFlag{Name: "limit", KeepSpace: true, Usage: "let the command take only so much, as `NAME=AMOUNT`: " + strings.Join(profile.LimitNames(), ", ") + "; such as memory=2GiB; 0 for no limit; may be repeated"},
		&cli.StringFlag{Name: "image", Usage: "show the files of image `NAME`[:ro|:cow] in place of the host's system, read-only if not said; host is no image (default: the configuration's, else host)"},
		&cli.StringSliceFlag{Name: "device", KeepSpace: true, Usage: "let the command have a `DEVICE` of this machine: gpu, kvm, or a path as /dev/fuse; most are refused; may be repeated"},
		&cli.BoolFlag{DisableDefaultText: true, Name: "allow-nesting", Usage: "let the command make user namespaces, as a browser or another sandbox does"},
	}
}

// RequestFrom reads them. The error is a *Misuse.
func RequestFrom(c *cli.Context) (profile.Request, error) {
	request := profile.Request{
		Agent:            c.String("agent"),
		Session:          c.String("session"),
		Scope:            c.String("scope"),
		Workspace:        c.String("workspace"),
		Grants:           c.StringSlice("grant"),
		Hide:             c.StringSlice("hide"),
		Protect:          c.StringSlice("protect"),
		Unprotect:        c.StringSlice("unprotect"),
		ProtectMode:      c.String("protect-mode"),
		Environment:      c.StringSlice("env"),
		WorkingDirectory: c.String("cwd"),
		Limits:           c.StringSlice("limit"),
		Network:          c.String("network"),
		AllowDomains:     c.StringSlice("allow-domain"),
		DenyDomains:      c.StringSlice("deny-domain"),
		UpstreamProxy:    c.String("upstream-proxy"),
		Publish:          c.StringSlice("publish"),
		SessionBus:       c.String("session-bus"),
		SessionBusNames:  c.StringSlice("session-bus-name"),
		SSHAgent:         c.StringSlice("ssh-agent"),
		SignCommits:      c.StringSlice("sign-commits"),
		WorkspaceAccess:  c.String("workspace-access"),
		NoProject:        c.Bool("no-project-file"),
		Caches:           c.String("caches"),
		Home:             c.String("home"),
		Image:            c.String("image"),
		Devices:          c.StringSlice("device"),
		NestedNamespaces: c.Bool("allow-nesting"),
	}
	if c.IsSet("session") && !c.IsSet("agent") {
		request.Agent = "" // the key says whose it is
	}
	for _, pair := range c.StringSlice("env-as") {
		name, of, _ := strings.Cut(pair, "=")
		value, found := os.LookupEnv(of)
		if !found {
			return request, &Misuse{"--env-as " + profile.Printable(pair) + ": there is no such variable", "write it as NAME=VARIABLE: the command has the value of VARIABLE as NAME"}
		}
		request.Environment = append(request.Environment, name+"="+value)
	}
	for _, name := range []string{"agent", "session", "scope", "workspace", "cwd", "network", "session-bus", "image"} {
		if c.IsSet(name) && c.String(name) == "" {
			return request, &Misuse{"--" + name + " is empty", "leave it out for the default"}
		}
	}
	if !c.IsSet("timeout") {
		return request, nil
	}
	var err error
	request.Timeout, err = duration("timeout", c.String("timeout"))
	return request, err
}

// duration reads how long an option says: as Go writes it, or a number of seconds, as timeout(1)
// and sleep(1) take it.
func duration(option, word string) (time.Duration, error) {
	if seconds, err := strconv.ParseUint(word, 10, 31); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second, nil
	}
	const example = "for example --%s 90s, --%[1]s 10m or --%[1]s 1h30m"
	d, err := time.ParseDuration(word)
	switch {
	case err != nil:
		return 0, &Misuse{fmt.Sprintf("--%s: %s is not how long", option, profile.Printable(word)), fmt.Sprintf(example, option)}
	case d <= 0:
		return 0, &Misuse{"--" + option + " must be longer than 0", fmt.Sprintf(example, option)}
	}
	return d, nil
}
