package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/profile"
)

// via names this program as the way in which a person answered.
const via = "terminal"

func grantsCommand() *cli.Command {
	asJSON := func() cli.Flag {
		return &cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print JSON"}
	}
	access := func(usage, byDefault string) cli.Flag {
		return &cli.StringFlag{Name: "access", Usage: usage, DefaultText: byDefault}
	}
	expiry := func() cli.Flag {
		return &cli.DurationFlag{Name: "for", DefaultText: "until it is revoked", Usage: "let it hold for `DURATION`, such as 2h"}
	}
	sub := func(name, usage, arguments, description string, action cli.ActionFunc, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: arguments, Description: description, Flags: flags, Action: action,
			OnUsageError: usageError, HideHelpCommand: true}
	}
	return &cli.Command{
		Name:  "grants",
		Usage: "answer what agents ask for, and show and change what they were granted",
		Description: "An agent that lacks a path asks for it with fs_request_grant. The answer can only be narrower than the question. What is\n" +
			"granted reaches the sandbox that asked, if it is live, and what is revoked leaves all live sandboxes.",
		OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return &usage{fmt.Sprintf("unknown command %q", c.Args().First()), "clai-sandbox grants --help lists the commands"}
			}
			return cli.ShowSubcommandHelp(c)
		},
		Subcommands: []*cli.Command{
			sub("list", "list what is granted", "", "", grantsList,
				&cli.StringFlag{Name: "agent", Usage: "only to agent `NAME`", DefaultText: "all"}, asJSON()),
			sub("pending", "list what waits for an answer", "", "", grantsPending, asJSON()),
			sub("review", "answer requests one by one, as they come", "", "The screen shows the keys. It needs a terminal.", func(c *cli.Context) error {
				if err := noArguments(c, "it shows all requests"); err != nil {
					return err
				}
				return handOver([]string{delegated.Review})
			}),
			sub("allow", "grant what was asked for, or less", "ID", "ID is a request's, as pending shows it, or its first 8 characters. A path can only be the one asked for or one below it.\nOf a connection, the host and port that it is for are granted, unless --domain names another of the rules that are shown.",
				grantsAllow,
				&cli.StringFlag{Name: "path", DefaultText: "what was asked for", Usage: "grant `PATH` only, which is below what was asked for"},
				&cli.StringFlag{Name: "domain", DefaultText: "the first of them", Usage: "of a connection: grant `RULE`, one of those that pending shows"},
				access("grant `ro|cow|rw`, at most what was asked for", "what was asked for"),
				&cli.BoolFlag{DisableDefaultText: true, Name: "once", Usage: "for the session that asked; this is the default"},
				&cli.BoolFlag{DisableDefaultText: true, Name: "always", Usage: "for the agent, in later sessions too"},
				expiry(), asJSON()),
			sub("answer", "answer what an agent asks you in words", "ID ANSWER", "ID is a request's, as pending shows it, or its first 8 characters. ANSWER is the number of a choice, or where there are none, any\ntext. It permits the agent nothing.", grantsAnswer),
			sub("deny", "say no; the session is not asked about it again", "ID", "ID is a request's, as pending shows it, or its first 8 characters.", grantsDeny,
				&cli.StringFlag{Name: "reason", Usage: "tell the agent why: `TEXT`"}),
			sub("revoke", "take a grant away, also from live sandboxes", "ID…", "ID is a grant's, as list shows it, or its beginning. What still gives the agent the path is said, and which running sandboxes could\nnot be reached; then the exit status is 1.", grantsRevoke),
			sub("narrow", "make a grant read-only", "ID", "ID is a grant's, as list shows it, or its beginning.", grantsNarrow),
			sub("confirm", "let a stale grant hold again", "ID", "A grant is stale when its path leads to something else than when it was granted. Without --resolved, this says where it leads\n"+
				"now and changes nothing.", grantsConfirm,
				&cli.StringFlag{Name: "resolved", Usage: "take it for `PATH`, which is where it leads now"}),
			sub("add", "grant a path or a domain that nobody asked for", "PATH[:ro|:cow|:rw]", "With --domain RULE there is no PATH. A domain is for runs whose network is filtered. With --from-run last, you are asked about each path that the last clai-sandbox run lacked, for the agent of that run.", grantsAdd,
				&cli.StringFlag{Name: "from-run", Usage: "grant what a run lacked, one after the other: `last`", DefaultText: "PATH alone"},
				&cli.StringFlag{Name: "agent", Value: profile.DefaultAgent, DefaultText: profile.DefaultAgent, Usage: "to agent `NAME`"},
				&cli.StringFlag{Name: "domain", DefaultText: "a path", Usage: "grant connections to `RULE`: host:port, host, or *.suffix"},
				access("grant `ro|cow|rw`", "ro"), &cli.StringFlag{Name: "reason", Usage: "note why: `TEXT`"}, expiry()),
			sub("log", "list what a person was asked and answered, the latest first", "", "What ran or was refused without asking is in: clai-sandbox audit list", grantsLog,
				&cli.IntFlag{Name: "limit", Value: 20, DefaultText: "20", Usage: "list at most `N`"}, asJSON()),
			sub("request", "ask for a path in an agent's name, and wait for the answer", "PATH",
				"For scripts. Exits with 0 if it was granted, with 1 if not, with 2 if it was not understood, with 3 if nobody could be asked.", grantsRequest,
				&cli.StringFlag{Name: "agent", Value: profile.DefaultAgent, DefaultText: profile.DefaultAgent, Usage: "as agent `NAME`"},
				access("ask for `ro|cow|rw`", "ro"), &cli.StringFlag{Name: "reason", Usage: "say why: `TEXT`"},
				&cli.DurationFlag{Name: "timeout", DefaultText: "the gateway's", Usage: "wait at most `DURATION`"}, asJSON()),
		},
	}
}

// theBroker is the caller's own.
func theBroker() (*client.Client, context.Context, func(), error) {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	return client.Default(caller.Directories()), ctx, stop, nil
}

// withBroker does something with the broker.
func withBroker(do func(context.Context, *client.Client) error) error {
	broker, ctx, stop, err := theBroker()
	if err != nil {
		return err
	}
	defer stop()
	return do(ctx, broker)
}

// accessFlag reads --access, or leaves the default.
func accessFlag(c *cli.Context, byDefault profile.Access) (profile.Access, error) {
	word := c.String("access")
	if word == "" {
		return byDefault, nil
	}
	access, err := profile.ParseAccess(word)
	if err != nil {
		return access, &usage{"--access: " + err.Error(), "clai-sandbox grants " + c.Command.Name + " --help"}
	}
	return access, nil
}

// expiryFlag reads --for.
func expiryFlag(c *cli.Context) (grants.Duration, error) {
	d := c.Duration("for")
	if c.IsSet("for") && d <= 0 {
		return 0, &usage{"--for must be longer than 0", "for example --for 2h"}
	}
	return grants.Duration(d), nil
}

// oneArgument is the one word that a command takes.
func oneArgument(c *cli.Context, what string) (string, error) {
	if c.NArg() != 1 || c.Args().First() == "" {
		return "", &usage{fmt.Sprintf("%s wants one %s", c.Command.Name, what), "clai-sandbox grants " + c.Command.Name + " --help"}
	}
	return c.Args().First(), nil
}

// byPrefix finds the one thing whose id begins with what was typed.
func byPrefix[T any](list []T, id func(T) string, typed, what, command string) (found T, err error) {
	var matching []T
	for _, item := range list {
		if id(item) == typed {
			return item, nil
		}
		if strings.HasPrefix(id(item), typed) {
			matching = append(matching, item)
		}
	}
	hint := "clai-sandbox grants " + command + " lists them"
	switch len(matching) {
	case 0:
		return found, &usage{fmt.Sprintf("no %s has the id %s", what, profile.Printable(typed)), hint}
	case 1:
		return matching[0], nil
	}
	return found, &usage{fmt.Sprintf("%d %ss have ids that begin with %s", len(matching), what, profile.Printable(typed)), hint}
}

// requestBeginning is how much of a request's id has to be typed: an agent may take back what a person has seen, and ask for other things until
// one of their ids begins alike.
const requestBeginning = 8

func requestNamed(ctx context.Context, broker *client.Client, typed string) (grants.Request, error) {
	if len(typed) < requestBeginning {
		return grants.Request{}, &usage{fmt.Sprintf("%s is too short for a request's id: at least %d characters of it", profile.Printable(typed), requestBeginning),
			"clai-sandbox grants pending lists them"}
	}
	list, err := broker.Pending(ctx)
	if err != nil {
		return grants.Request{}, err
	}
	return byPrefix(list, func(r grants.Request) string { return r.ID }, typed, "request", "pending")
}

func grantNamed(ctx context.Context, broker *client.Client, typed string) (grants.Grant, error) {
	list, err := broker.Grants(ctx)
	if err != nil {
		return grants.Grant{}, err
	}
	return byPrefix(list, func(g grants.Grant) string { return g.ID }, typed, "grant", "list")
}

func grantsList(c *cli.Context) error {
	if err := noArguments(c, "for one agent: --agent NAME"); err != nil {
		return err
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		list, err := broker.Grants(ctx)
		if err != nil {
			return err
		}
		if c.IsSet("agent") {
			list = slices.DeleteFunc(list, func(g grants.Grant) bool { return g.Agent != c.String("agent") })
		}
		if c.Bool("json") {
			return printJSON(os.Stdout, grants.GrantList{Grants: append([]grants.Grant{}, list...)})
		}
		printGrants(os.Stdout, list, time.Now())
		return tellStatus(ctx, broker)
	})
}

// tellStatus says what the broker has to say about itself, such as a store that was damaged.
func tellStatus(ctx context.Context, broker *client.Client) error {
	status, err := broker.Status(ctx)
	for _, n := range status.Notices {
		fmt.Fprintln(os.Stderr, "clai-sandbox: "+oneLine(n.Text))
	}
	return err
}

func grantsPending(c *cli.Context) error {
	if err := noArguments(c, "it lists all"); err != nil {
		return err
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		list, err := broker.Pending(ctx)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(os.Stdout, grants.RequestList{Requests: append([]grants.Request{}, list...)})
		}
		printRequests(os.Stdout, list, time.Now())
		return nil
	})
}

func grantsAllow(c *cli.Context) error {
	id, err := oneArgument(c, "request's ID")
	if err != nil {
		return err
	}
	expiry, err := expiryFlag(c)
	if err != nil {
		return err
	}
	if c.Bool("once") && (c.Bool("always") || c.IsSet("for")) {
		return &usage{"--once is for the session that asked; it goes with neither --always nor --for", "leave one out"}
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		r, err := requestNamed(ctx, broker, id)
		if err != nil {
			return err
		}
		switch {
		case r.Outside != nil:
			return allowCommand(ctx, c, broker, r)
		case r.Question != nil:
			return &usage{r.ID + " is a question, which wants an answer", "clai-sandbox grants answer " + r.ID + " ANSWER"}
		case r.Domain != nil:
			return allowDomain(ctx, c, broker, r, expiry)
		case c.IsSet("domain"):
			return &usage{"--domain is about connections, and " + r.ID + " is about a path", "clai-sandbox grants pending shows both"}
		}
		access, err := accessFlag(c, r.RequestedAccess)
		if err != nil {
			return err
		}
		// What it is resolved to as the broker has it: if it leads elsewhere by now, the broker refuses, and the person is told.
		d := grants.Decision{Kind: grants.AllowOnce, Path: r.ResolvedPath, Access: access, Via: via}
		if c.IsSet("path") {
			if d.Path, err = pathTyped(c.String("path")); err != nil {
				return err
			}
		}
		if c.Bool("always") || c.IsSet("for") {
			d.Kind, d.Scope, d.ExpiresIn = grants.AllowAlways, grants.ScopeAlways, expiry
		}
		answer, err := broker.Decide(ctx, r.ID, d)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(os.Stdout, answer)
		}
		fmt.Printf("%s may now %s %s%s\n", profile.Printable(r.Agent), answer.Access.Verb(), profile.Printable(answer.Path), lasting(answer))
		return nil
	})
}

// grantsAnswer answers a question. A number is a choice.
func grantsAnswer(c *cli.Context) error {
	if c.NArg() < 2 {
		return &usage{"answer wants a request's ID and an answer", "clai-sandbox grants pending shows both"}
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		r, err := requestNamed(ctx, broker, c.Args().First())
		if err != nil {
			return err
		}
		if r.Question == nil {
			return &usage{r.ID + " is no question", "clai-sandbox grants allow " + r.ID + ", or deny"}
		}
		d := grants.Decision{Kind: grants.GiveAnswer, Answer: strings.Join(c.Args().Tail(), " "), Via: via}
		if choices := r.Question.Choices; len(choices) > 0 {
			n, err := strconv.Atoi(d.Answer)
			if err != nil || n < 1 || n > len(choices) {
				return &usage{"the answer must be the number of a choice: 1 to " + strconv.Itoa(len(choices)), "clai-sandbox grants pending shows them"}
			}
			d.Answer = choices[n-1]
		}
		if _, err := broker.Decide(ctx, r.ID, d); err != nil {
			return err
		}
		fmt.Printf("%s is told: %s\n", profile.Printable(r.Agent), oneLine(d.Answer))
		return nil
	})
}

// allowDomain lets a connection through, as it was asked for or as far as --domain says.
func allowDomain(ctx context.Context, c *cli.Context, broker *client.Client, r grants.Request, expiry grants.Duration) error {
	for _, name := range []string{"path", "access"} {
		if c.IsSet(name) {
			return &usage{fmt.Sprintf("--%s is about paths, and %s is a connection", name, r.ID), "clai-sandbox grants allow " + r.ID + " --domain RULE"}
		}
	}
	d := grants.Decision{Kind: grants.AllowOnce, Domain: r.Domain.Rules[0].Rule, ExpiresIn: expiry, Via: via}
	if c.IsSet("domain") {
		d.Domain = c.String("domain")
	}
	if c.Bool("always") || c.IsSet("for") {
		d.Kind, d.Scope = grants.AllowAlways, grants.ScopeAlways
	}
	answer, err := broker.Decide(ctx, r.ID, d)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(os.Stdout, answer)
	}
	fmt.Printf("%s may now reach %s%s\n", profile.Printable(r.Agent), profile.Printable(answer.Domain), lasting(answer))
	return nil
}

// allowCommand lets a command run outside of any sandbox, as it was shown.
func allowCommand(ctx context.Context, c *cli.Context, broker *client.Client, r grants.Request) error {
	for _, name := range []string{"path", "access", "for", "domain"} {
		if c.IsSet(name) {
			return &usage{fmt.Sprintf("--%s is not about commands, and %s is a command", name, r.ID), "clai-sandbox grants allow " + r.ID + " lets it run once, with --always this and the same later"}
		}
	}
	d := grants.Decision{Kind: grants.AllowOnce, Shown: r.Outside.Shown, Via: via}
	if c.Bool("always") {
		d.Kind = grants.AllowAlways
	}
	answer, err := broker.Decide(ctx, r.ID, d)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(os.Stdout, answer)
	}
	often := "once"
	if answer.Scope == grants.ScopeAlways {
		often = "now and later: clai-sandbox approvals list"
	}
	fmt.Printf("%s may run %s, %s\n", profile.Printable(r.Agent), profile.Printable(r.Outside.Text), often)
	return nil
}

// pathTyped is a path as a shell's user writes it.
func pathTyped(typed string) (string, error) {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return "", err
	}
	if typed != "" && typed[0] != '/' && typed[0] != '~' {
		typed = filepath.Join(caller.WorkingDirectory, typed)
	}
	return profile.ExpandPath(typed, caller.Home)
}

// lasting says how long an answer holds.
func lasting(a grants.Answer) string {
	switch {
	case a.Scope == grants.ScopeOnce:
		return ", in this session"
	case a.ExpiresAt != 0:
		return ", until " + time.UnixMilli(a.ExpiresAt).Format("2006-01-02 15:04")
	}
	return ", until you revoke it: clai-sandbox grants revoke " + a.GrantID
}

func grantsDeny(c *cli.Context) error {
	id, err := oneArgument(c, "request's ID")
	if err != nil {
		return err
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		r, err := requestNamed(ctx, broker, id)
		if err != nil {
			return err
		}
		if _, err := broker.Decide(ctx, r.ID, grants.Decision{Kind: grants.Deny, Reason: c.String("reason"), Via: via}); err != nil {
			return err
		}
		if r.Outside != nil {
			fmt.Printf("%s may not run %s\n", profile.Printable(r.Agent), profile.Printable(r.Outside.Text))
			return nil
		}
		if r.Domain != nil {
			fmt.Printf("%s may not reach %s\n", profile.Printable(r.Agent), profile.Printable(r.Domain.To))
			return nil
		}
		if r.Question != nil {
			fmt.Printf("%s gets no answer\n", profile.Printable(r.Agent))
			return nil
		}
		fmt.Printf("%s may not %s %s\n", profile.Printable(r.Agent), r.RequestedAccess.Verb(), profile.Printable(r.ResolvedPath))
		return nil
	})
}

func grantsRevoke(c *cli.Context) error {
	if !c.Args().Present() {
		return &usage{"revoke wants a grant's ID", "clai-sandbox grants list shows them"}
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		// All are looked up before any is taken away: a mistyped one leaves everything as it is.
		var list []grants.Grant
		for _, id := range c.Args().Slice() {
			g, err := grantNamed(ctx, broker, id)
			if err != nil {
				return err
			}
			list = append(list, g)
		}
		reached := true
		for _, g := range list {
			taken, err := broker.Revoke(ctx, g.ID)
			if err != nil {
				return err
			}
			fmt.Printf("revoked: %s, %s %s\n", g.ID, profile.Printable(g.Agent), profile.Printable(cmp.Or(g.Path, g.Domain)))
			reached = tellTaken(taken, profile.ReadOnly) && reached
		}
		if !reached {
			return exit(1)
		}
		return nil
	})
}

func grantsNarrow(c *cli.Context) error {
	id, err := oneArgument(c, "grant's ID")
	if err != nil {
		return err
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		g, err := grantNamed(ctx, broker, id)
		if err != nil {
			return err
		}
		taken, err := broker.Narrow(ctx, g.ID)
		if err != nil {
			return err
		}
		fmt.Printf("%s may now read %s\n", profile.Printable(g.Agent), profile.Printable(g.Path))
		if !tellTaken(taken, profile.ReadWrite) {
			return exit(1)
		}
		return nil
	})
}

func grantsConfirm(c *cli.Context) error {
	id, err := oneArgument(c, "grant's ID")
	if err != nil {
		return err
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		g, err := grantNamed(ctx, broker, id)
		if err != nil {
			return err
		}
		if g.Domain != "" {
			return &usage{g.ID + " is of a domain, which is never stale", "clai-sandbox grants list shows what is"}
		}
		now, condition, why := g.Check()
		if !c.IsSet("resolved") {
			if condition == grants.Intact && g.Stale == "" {
				fmt.Printf("%s is what it was when it was granted\n", profile.Printable(g.Path))
				return nil
			}
			if why == "" {
				why = g.Stale
			}
			fmt.Printf("%s: %s\n", profile.Printable(g.Path), oneLine(why))
			if condition != grants.Missing {
				fmt.Printf("it was granted as %s, %s, and leads to %s now; if that is meant, type:\n  clai-sandbox grants confirm %s --resolved %s\n", profile.Printable(g.Resolved),
					g.Access, profile.Printable(now.Resolved), g.ID, quoteWord(now.Resolved))
			}
			return exit(1)
		}
		if g, err = broker.Confirm(ctx, g.ID, c.String("resolved")); err != nil {
			return err
		}
		fmt.Printf("%s may %s %s\n", profile.Printable(g.Agent), g.Access.Verb(), profile.Printable(g.Resolved))
		return nil
	})
}

func grantsAdd(c *cli.Context) error {
	if c.IsSet("from-run") {
		return grantsAddFromRun(c)
	}
	if c.IsSet("domain") {
		return grantsAddDomain(c)
	}
	typed, err := oneArgument(c, "PATH")
	if err != nil {
		return err
	}
	access, err := accessFlag(c, profile.ReadOnly)
	if err != nil {
		return err
	}
	if i := strings.LastIndexByte(typed, ':'); i > 0 && !c.IsSet("access") {
		if said, err := profile.ParseAccess(typed[i+1:]); err == nil { // as --grant takes it
			typed, access = typed[:i], said
		}
	}
	path, err := pathTyped(typed)
	if err != nil {
		return err
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		return addGrant(ctx, broker, c, c.String("agent"), path, access)
	})
}

// grantsAddDomain grants a domain.
func grantsAddDomain(c *cli.Context) error {
	if c.Args().Present() || c.IsSet("access") {
		return &usage{"--domain stands in the place of PATH and --access", "clai-sandbox grants add --domain example.org:443"}
	}
	expiry, err := expiryFlag(c)
	if err != nil {
		return err
	}
	rule, err := profile.ParseDomainRule(c.String("domain"))
	if err != nil {
		return &usage{"--domain: " + err.Error(), "for example example.org:443, example.org or *.example.org"}
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		g, err := broker.Add(ctx, grants.NewGrant{Agent: c.String("agent"), Domain: rule.String(), ExpiresIn: expiry, Reason: c.String("reason"), Via: via})
		if err != nil {
			return err
		}
		fmt.Printf("%s may reach %s (grant %s)\n", profile.Printable(g.Agent), profile.Printable(g.Domain), g.ID)
		if g.Warning != "" {
			fmt.Fprintf(os.Stderr, "clai-sandbox: note: %s: %s; to take it back: clai-sandbox grants revoke %s\n", profile.Printable(g.Domain), oneLine(g.Warning), g.ID)
		}
		return nil
	})
}

// addGrant grants a path with the options of the command line, and says so.
func addGrant(ctx context.Context, broker *client.Client, c *cli.Context, agent, path string, access profile.Access) error {
	expiry, err := expiryFlag(c)
	if err != nil {
		return err
	}
	g, err := broker.Add(ctx, grants.NewGrant{Agent: agent, Path: path, Access: access, ExpiresIn: expiry, Reason: c.String("reason"), Via: via})
	if err != nil {
		return err
	}
	fmt.Printf("%s may %s %s (grant %s)\n", profile.Printable(g.Agent), g.Access.Verb(), profile.Printable(g.Path), g.ID)
	if g.Resolved != g.Path {
		fmt.Printf("which leads to %s\n", profile.Printable(g.Resolved))
	}
	warnOfGrant(g)
	return nil
}

// warnOfGrant says what a person who is asked for a path is told before answering. Who adds one is told at once.
func warnOfGrant(g grants.Grant) {
	elsewhere := func(k grants.WarningKind) bool { return k != grants.WarnElsewhere } // said already
	if told := warnings(g.Path, g.Access, elsewhere); told != "" {
		fmt.Fprintf(os.Stderr, "clai-sandbox: note: %s: %s; to take it back: clai-sandbox grants revoke %s\n", profile.Printable(g.Path), oneLine(told), g.ID)
	}
}

// warnings are those about a grant, of the kinds that are wanted.
func warnings(path string, access profile.Access, wanted func(grants.WarningKind) bool) string {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return ""
	}
	rules := grants.NewRules(caller.Home, nil, nil)
	q, err := rules.Ask(path, access, "")
	if err != nil {
		return ""
	}
	var told []string
	for _, w := range rules.Warnings(q) {
		if wanted(w.Kind) {
			told = append(told, w.Text)
		}
	}
	return strings.Join(told, "; ")
}

func grantsLog(c *cli.Context) error {
	if err := noArguments(c, "how many: --limit N"); err != nil {
		return err
	}
	if c.Int("limit") < 1 {
		return &usage{"--limit must be at least 1", "for example --limit 100"}
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		list, err := broker.Log(ctx, c.Int("limit"))
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(os.Stdout, grants.RecordList{Records: append([]grants.Record{}, list...)})
		}
		printRecords(os.Stdout, list)
		return nil
	})
}

// grantsRequest asks in a session of its own. Its exit statuses are those of the program that asks from inside.
func grantsRequest(c *cli.Context) error {
	tell := func(status exit, err error) error {
		fmt.Fprintln(os.Stderr, "clai-sandbox: "+explainError(err))
		return status
	}
	typed, err := oneArgument(c, "PATH")
	if err != nil {
		return tell(client.AskMisused, err)
	}
	access, err := accessFlag(c, profile.ReadOnly)
	if err != nil {
		return tell(client.AskMisused, err)
	}
	path, err := pathTyped(typed)
	if err != nil {
		return tell(client.AskMisused, err)
	}
	broker, ctx, stop, err := theBroker()
	if err != nil {
		return tell(client.AskUnavailable, err)
	}
	defer stop()
	if d := c.Duration("timeout"); d > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	j, err := prepareRequest(profile.Request{Agent: c.String("agent")}, session.Options{Broker: broker, Command: "clai-sandbox grants request"}, (*session.Session).Prepare)
	if err != nil {
		return tell(client.AskUnavailable, err)
	}
	defer j.session.Close()
	a := grants.Asking{Path: path, Access: access, Reason: c.String("reason")}
	answer, err := j.session.Ask(ctx, a)
	if errors.Is(err, context.DeadlineExceeded) {
		return tell(client.AskUnavailable, errors.New("nobody answered in time"))
	}
	if err != nil {
		return tell(exit(client.AskStatus(err)), err)
	}
	if c.Bool("json") {
		if err := printJSON(os.Stdout, answer); err != nil {
			return err
		}
	} else {
		fmt.Println(client.Sentence(a, answer))
	}
	if !answer.Granted {
		return exit(client.AskDenied)
	}
	return nil
}
