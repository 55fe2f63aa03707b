package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/policy/host"
	"github.com/clairun/clai-sandbox/profile"
)

// agentsAction is what a command below agents does.
func agentsAction(name string) cli.ActionFunc {
	switch name {
	case "list":
		return agentsList
	case "show":
		return agentsShow
	case "create":
		return agentsCreate
	case "remove":
		return agentsRemove
	}
	return noSubcommand("agents")
}

// household is the configuration, and what is kept for agents.
type household struct {
	caller      profile.Caller
	directories profile.Directories
	config      *profile.Config
}

func newHousehold() (h household, err error) {
	if h.caller, h.directories, err = directories(); err == nil {
		h.config, err = profile.Load(h.directories)
	}
	return h, err
}

// agentShown is what list and show print of one.
type agentShown struct {
	Name            string          `json:"name"`
	Workspace       string          `json:"workspace,omitempty"` // none: where the command is started
	WorkspaceAccess profile.Access  `json:"workspaceAccess"`
	Mode            profile.Mode    `json:"mode"`
	Scope           profile.Scope   `json:"scope"`
	Entry           json.RawMessage `json:"entry,omitempty"` // the person's own file's
	Kept            []string        `json:"kept"`            // directories of the state
	Left            []string        `json:"left"`            // what else is said of it: grants, approvals
}

func (h household) show(name string) (agentShown, error) {
	s, err := h.config.Session("main", name)
	if err != nil {
		return agentShown{}, err
	}
	a := agentShown{Name: name, Mode: s.Mode, Scope: s.Scope, Kept: session.Kept(h.directories.State, name), Left: []string{}}
	a.WorkspaceAccess, _ = h.config.WorkspaceAccess(name)
	if a.Workspace, err = h.config.Workspace(name, h.caller.Home); err != nil {
		return a, err
	}
	list, _ := grants.Current(h.directories.State, name, time.Now())
	if n := len(list); n > 0 {
		a.Left = append(a.Left, fmt.Sprintf("%d grants: clai-sandbox grants list --agent %s", n, name))
	}
	store := policy.Store{Path: filepath.Join(h.directories.Config, host.ApprovalsName)}
	if snapshot, err := store.Load(); err == nil && snapshot.Approvals.Agents[name] != nil {
		a.Left = append(a.Left, "approvals: clai-sandbox approvals list --agent "+name)
	}
	return a, nil
}

func agentsList(c *cli.Context) error {
	if c.Args().Present() {
		return &misuse{fmt.Sprintf("list takes no argument %q", c.Args().First()), "clai-sandbox agents show NAME shows one"}
	}
	h, err := newHousehold()
	if err != nil {
		return err
	}
	all := []agentShown{}
	for _, name := range h.config.AgentNames() {
		a, err := h.show(name)
		if err != nil {
			return err
		}
		all = append(all, a)
	}
	if c.Bool("json") {
		return printJSON(all)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "AGENT\tWORKSPACE\tACCESS\tMODE\tSCOPE")
	for _, a := range all {
		if a.Workspace == "" {
			a.Workspace = "the working directory"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", profile.Printable(a.Name), profile.Printable(a.Workspace), a.WorkspaceAccess, a.Mode, a.Scope)
	}
	return table.Flush()
}

// named is the agent of the one argument.
func (h household) named(c *cli.Context) (string, error) {
	if c.NArg() != 1 {
		return "", &misuse{c.Command.Name + " wants one agent", "clai-sandbox agents list lists them"}
	}
	name := c.Args().First()
	return name, h.config.CheckConfigured(name)
}

func agentsShow(c *cli.Context) error {
	h, err := newHousehold()
	if err != nil {
		return err
	}
	name, err := h.named(c)
	if err != nil {
		return err
	}
	a, err := h.show(name)
	if err != nil {
		return err
	}
	text, err := profile.ReadConfigText(h.directories)
	if err == nil {
		a.Entry, err = text.Value([]string{"agents", name})
	}
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(a)
	}
	workspace := a.Workspace
	if workspace == "" {
		workspace = "the working directory"
	}
	fmt.Printf("agent %s\nworkspace %s, %s\nmode %s, scope %s\n", profile.Printable(name), profile.Printable(workspace), a.WorkspaceAccess, a.Mode, a.Scope)
	if a.Entry != nil {
		fmt.Printf("entry %s\n", policy.DisplayText(string(a.Entry)))
	}
	for _, dir := range a.Kept {
		fmt.Println("kept " + profile.Printable(dir))
	}
	for _, left := range a.Left {
		fmt.Println(left)
	}
	return nil
}

// line refuses text that would not stay on its line of a file.
func line(option, text string) error {
	if text != strings.TrimSpace(text) || len(text) > 256 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' || r == '\u0085' }) {
		return &misuse{fmt.Sprintf("%s %s is no line of text", option, profile.Printable(text)), "at most 256 bytes, without control characters"}
	}
	return nil
}

func agentsCreate(c *cli.Context) error {
	if c.NArg() != 1 || strings.TrimSpace(c.Args().First()) == "" {
		return &misuse{"create wants one name", "for example clai-sandbox agents create 'Code Reviewer'"}
	}
	called := strings.TrimSpace(c.Args().First())
	for option, text := range map[string]string{"the name": called, "--emoji": c.String("emoji"), "--avatar": c.String("avatar")} {
		if err := line(option, text); err != nil {
			return err
		}
	}
	h, err := newHousehold()
	if err != nil {
		return err
	}
	name := profile.NormalizeAgent(called)
	if name == profile.DefaultAgent && !strings.EqualFold(called, name) {
		return &misuse{"nothing of the name " + profile.Printable(called) + " can be an agent's", "letters, digits, - and _ of ASCII can"}
	}
	if err := h.mayCreate(name); err != nil {
		return err
	}
	workspace := c.String("workspace")
	if workspace == "" {
		workspace = filepath.Join(h.caller.DataDirectory(), "workspace-"+name)
	}
	if workspace, err = h.workspaceAt(workspace); err != nil {
		return err
	}
	made := !exists(workspace)
	if err := os.MkdirAll(workspace, 0o755); err != nil {
		return err
	}
	if h.config.Bootstraps(name) {
		if err := identity(workspace, [][2]string{{"Name", called}, {"Emoji", c.String("emoji")}, {"Avatar", c.String("avatar")}}); err != nil {
			return err
		}
	}
	// The directories are there before anything names them.
	entry, err := json.Marshal(map[string]string{"workspace": workspace})
	if err != nil {
		return err
	}
	if _, err := profile.ChangeConfig(h.directories, "", func(text []byte) ([]byte, error) {
		if there, err := (profile.ConfigText{Text: text}).Value([]string{"agents", name}); err != nil || there != nil {
			return nil, errors.Join(err, fmt.Errorf("agent %s is there already", name))
		}
		return profile.MergeConfig("config.json", text, profile.Nested([]string{"agents", name}, entry))
	}); err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(map[string]any{"name": name, "workspace": workspace, "madeWorkspace": made})
	}
	fmt.Printf("agent %s\nworkspace %s\nclai-sandbox run --agent %s -- COMMAND runs a command of its\n", name, profile.Printable(workspace), name)
	return nil
}

// mayCreate refuses a name that is another's, or of which something is left.
func (h household) mayCreate(name string) error {
	if err := profile.CheckAgent(name); err != nil {
		return err
	}
	if slices.Contains(h.config.AgentNames(), name) {
		return &misuse{fmt.Sprintf("agent %s is there already", name), "clai-sandbox agents show " + name}
	}
	left, err := h.show(name)
	if err != nil {
		return err
	}
	if len(left.Kept) > 0 {
		return &misuse{fmt.Sprintf("something is kept of an earlier agent %s: %s", name, profile.Printable(left.Kept[0])), "clai-sandbox agents remove --purge " + name + " removes it"}
	}
	if len(left.Left) > 0 {
		return &misuse{fmt.Sprintf("an earlier agent %s would be inherited: %s", name, left.Left[0]), "take them away first, or choose another name"}
	}
	return nil
}

// workspaceAt is where a workspace may be.
func (h household) workspaceAt(typed string) (string, error) {
	if typed[0] != '/' && typed[0] != '~' {
		typed = filepath.Join(h.caller.WorkingDirectory, typed)
	}
	path, err := profile.ExpandPath(typed, h.caller.Home)
	if err != nil {
		return "", err
	}
	if why, never := profile.NeverGrantable(path); never {
		return "", &misuse{"workspace " + profile.Printable(path) + ": " + why, "choose another with --workspace DIR"}
	}
	own, _ := h.directories.Places()
	for _, at := range []string{path, resolved(path)} { // by the letter, and where links lead
		for _, dir := range own {
			if dir = resolved(dir); profile.Within(at, dir) || profile.Within(dir, at) {
				return "", &misuse{"workspace " + profile.Printable(path) + ": clai-sandbox keeps its own files in " + profile.Printable(dir), "choose another with --workspace DIR"}
			}
		}
		for _, store := range profile.CredentialStores() {
			if store = resolved(filepath.Join(h.caller.Home, store)); profile.Within(at, store) {
				return "", &misuse{"workspace " + profile.Printable(path) + ": " + profile.Printable(store) + " keeps what no sandbox is shown", "choose another with --workspace DIR"}
			}
		}
	}
	return path, nil
}

// resolved is a path without links, as far as it is there.
func resolved(path string) string {
	for at, rest := path, ""; ; at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if at == filepath.Dir(at) {
			return path
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// identity appends to an agent's IDENTITY.md what it is called. The workspace may be one that
// commands have written.
func identity(workspace string, rows [][2]string) error {
	dir, err := unix.Open(workspace, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, "IDENTITY.md", unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", profile.Printable(filepath.Join(workspace, "IDENTITY.md")), err)
	}
	file := os.NewFile(uintptr(fd), "IDENTITY.md")
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("IDENTITY.md is not a regular file")
	}
	if err != nil {
		return err
	}
	var text strings.Builder
	if info.Size() > 0 {
		text.WriteByte('\n')
	}
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(&text, "- %s: %s\n", row[0], row[1])
		}
	}
	_, err = file.WriteString(text.String())
	return err
}

func agentsRemove(c *cli.Context) error {
	h, err := newHousehold()
	if err != nil {
		return err
	}
	if c.NArg() != 1 {
		return &misuse{"remove wants one agent", "clai-sandbox agents list lists them"}
	}
	name := c.Args().First()
	if err := profile.CheckAgent(name); err != nil {
		return err
	}
	configured := h.config.CheckConfigured(name) == nil
	if name == profile.DefaultAgent {
		return &misuse{"main is the agent of whoever names none; it stays", "clai-sandbox config set agents.main null takes its settings away"}
	}
	before, err := h.show(name)
	if err != nil {
		return err
	}
	if !configured && !(c.Bool("purge") && len(before.Kept) > 0) {
		return h.config.CheckConfigured(name)
	}
	removed := []string{}
	takeEntry := func() error {
		if !configured {
			return nil
		}
		return h.removeEntry(name)
	}
	if c.Bool("purge") {
		removed, err = session.Purge(h.directories.State, name, takeEntry)
	} else {
		err = takeEntry()
	}
	if err != nil {
		return err
	}
	after, err := h.show(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if c.Bool("json") {
		return printJSON(map[string]any{"name": name, "workspace": before.Workspace, "removed": removed, "kept": after.Kept, "left": after.Left})
	}
	for _, dir := range removed {
		fmt.Println("removed " + profile.Printable(dir))
	}
	if before.Workspace != "" {
		fmt.Println("its workspace stays: " + profile.Printable(before.Workspace))
	}
	for _, dir := range after.Kept {
		fmt.Println("kept: " + profile.Printable(dir))
	}
	for _, left := range after.Left {
		fmt.Println("another agent of that name would have " + left)
	}
	return nil
}

// removeEntry takes an agent out of the person's file.
func (h household) removeEntry(name string) error {
	now, err := profile.ChangeConfig(h.directories, "", func(text []byte) ([]byte, error) {
		return profile.MergeConfig("config.json", text, profile.Nested([]string{"agents", name}, []byte("null")))
	})
	if err != nil {
		return err
	}
	if again, err := profile.Load(h.directories); err == nil && again.CheckConfigured(name) == nil {
		return &misuse{fmt.Sprintf("agent %s stays: the administrator's file has it", name), "it is not in " + now.Path}
	}
	return nil
}
