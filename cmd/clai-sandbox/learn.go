package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/diagnosis"
)

func learnCommand() *cli.Command {
	return &cli.Command{
		Name:      "learn",
		Usage:     "find out the least that a command needs, and print it as configuration",
		ArgsUsage: "-- COMMAND [ARGUMENT…]",
		Description: "Runs the command again and again, in a sandbox with an empty home and a workspace whose changes are thrown away, and shows it what\n" +
			"it lacked, until it exits with 0; then takes away again what it passes without. The network is filtered, so that each domain is found;\n" +
			"what the command does on it, it does in each run. Nothing is granted: what is printed on standard output is a change for clai-sandbox config\n" +
			"patch, and at a terminal you are asked whether to make it. Credential stores are never shown. Exits with 1 if the command never passed.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "agent", Value: profile.DefaultAgent, DefaultText: profile.DefaultAgent, Usage: "find it out for agent `NAME`"},
			&cli.StringFlag{Name: "workspace", DefaultText: "as run takes it", Usage: "show `DIR` copy on write"},
			&cli.StringFlag{Name: "network", Value: "filtered", DefaultText: "filtered", Usage: "set the network to `enabled|filtered|disabled`"},
			&cli.IntFlag{Name: "max-runs", Value: 100, DefaultText: "100", Usage: "run it at most `N` times"},
			&cli.DurationFlag{Name: "timeout", Value: 10 * time.Minute, DefaultText: "10m", Usage: "end a run after `DURATION`"},
		},
		OnUsageError:    usageError,
		HideHelpCommand: true,
		Action:          learnAction,
	}
}

func learnAction(c *cli.Context) error {
	command := c.Args().Slice()
	switch {
	case len(command) == 0:
		return &usage{"no command to learn about", "clai-sandbox learn -- COMMAND [ARGUMENT…]"}
	case c.Int("max-runs") < 1 || c.Int("max-runs") > 10_000:
		return &usage{"--max-runs must be from 1 to 10000", "for example --max-runs 200"}
	case c.Duration("timeout") <= 0:
		return &usage{"--timeout must be longer than 0", "for example --timeout 10m"}
	}
	caller, err := profile.CurrentCaller()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d := caller.Directories()
	if err := os.MkdirAll(d.State, 0o700); err != nil {
		return err
	}
	// Where all that a run keeps is thrown away with it.
	state, err := os.MkdirTemp(d.State, "learn-")
	if err != nil {
		return err
	}
	defer removeState(state)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	config, err := profile.Load(d)
	if err != nil {
		return err
	}
	resolved, err := profile.Resolve(config, caller, profile.Request{Agent: c.String("agent"), Workspace: c.String("workspace")})
	if err != nil {
		return err
	}
	var hidden []string
	for _, h := range resolved.Hidden {
		hidden = append(hidden, h.Path, followed(h.Path))
	}
	l := &learner{ctx: ctx, self: self, state: state, home: caller.Home, own: append(resolved.OwnDirectories, resolved.OwnLinks...), hidden: hidden, command: command, most: c.Int("max-runs"), began: time.Now(), known: map[string]bool{},
		options: []string{"--agent=" + c.String("agent"), "--home=ephemeral", "--workspace-access=cow", "--network=" + c.String("network"), "--timeout=" + c.Duration("timeout").String()}}
	if c.IsSet("workspace") {
		l.options = append(l.options, "--workspace="+c.String("workspace"))
	}
	needs, err := l.learn()
	if err != nil {
		return err
	}
	return l.offer(c.String("agent"), c.String("network"), needs)
}

// A learner finds out what a command needs by running it.
type learner struct {
	ctx         context.Context
	self, state string
	home        string
	own         []string // what no sandbox sees
	hidden      []string // what only a grant of its own shows, which is a person's to make
	options     []string
	command     []string
	most, runs  int
	began       time.Time
	last        attemptMade
	known       map[string]bool // whether it passed, by what it was shown
}

// A need is a path, or a domain.
type need struct {
	Path   string
	Access profile.Access
	Domain string
}

func (n need) String() string {
	if n.Domain != "" {
		return "domain " + n.Domain
	}
	return n.Path + " " + n.Access.String()
}

func (n need) option() string {
	if n.Domain != "" {
		return "--allow-domain=" + n.Domain
	}
	return "--grant=" + n.Path + ":" + n.Access.String()
}

// An attemptMade is what came of a run.
type attemptMade struct {
	runResult
	said []byte // the end of its standard error
}

var errMaxRuns = errors.New("it ran as often as --max-runs says")

// learn is the whole way.
func (l *learner) learn() ([]need, error) {
	needs, err := l.lacked(nil)
	if err == errStuck {
		var more []need
		more, err = l.guessed(needs)
		if needs = append(needs, more...); err == errMaxRuns && len(more) > 0 {
			return needs, l.enough()
		}
	}
	switch {
	case err == errMaxRuns:
		l.tell("it passed in none of %d runs; --max-runs N lets it run more often", l.runs)
		return nil, exit(1)
	case err != nil:
		return nil, err
	}
	l.tell("it passes; now without what it may not need")
	for _, step := range []func([]need) ([]need, error){l.leastOf, l.narrowed, l.leastOf} {
		if needs, err = step(needs); err == errMaxRuns {
			return needs, l.enough()
		}
		if err != nil {
			return nil, err
		}
	}
	l.tell("for each of these it fails without")
	return needs, nil
}

// enough says that it did not come to the end.
func (l *learner) enough() error {
	l.tell("it ran %d times, as --max-runs says: less may do", l.runs)
	return nil
}

// errStuck means that a run does not say what it lacks.
var errStuck = errors.New("it does not say what it lacks")

// lacked adds what each run lacked, until one passes.
func (l *learner) lacked(needs []need) ([]need, error) {
	for {
		passed, err := l.run(needs)
		if passed || err != nil {
			return needs, err
		}
		added := false
		for _, m := range l.last.Missing {
			n, ok := l.needOf(m)
			if !ok {
				continue
			}
			at := slices.IndexFunc(needs, func(have need) bool { return have.Path == n.Path && have.Domain == n.Domain })
			switch {
			case at < 0:
				needs = append(needs, n)
			case needs[at].Access < n.Access:
				needs[at].Access = n.Access
			default:
				continue
			}
			added = true
			l.tell("  it lacked %s", n)
		}
		if !added {
			return needs, errStuck
		}
	}
}

// needOf is what would make up for a lack. What is written is written to a layer.
func (l *learner) needOf(m diagnosis.Missing) (need, bool) {
	switch {
	case m.Kind == diagnosis.Domain && m.Why == diagnosis.DomainRefused:
		return need{Domain: m.Domain}, true
	case m.Grantable():
		n := need{Path: m.Path, Access: profile.ReadOnly}
		if m.Access == profile.ReadWrite {
			n.Access = profile.CopyOnWrite
			if info, err := os.Stat(n.Path); err == nil && !info.IsDir() {
				n.Path = filepath.Dir(n.Path) // a file cannot be copy on write
			}
		}
		return n, l.mayShow(n.Path)
	}
	return need{}, false
}

// hasOurs reports whether a path is of our own files, or holds them.
func (l *learner) hasOurs(path string) bool {
	return slices.ContainsFunc(l.own, func(own string) bool { return profile.Within(path, own) || profile.Within(own, path) })
}

// mayShow reports whether a path is neither ours nor hidden, also where its links lead.
func (l *learner) mayShow(path string) bool {
	for _, at := range []string{path, followed(path)} {
		if l.hasOurs(at) || slices.ContainsFunc(l.hidden, func(hidden string) bool { return profile.Within(at, hidden) }) {
			return false
		}
	}
	return true
}

func followed(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// guessed looks for what the command needs of the home directory, when it does not say so.
func (l *learner) guessed(needs []need) ([]need, error) {
	said := l.last
	l.tell("  it does not say what it lacked; all of the home directory, in parts")
	for _, access := range []profile.Access{profile.ReadOnly, profile.CopyOnWrite} {
		all := l.below(l.home, access)
		if len(all) == 0 {
			break
		}
		passed, err := l.run(slices.Concat(needs, all))
		if err != nil {
			return nil, err
		}
		if passed {
			return l.least(all, needs)
		}
	}
	return nil, l.never(said)
}

// maxParts is into how many parts a directory is taken.
const maxParts = 100

// below are the parts of a directory; of one that holds our own files, theirs.
func (l *learner) below(dir string, access profile.Access) (list []need) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > maxParts {
		return nil
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		info, err := os.Stat(path)
		switch {
		case err != nil || strings.Contains(path, "\n"):
		case l.mayShow(path) && info.IsDir():
			list = append(list, need{Path: path, Access: access})
		case l.mayShow(path):
			list = append(list, need{Path: path, Access: profile.ReadOnly}) // a file cannot be copy on write
		case info.IsDir() && slices.ContainsFunc(l.own, func(own string) bool { return path != own && profile.Within(own, path) }):
			list = append(list, l.below(path, access)...)
		}
	}
	return list
}

// never says that no run passed, and why the one that said most did not.
func (l *learner) never(said attemptMade) error {
	for _, m := range said.Missing {
		if _, ok := l.needOf(m); !ok {
			l.tell("it needs what learn does not show: %s", m.Hint)
			return exit(1)
		}
	}
	text := bytes.TrimSpace(said.said)
	l.tell("it passed in none of %d runs, also with the home directory readable; it exits with %d and says: %s", l.runs, said.ExitCode, text[bytes.LastIndexByte(text, '\n')+1:])
	return exit(1)
}

func (l *learner) leastOf(needs []need) ([]need, error) { return l.least(needs, nil) }

// least leaves out of a list what the command passes without, beside what is given in any case.
func (l *learner) least(list, given []need) ([]need, error) {
	for parts := 1; len(list) > 0; {
		size := (len(list) + parts - 1) / parts
		less := false
		for at := 0; at < len(list); at += size {
			rest := slices.Concat(list[:at], list[min(at+size, len(list)):])
			passed, err := l.run(slices.Concat(given, rest))
			if err != nil {
				return list, err
			}
			if passed {
				list, less = rest, true
				parts = max(parts-1, 1)
				break
			}
		}
		if !less {
			if size == 1 {
				break
			}
			parts = min(2*parts, len(list))
		}
	}
	return list, nil
}

// narrowed shows parts of each directory in place of the whole, as far as the command passes with
// fewer.
func (l *learner) narrowed(needs []need) ([]need, error) {
	const depth = 3
	for range depth {
		changed := false
		for i := 0; i < len(needs); i++ {
			n := needs[i]
			if n.Path == "" || !profile.Within(n.Path, l.home) {
				continue
			}
			parts := l.below(n.Path, n.Access)
			if len(parts) == 0 {
				continue
			}
			given := slices.Concat(needs[:i], needs[i+1:])
			passed, err := l.run(slices.Concat(given, parts))
			if err != nil {
				return needs, err
			}
			if !passed {
				continue // it lists the directory, or makes something in it
			}
			few, err := l.least(parts, given)
			if err != nil {
				return needs, err
			}
			if len(few) < len(parts) || len(parts) == 1 {
				needs, changed = slices.Concat(needs[:i], few, needs[i+1:]), true
				i += len(few) - 1
			}
		}
		if !changed {
			break
		}
	}
	return needs, nil
}

const (
	maxSaid   = 64 << 10
	maxResult = 8 << 20
)

// run runs the command once, in a sandbox that was never used.
func (l *learner) run(needs []need) (passed bool, err error) {
	var options []string
	for _, n := range needs {
		options = append(options, n.option())
	}
	slices.Sort(options)
	key := strings.Join(options, "\n")
	if passed, known := l.known[key]; known {
		return passed, nil
	}
	if err := l.ctx.Err(); err != nil {
		return false, err
	}
	if l.runs >= l.most {
		return false, errMaxRuns
	}
	l.runs++
	state := filepath.Join(l.state, fmt.Sprint(l.runs))
	defer os.RemoveAll(state)
	args := slices.Concat([]string{"run", "--json-fd=3"}, l.options, options, []string{"--"}, l.command)
	read, write, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer read.Close()
	made := attemptMade{}
	said := &listener{}
	run := exec.CommandContext(l.ctx, l.self, args...)
	run.Env = append(os.Environ(), "CLAI_SANDBOX_STATE_DIR="+state)
	run.Stderr, run.ExtraFiles = said, []*os.File{write}
	run.Cancel = func() error { return run.Process.Signal(syscall.SIGTERM) }
	if err := run.Start(); err != nil {
		write.Close()
		return false, err
	}
	write.Close()
	result, readErr := io.ReadAll(io.LimitReader(read, maxResult))
	_ = run.Wait()
	if err := l.ctx.Err(); err != nil {
		return false, err
	}
	if readErr != nil || json.Unmarshal(result, &made.runResult) != nil {
		return false, fmt.Errorf("clai-sandbox run said: %s", profile.Printable(string(bytes.TrimSpace(said.tail))))
	}
	made.said = said.tail
	l.last = made
	if made.Classification == sandboxUnavailable || made.Classification == setupFailed {
		return false, fmt.Errorf("%s", profile.Printable(made.Error.Message))
	}
	passed = made.ExitCode == 0
	l.known[key] = passed
	word := "passes"
	if !passed {
		word = fmt.Sprintf("fails (%d)", made.ExitCode)
	}
	l.tell("run %d, shown %d: it %s", l.runs, len(needs), word)
	return passed, nil
}

// removeState removes what a run kept. The kernel leaves directories of its own in a layer, which
// nobody may enter.
func removeState(dir string) {
	_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	os.RemoveAll(dir)
}

func (l *learner) tell(format string, values ...any) {
	fmt.Fprintln(os.Stderr, "learn: "+profile.Printable(fmt.Sprintf(format, values...)))
}

// A learnedPath is an entry of extraPaths.
type learnedPath struct {
	Path   string         `json:"path"`
	Access profile.Access `json:"access"`
}

// offer prints what was learned, and puts it into the configuration if a person wants that.
func (l *learner) offer(agent, network string, needs []need) error {
	paths, domains := []learnedPath{}, []string{}
	for _, n := range needs {
		if n.Domain != "" {
			domains = append(domains, n.Domain)
			continue
		}
		paths = append(paths, learnedPath{n.Path, n.Access})
	}
	sandbox := map[string]any{"network": network}
	if network == "filtered" {
		sandbox["allowedDomains"] = domains
	}
	patch, err := json.MarshalIndent(map[string]any{"agents": map[string]any{agent: map[string]any{"execution": map[string]any{
		"filesystem": map[string]any{"home": "private", "extraPaths": paths}, "sandbox": sandbox}}}}, "", "  ")
	if err != nil {
		return err
	}
	l.tell("%s, %v: it needs %s and %s", count(l.runs, "run"), time.Since(l.began).Round(100*time.Millisecond), count(len(paths), "path"), count(len(domains), "domain"))
	fmt.Println(string(patch))
	if !atTerminal() {
		return nil
	}
	fmt.Fprintf(os.Stderr, "learn: put this into the configuration, for agent %s? [y/N] ", profile.Printable(agent))
	var answer string
	if _, _ = fmt.Scanln(&answer); answer != "y" && answer != "Y" {
		return nil
	}
	put := exec.Command(l.self, "config", "patch")
	put.Stdin, put.Stderr = bytes.NewReader(patch), os.Stderr
	return put.Run()
}

// count is a number of things, in words.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
