package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/integration/instructions"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/preset"
	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/sandbox"
)

func agentCommand() *cli.Command {
	return &cli.Command{
		Name:      "agent",
		Usage:     "run an agent in a sandbox: claude, codex, opencode, gemini, or any command",
		ArgsUsage: "NAME [-- ARGUMENT…] | -- COMMAND [ARGUMENT…]",
		Description: "All of the agent runs inside: its own tools, hooks, servers and further agents. A preset says what it needs of the home\n" +
			"directory and of the network, which is filtered; its own approvals are off, since the sandbox stands in their place. What it\n" +
			"lacks it asks for: clai-sandbox grants review. Its key is in reach of the commands that it starts, unless these are apart\n" +
			"(--commands-apart). Its home directory is one of its own. Options are those of clai-sandbox run, and add to the preset.",
		Flags: append(runFlags(),
			&cli.StringSliceFlag{Name: "preset", Usage: "take the preset `NAME` as well, such as npm, go, pip, cargo or github; names with commas between, may be repeated"},
			&cli.StringFlag{Name: "unattended", Usage: "what becomes of what the agent asks for: `deny|queue`; it is refused at once, or waits for an answer", DefaultText: "queue"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "commands-apart", Usage: "run each command that the agent starts in another sandbox, without the agent's settings, keys and servers"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "print", Usage: "print what the preset would add and why, and run nothing"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "list", Usage: "list the presets"},
		),
		OnUsageError: usageError,
		Before:       forgetFlags,
		Action:       agentAction,
	}
}

// An agentRun is what the command line says about an agent.
type agentRun struct {
	caller  profile.Caller
	program *preset.Preset // of NAME; nil: another command
	presets []preset.Preset
	words   []string // the person's: arguments, or the command
	apart   bool     // its commands are in another sandbox
}

func agentAction(c *cli.Context) error {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return err
	}
	all, err := preset.Load(caller.Directories().Config)
	if err != nil {
		return err
	}
	if c.Bool("list") {
		return listPresets(all)
	}
	a, err := agentFrom(c, caller, all)
	if err != nil {
		return err
	}
	if c.Bool("print") {
		return a.print()
	}
	report, err := reportFile(c)
	if err != nil {
		return err
	}
	return runErrand(c, a.errand, report)
}

// agentFrom reads the words of the command line.
func agentFrom(c *cli.Context, caller profile.Caller, all []preset.Preset) (agentRun, error) {
	a := agentRun{caller: caller, words: c.Args().Slice(), apart: c.Bool("commands-apart")}
	if word := c.String("unattended"); c.IsSet("unattended") && word != "deny" && word != "queue" {
		return a, &usage{"--unattended is deny or queue", "deny refuses at once what the agent asks for"}
	}
	var names []string
	for _, list := range c.StringSlice("preset") {
		names = append(names, strings.Split(list, ",")...)
	}
	if !afterDashes(os.Args, len(a.words)) {
		if len(a.words) == 0 {
			return a, &usage{"which agent?", "clai-sandbox agent --list shows them; any other program: clai-sandbox agent -- COMMAND"}
		}
		names = append([]string{a.words[0]}, names...)
		if a.words = a.words[1:]; len(a.words) > 0 {
			if a.words[0] != "--" {
				return a, &usage{"what is " + profile.Printable(a.words[0]) + "?", "the agent's own arguments stand behind --: clai-sandbox agent " + sandbox.Quote(names[0]) + " -- " + sandbox.Quote(a.words[0])}
			}
			a.words = a.words[1:]
		}
		i := slices.IndexFunc(all, func(p preset.Preset) bool { return p.Name == names[0] })
		if i < 0 || all[i].Program == "" {
			e := &usage{"no agent is called " + profile.Printable(names[0]), "clai-sandbox agent --list shows them; any other program: clai-sandbox agent -- " + sandbox.Quote(names[0])}
			if i >= 0 {
				e.hint = fmt.Sprintf("%s is the preset of a tool: clai-sandbox agent NAME --preset %[1]s", names[0])
			} else if meant := profile.Nearest(names[0], agentNames(all)); meant != "" {
				e.why += "; did you mean " + meant + "?"
			}
			return a, e
		}
		a.program = &all[i]
	} else {
		names = append(names, "git")
	}
	var err error
	a.presets, err = preset.Find(all, names...)
	if unknown := new(preset.UnknownError); errors.As(err, &unknown) {
		err = &usage{unknown.Error(), "clai-sandbox agent --list shows them"}
	}
	return a, err
}

// afterDashes reports whether the last n words of a command line stand behind "--".
func afterDashes(args []string, n int) bool {
	before := len(args) - n - 1
	return n > 0 && before > 0 && args[before] == "--"
}

func agentNames(all []preset.Preset) (names []string) {
	for _, p := range all {
		if p.Program != "" {
			names = append(names, p.Name)
		}
	}
	return names
}

// errand is the agent in its sandbox.
func (a agentRun) errand(c *cli.Context) (errand, error) {
	e := errand{command: a.words}
	if a.program != nil {
		e.command = append([]string{a.program.Program}, a.words...)
	}
	path, err := findProgram(e.command[0])
	if err != nil {
		u := &usage{profile.Printable(e.command[0]) + " is not in your PATH", ""}
		if a.program != nil {
			u.hint = "install it first: " + a.program.Install
		}
		return e, u
	}
	if e.request, err = delegated.RequestFrom(c); err != nil {
		return e, err
	}
	var apart *apartRun
	if a.apart {
		if err := a.checkApart(path); err != nil {
			return e, err
		}
		apart = &apartRun{agent: a, path: path}
		if apart.shells, err = systemsShells(); err != nil {
			return e, err
		}
	}
	if err := a.add(&e.request, c.IsSet("agent")); err != nil {
		return e, err
	}
	if program, err := shellPath(); err == nil && a.program != nil && a.program.Shell != nil { // its settings may name it
		e.request.Preset = append(e.request.Preset, installed(program, a.caller)...)
	}
	its := &e.request // what the agent has itself
	if apart != nil {
		apart.more = e.request
		its = &apart.more
		its.Preset, its.AllowDomains = slices.Clone(its.Preset), slices.Clone(its.AllowDomains)
		for _, p := range a.presets {
			if agents(p) {
				if err := p.Add(its, a.caller); err != nil {
					return e, err
				}
				p.AddApart(its, apart.shells[0])
			}
		}
	}
	if !a.isLed(e.command[0], path) {
		its.Preset = append(its.Preset, installed(path, a.caller)...)
	}
	if c.String("unattended") != "deny" {
		if err := c.Set("broker", "true"); err != nil {
			return e, err
		}
		if e.options, err = brokerOptions(c, e.command); err != nil {
			return e, err
		}
	}
	e.options.Furnish = a.furnish(func(p preset.Preset) bool { return apart == nil || !agents(p) })
	if apart != nil {
		e.options.Apart, e.prepare, e.control = true, apart.prepare, &apart.control
		e.over = func() { apart.ended() }
	}
	e.begins = func(j job) ([]string, error) {
		j.prepared.ShowProgram(shellName)
		told, commands := "", ""
		if apart != nil {
			var err error
			if told, commands, err = apart.begins(j); err != nil {
				return nil, err
			}
		} else {
			told = instructions.Text(instructions.About{Profile: j.profile, Plan: &j.plan, CanAsk: e.options.Broker != nil})
		}
		own, done, err := shut.Reach(j.profile.PrivateHome)
		if err != nil {
			return nil, err
		}
		defer done()
		for _, p := range a.presets {
			if err := p.Tell(a.caller.Home, own, told); err != nil {
				return nil, err
			}
		}
		if !c.Bool("json") && !c.IsSet("json-fd") {
			a.greet(j, commands)
		}
		if a.program == nil {
			return append([]string{path}, a.words[1:]...), nil
		}
		shell := ""
		if apart != nil {
			shell = apart.shells[0]
		}
		return slices.Concat([]string{path}, a.program.Words(told, shell), a.words), nil
	}
	e.ended = func(j job, result *sandbox.Result) {
		if apart != nil {
			result.Notices = append(result.Notices, apart.ended()...)
		}
		if text := a.summary(j, result); text != "" {
			result.Notices = append(result.Notices, sandbox.Notice{Kind: NoticeSummary, Text: text})
		}
	}
	return e, nil
}

// furnish puts private copies of what some of the presets name into a home.
func (a agentRun) furnish(which func(preset.Preset) bool) func(home string) error {
	return func(home string) error {
		for _, p := range a.presets {
			if !which(p) {
				continue
			}
			if err := p.Furnish(a.caller.Home, home); err != nil {
				return err
			}
		}
		return nil
	}
}

// add adds what the presets say to a request.
func (a agentRun) add(r *profile.Request, named bool) error {
	if a.program != nil && !named {
		r.Agent, r.KnownAgent = a.program.Name, true
	}
	r.OwnHome = true
	r.Network = cmp.Or(r.Network, profile.NetworkFiltered.String())
	for _, p := range a.presets {
		if a.apart && agents(p) {
			continue
		}
		if err := p.Add(r, a.caller); err != nil {
			return err
		}
	}
	return nil
}

// findProgram finds a program by PATH, and of one that is not the system's the file that it is: a
// link to it may lie where commands can write.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil || ofTheSystem(path) {
		return path, err
	}
	return filepath.EvalSymlinks(path)
}

// isLed reports whether a program is what a link leads to that is not the person's. One from a
// directory of programs to what was installed beside it shows no more than that.
func (a agentRun) isLed(word, program string) bool {
	named, err := exec.LookPath(word)
	if err == nil {
		named, err = filepath.Abs(named)
	}
	if err != nil || named == program {
		return err != nil
	}
	dir := filepath.Dir(named)
	if slices.Contains([]string{"bin", ".bin"}, filepath.Base(dir)) && profile.Within(program, filepath.Dir(dir)) {
		return false
	}
	return a.caller.CouldBeChosen(named)
}

// installed are the files that a program which is not the system's consists of: itself, or all
// packages that npm put beside it, and the same of what interprets it.
func installed(path string, c profile.Caller) (list []profile.Grant) {
	for ; path != "" && !ofTheSystem(path); path = interpreter(path, c.CouldBeChosen(path)) {
		shown := path
		if before, _, is := strings.Cut(path, "/node_modules/"); is {
			shown = before + "/node_modules"
		}
		if _, never := profile.NeverGrantable(shown); never || len(list) > 4 {
			break
		}
		list = append(list, profile.Grant{Path: shown, Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginPreset, Source: "the program"}})
	}
	return list
}

// ofTheSystem reports whether every sandbox shows a program.
func ofTheSystem(path string) bool {
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/nix/store", "/opt", "/snap", "/home/linuxbrew/.linuxbrew"} {
		if profile.Within(path, dir) {
			return true
		}
	}
	return false
}

// interpreters are programs by whose name alone a script is believed that a command could have
// written: with any other word, or a path, it would choose what of the person's a sandbox shows.
var interpreters = []string{"node", "nodejs", "bun", "deno", "tsx", "python", "ruby", "perl", "php", "lua", "Rscript", "julia", "tclsh", "bash", "sh", "zsh", "fish"}

// interpreter is what a script's first line names, by PATH where that is what it says; empty:
// nothing. Of a script that is not the person's, only "#!/usr/bin/env node" and the like count.
func interpreter(path string, chosen bool) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	line := make([]byte, 256)
	n, _ := file.Read(line)
	first, _, found := strings.Cut(string(line[:n]), "\n")
	words, is := strings.CutPrefix(first, "#!")
	if !found || !is {
		return ""
	}
	list := strings.Fields(words)
	if len(list) > 1 && filepath.Base(list[0]) == "env" {
		list = list[1:]
		if list[0] == "-S" && len(list) > 1 {
			list = list[1:]
		}
	}
	if len(list) == 0 || chosen && (!strings.HasPrefix(strings.TrimSpace(words), "/usr/bin/env ") || !slices.Contains(interpreters, strings.TrimRight(list[0], "0123456789."))) {
		return ""
	}
	program, err := findProgram(list[0])
	if err != nil {
		return ""
	}
	return program
}

// greet says in a line what the agent may, what its commands reach if that is something else, and
// where what it asks for appears.
func (a agentRun) greet(j job, commands string) {
	may := "may write nothing"
	if j.profile.WorkspaceAccess != profile.NoAccess {
		may = "may " + j.profile.WorkspaceAccess.Verb() + " " + profile.Printable(j.profile.Workspace)
	}
	asks := "what else it wants it asks for: clai-sandbox grants review"
	if j.session.ID() == "" {
		asks = "what else it wants is refused"
	}
	if commands != "" {
		asks = "its commands run apart, and reach " + commands + "; " + asks
	}
	fmt.Fprintf(os.Stderr, "clai-sandbox: %s %s, and reaches %s; %s\n", j.profile.Agent, may, reaches(j.profile, j.session.ID() != ""), asks)
}

// reaches says what of the network a sandbox reaches, in a few words.
func reaches(p profile.Profile, asked bool) string {
	switch p.Network {
	case profile.NetworkEnabled:
		return "the whole network"
	case profile.NetworkFiltered:
		allowed := p.Domains.Allowed
		switch len(allowed) {
		case 0:
			if asked {
				return "no server that you do not allow"
			}
			return "no server"
		case 1:
			return allowed[0].String()
		}
		return fmt.Sprintf("%s and %d more servers", allowed[0], len(allowed)-1)
	}
	return "no network"
}

// NoticeSummary is what an agent asked for and did, at its end.
const NoticeSummary sandbox.NoticeKind = "summary"

// summary says what was asked, refused, set aside and changed; empty: nothing of that.
func (a agentRun) summary(j job, result *sandbox.Result) string {
	var parts []string
	count := func(n int, one, many string) {
		switch {
		case n == 1:
			parts = append(parts, one)
		case n > 1:
			parts = append(parts, fmt.Sprintf(many, n))
		}
	}
	asked := map[grants.Outcome]int{}
	if id := j.session.ID(); id != "" && j.session.Asked() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if log, err := j.broker.Log(ctx, 1000); err == nil {
			for _, record := range log {
				if record.Session == id {
					asked[record.Outcome]++
				}
			}
		}
	}
	total := 0
	for _, n := range asked {
		total += n
	}
	count(total, "asked for 1 thing", "asked for %d things")
	if total > 0 {
		parts[0] += fmt.Sprintf(" (%d granted)", asked[grants.OutcomeGranted])
	}
	kinds := map[sandbox.NoticeKind]int{}
	for _, n := range result.Notices {
		kinds[n.Kind]++
	}
	count(kinds[sandbox.NoticeNetwork], "was refused 1 server", "was refused %d servers")
	count(kinds[sandbox.NoticeProtected]+kinds[sandbox.NoticeGitSetting], "left 1 thing that was set aside (clai-sandbox quarantine list)", "left %d things that were set aside (clai-sandbox quarantine list)")
	count(kinds[sandbox.NoticeChanges], "changed copies (clai-sandbox changes review)", "changed %d copies (clai-sandbox changes review)")
	if len(parts) == 0 {
		return ""
	}
	return j.profile.Agent + " " + strings.Join(parts, ", ")
}

func listPresets(all []preset.Preset) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tFOR\tTESTED WITH")
	for _, agents := range []bool{true, false} {
		for _, p := range all {
			if (p.Program != "") != agents {
				continue
			}
			tried := cmp.Or(p.Tried, "not run: as its makers published it")
			if !agents {
				tried = "with --preset " + p.Name
			}
			if p.File != "" {
				tried = "your own: " + profile.Printable(p.File)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\n", p.Name, profile.Printable(p.About), tried)
		}
	}
	return table.Flush()
}

// print says what the presets would add, and why.
func (a agentRun) print() error {
	row := func(what, is, why string) {
		fmt.Printf("%-14s %-34s %s\n", what, profile.Printable(is), profile.Printable(why))
	}
	for _, p := range a.presets {
		row("preset", p.Name, p.About)
		for _, word := range p.Arguments {
			row("  argument", word, "before your own")
		}
		if p.Told != "" {
			row("  told", p.Told, "a private file with your own text and what the sandbox is")
		}
		for _, path := range p.Paths {
			why := path.Why
			full, err := profile.ExpandPath(path.Path, a.caller.Home)
			if _, missing := os.Lstat(full); err == nil && missing != nil {
				why += " (not here)"
			}
			row("  "+path.Access.String(), path.Path, why)
		}
		for _, copied := range p.Copies {
			row("  private copy", copied.Path, copied.Why)
		}
		for _, d := range p.Domains {
			row("  reaches", d.Domain, d.Why)
		}
		for _, v := range p.Variables {
			if v.Value == nil {
				row("  variable", v.Name, v.Why+"; yours, if you have it: the commands that the agent starts can read it")
				continue
			}
			row("  variable", v.Name+"="+*v.Value, v.Why)
		}
	}
	return nil
}
