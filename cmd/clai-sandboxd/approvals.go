package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/mattn/go-shellwords"
	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/profile"
)

// approvalsAction is what a command below approvals does.
func approvalsAction(name string) cli.ActionFunc {
	switch name {
	case "get":
		return getAction
	case "set":
		return setAction
	case "list":
		return listAction
	case "allow":
		return func(c *cli.Context) error { return addAction(c, false) }
	case "deny":
		return func(c *cli.Context) error { return addAction(c, true) }
	case "remove":
		return removeAction
	case "test":
		return testAction
	case "edit":
		return editAction
	default:
		return func(c *cli.Context) error {
			if c.Args().Present() {
				return &misuse{fmt.Sprintf("unknown command %q", c.Args().First()), "clai-sandbox approvals --help lists the commands"}
			}
			return cli.ShowSubcommandHelp(c)
		}
	}
}

func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return &misuse{fmt.Sprintf("%s takes no argument %q", c.Command.Name, c.Args().First()), "clai-sandbox approvals --help lists the commands"}
	}
	return nil
}

func oneArgument(c *cli.Context, what string) (string, error) {
	if c.NArg() != 1 || strings.TrimSpace(c.Args().First()) == "" {
		hint := c.Command.HelpName + " " + what
		if slices.ContainsFunc(c.Command.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), "agent") }) {
			hint = "an option stands before it: " + c.Command.HelpName + " --agent NAME " + what
		}
		return "", &misuse{fmt.Sprintf("%s wants one %s", c.Command.Name, what), hint}
	}
	return c.Args().First(), nil
}

func getAction(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	h, err := newHost("")
	if err != nil {
		return err
	}
	snapshot, err := h.Store.Load()
	if err != nil {
		return err
	}
	return printJSON(snapshot.Shown())
}

func setAction(c *cli.Context) error {
	if c.NArg() > 1 {
		return &misuse{"set takes one file", "or none, for standard input"}
	}
	h, err := newHost("")
	if err != nil {
		return err
	}
	in := io.Reader(os.Stdin)
	if name := c.Args().First(); name != "" && name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, policy.MaxApprovals+1))
	if err != nil {
		return err
	}
	snapshot, err := h.Store.Set(text, c.String("base-hash"))
	if err != nil {
		return err
	}
	warn(snapshot.Approvals)
	return printJSON(snapshot.Shown())
}

// warn tells what in a file does not mean what it seems to.
func warn(a *policy.Approvals) {
	for _, problem := range a.Problems {
		fmt.Fprintln(os.Stderr, "clai-sandbox: "+policy.DisplayText(problem))
	}
}

// entryFields are an entry's own fields, beside others.
type entryFields policy.Entry

// A listed entry is one line of list.
type listed struct {
	Agent string `json:"agent"`
	List  string `json:"list"` // "allow" or "deny"
	entryFields
}

func entriesOf(a *policy.Approvals, agent string) []listed {
	entries := []listed{}
	add := func(id string, g *policy.AgentApprovals) {
		if agent != "" && agent != id && id != "*" && id != "defaults" {
			return
		}
		for _, e := range g.Denylist {
			entries = append(entries, listed{id, "deny", entryFields(e)})
		}
		for _, e := range g.Allowlist {
			entries = append(entries, listed{id, "allow", entryFields(e)})
		}
	}
	add("defaults", &a.Defaults)
	ids := make([]string, 0, len(a.Agents))
	for id := range a.Agents {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	for _, id := range ids {
		add(id, a.Agents[id])
	}
	return entries
}

func listAction(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	h, err := newHost("")
	if err != nil {
		return err
	}
	snapshot, err := h.Store.Load()
	if err != nil {
		return err
	}
	agent := ""
	if c.IsSet("agent") {
		agent = c.String("agent")
	}
	entries := entriesOf(snapshot.Approvals, agent)
	if c.Bool("json") {
		return printJSON(entries)
	}
	warn(snapshot.Approvals)
	if len(entries) == 0 {
		fmt.Println("no entries: nothing runs outside the sandbox without an answer")
		return nil
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "AGENT\tLIST\tPATTERN\tARGUMENTS\tID")
	for _, e := range entries {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", policy.DisplayText(e.Agent), e.List, policy.DisplayText(e.Pattern), argumentsOf(policy.Entry(e.entryFields)), policy.DisplayText(e.ID))
	}
	return table.Flush()
}

func argumentsOf(e policy.Entry) string {
	switch {
	case e.ArgPattern == "":
		return "any"
	case strings.HasPrefix(e.ArgPattern, "sha256:"):
		return "one command in one directory"
	}
	return policy.DisplayText(e.ArgPattern)
}

// addAction adds an entry, or shows the one that is there.
func addAction(c *cli.Context, deny bool) error {
	pattern, err := oneArgument(c, "PATTERN")
	if err != nil {
		return err
	}
	e := policy.Entry{Pattern: strings.TrimSpace(pattern), ArgPattern: c.String("arg-pattern")}
	if err := checkEntry(e, deny); err != nil {
		return err
	}
	h, err := newHost("")
	if err != nil {
		return err
	}
	agent := c.String("agent")
	var at string
	_, err = h.Store.Update(func(a *policy.Approvals) error {
		if a.Agents[agent] == nil {
			if strings.TrimSpace(agent) != agent || agent == "" {
				return &misuse{fmt.Sprintf("agent %q", agent), "name an agent, or \"*\" for all"}
			}
			a.Agents[agent] = &policy.AgentApprovals{}
		}
		list := &a.Agents[agent].Allowlist
		if deny {
			list = &a.Agents[agent].Denylist
		}
		i := slices.IndexFunc(*list, func(have policy.Entry) bool { return have.Pattern == e.Pattern && have.ArgPattern == e.ArgPattern })
		if i < 0 {
			e.ID = policy.NewID()
			*list = append(*list, e)
			i = len(*list) - 1
		}
		at = (*list)[i].ID
		return nil
	})
	if err != nil {
		return err
	}
	e.ID = at
	if c.Bool("json") {
		name := "allow"
		if deny {
			name = "deny"
		}
		return printJSON(listed{agent, name, entryFields(e)})
	}
	fmt.Println(at)
	h, err = newHost(agent)
	if err != nil {
		return err
	}
	for _, line := range meaning(agent, e, deny, h.Outside) {
		fmt.Fprintln(os.Stderr, "clai-sandbox: "+line)
	}
	return nil
}

// meaning is what an entry now does, and what is still missing for it to count.
func meaning(agent string, e policy.Entry, deny bool, outside profile.Outside) []string {
	who, key := "agent "+policy.DisplayText(agent), "agents."+policy.DisplayText(agent)
	if agent == "*" {
		who, key = "every agent", "defaults"
	}
	what := policy.DisplayText(e.Pattern)
	if e.ArgPattern != "" {
		what += " with arguments that match " + policy.DisplayText(e.ArgPattern)
	} else {
		what += " with any arguments"
	}
	if deny {
		return []string{who + " may not run " + what + " outside the sandbox, whatever else allows it"}
	}
	lines := []string{who + " may run " + what + " outside the sandbox, without a question"}
	if filepath.IsAbs(e.Pattern) && !strings.ContainsAny(e.Pattern, "*?[") {
		if _, err := os.Stat(e.Pattern); errors.Is(err, os.ErrNotExist) {
			lines = append(lines, "but there is no "+policy.DisplayText(e.Pattern)+" now")
		}
	}
	set := func(name, to, now string) {
		lines = append(lines, fmt.Sprintf("but not yet: outside.%s is %s; to change it: clai-sandbox config set %s.execution.outside.%s %s", name, now, key, name, to))
	}
	if outside.Security == "" || outside.Security == "deny" {
		set("security", "allowlist", "deny")
	}
	if outside.Host == "" || outside.Host == "sandbox" {
		set("host", "auto", "sandbox")
	}
	return lines
}

// checkEntry refuses what would do nothing, or not what was meant.
func checkEntry(e policy.Entry, deny bool) error {
	if e.ArgPattern != "" {
		if _, err := policy.NewArgPattern(e.ArgPattern); err != nil {
			return fmt.Errorf("--arg-pattern: %w", err)
		}
	}
	path := strings.ContainsAny(e.Pattern, "/") || strings.HasPrefix(e.Pattern, "~") || e.Pattern == "*"
	if !deny && !path {
		hint := "name the program by its path"
		if found, err := exec.LookPath(e.Pattern); err == nil {
			if real, err := filepath.EvalSymlinks(found); err == nil && real != found {
				hint += fmt.Sprintf(": %s, and %s, where it leads", found, real)
			} else {
				hint += ": " + found
			}
		}
		return &misuse{fmt.Sprintf("%q is a bare name, which allows nothing: any directory could hold such a program", e.Pattern), hint}
	}
	return nil
}

func removeAction(c *cli.Context) error {
	what, err := oneArgument(c, "ENTRY")
	if err != nil {
		return err
	}
	h, err := newHost("")
	if err != nil {
		return err
	}
	removed := []listed{}
	_, err = h.Store.Update(func(a *policy.Approvals) error {
		for _, e := range entriesOf(a, "") {
			if e.ID == what || e.Pattern == what && (!c.IsSet("agent") || e.Agent == c.String("agent")) {
				removed = append(removed, e)
			}
		}
		if len(removed) == 0 {
			return &misuse{fmt.Sprintf("no entry has the id or pattern %q", what), "clai-sandbox approvals list shows them"}
		}
		for _, e := range removed {
			g := &a.Defaults
			if e.Agent != "defaults" {
				g = a.Agents[e.Agent]
			}
			same := func(have policy.Entry) bool { return have == policy.Entry(e.entryFields) }
			if e.List == "deny" {
				g.Denylist = slices.DeleteFunc(g.Denylist, same)
			} else {
				g.Allowlist = slices.DeleteFunc(g.Allowlist, same)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(removed)
	}
	for _, e := range removed {
		fmt.Printf("removed: %s %s %s\n", policy.DisplayText(e.Agent), e.List, policy.DisplayText(e.Pattern))
	}
	return nil
}

// editAction gives a copy to the person's editor. What comes back counts only if it can be read,
// and if nobody else changed the file in the meantime; until then the copy stays.
func editAction(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	editor, err := editorCommand()
	if err != nil {
		return err
	}
	h, err := newHost("")
	if err != nil {
		return err
	}
	before, err := h.Store.Load()
	if err != nil {
		return err
	}
	copied, err := writeCopy(before)
	if err != nil {
		return err
	}
	command := exec.Command(editor[0], append(editor[1:], copied)...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		os.Remove(copied)
		return fmt.Errorf("%s: %w", editor[0], err)
	}
	text, err := os.ReadFile(copied)
	if err != nil {
		return err
	}
	if bytes.Equal(bytes.TrimSpace(text), bytes.TrimSpace(shownText(before))) {
		fmt.Println("nothing was changed")
		return os.Remove(copied)
	}
	after, err := h.Store.Set(text, before.Hash)
	if err != nil {
		return &misuse{fmt.Sprintf("the file is as it was: %v", err), "what you wrote is in " + copied}
	}
	warn(after.Approvals)
	return os.Remove(copied)
}

// editorCommand takes $VISUAL or $EDITOR apart. They are a command with arguments that no shell is
// to read.
func editorCommand() ([]string, error) {
	for _, name := range [...]string{"VISUAL", "EDITOR"} {
		text := os.Getenv(name)
		if strings.TrimSpace(text) == "" {
			continue
		}
		parser := shellwords.NewParser()
		words, err := parser.Parse(text)
		// At a shell's operator the parser stops, and says only where.
		if err == nil && (parser.Position != -1 || strings.ContainsAny(text, "\r\n")) {
			err = errors.New("it is more than one command")
		}
		if err != nil || len(words) == 0 {
			return nil, &misuse{fmt.Sprintf("$%s is no command with arguments: %v", name, err), "for example EDITOR=vi"}
		}
		return words, nil
	}
	return []string{"vi"}, nil
}

func shownText(s *policy.Snapshot) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, s.Approvals.Shown(), "", "  "); err != nil {
		panic(err) // it was just encoded
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// writeCopy puts the file, without its secret, where only its owner can read it.
func writeCopy(s *policy.Snapshot) (string, error) {
	f, err := os.CreateTemp("", "exec-approvals-*.json") // 0600
	if err != nil {
		return "", err
	}
	if _, err := f.Write(shownText(s)); err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}
