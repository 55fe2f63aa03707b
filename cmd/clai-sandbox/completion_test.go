package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
)

// A completingShell is an interactive shell on a terminal, with our completion loaded, in a
// directory with a few files. The clai-sandbox that it finds only tells with which arguments it was
// executed.
type completingShell struct {
	*terminal
	executed *bufio.Reader
	pipe     *os.File
}

const bashCompletionPath = "/usr/share/bash-completion/bash_completion"

// The shells, each with what it reads at its start. $DIR is the directory, and inner-command a
// program that the shell has a completion for.
var completingShells = map[string]struct {
	command []string
	start   string
}{
	"bash": {[]string{"bash", "--noprofile", "--rcfile", "start", "-i"},
		`PS1='ready> '; cd "$DIR"; source ../bash`},
	"bash with bash-completion, which finds ours": {[]string{"bash", "--noprofile", "--rcfile", "start", "-i"},
		`PS1='ready> '; cd "$DIR"; source ` + bashCompletionPath + `; complete -W 'alpha beta' inner-command`},
	"zsh": {[]string{"zsh", "-i"},
		`PS1='ready> '; cd "$DIR"; autoload -Uz compinit && compinit -u -D; source ../zsh; _inner() { _arguments '1: :(alpha beta)' }; compdef _inner inner-command`},
	"zsh, which finds ours": {[]string{"zsh", "-i"},
		`PS1='ready> '; cd "$DIR"; fpath=($DIR/../site $fpath); autoload -Uz compinit && compinit -u -D; _inner() { _arguments '1: :(alpha beta)' }; compdef _inner inner-command`},
	"fish": {[]string{"fish", "--private", "--no-config", "--init-command", "source start"},
		`function fish_prompt; echo 'ready> '; end; function fish_greeting; end; cd $DIR; source ../fish; complete -c inner-command -x -a 'alpha beta'`},
}

func startShell(t *testing.T, name string, app *cli.App) *completingShell {
	t.Helper()
	shell := completingShells[name]
	if _, err := exec.LookPath(shell.command[0]); err != nil {
		t.Skip(err)
	}
	if _, err := os.Stat(bashCompletionPath); err != nil && strings.Contains(shell.start, bashCompletionPath) {
		t.Skip(err)
	}
	home := newHome(t)
	dir := filepath.Join(home, "here")
	write := func(name, text string) {
		path := filepath.Join(home, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"here/run/x", "here/subdir/x", "here/subfile", "here/with space/x", "here/file", "here/9file"} {
		write(file, "")
	}
	write("start", shell.start)
	write(".zshrc", shell.start)
	for name, shell := range map[string]string{"bash": "bash", "zsh": "zsh", "fish": "fish", "site/_clai-sandbox": "zsh",
		"bash-completion/completions/clai-sandbox": "bash"} {
		write(name, completionScript(app, shell))
	}
	write("bin/clai-sandbox", "#!/bin/sh\nprintf '[%s]' \"$@\" | { read -r words; echo \"$words\"; } >$EXECUTED\n")
	write("bin/inner-command", "#!/bin/sh\necho inner command ran >$EXECUTED\n")

	s := &completingShell{}
	pipe := filepath.Join(home, "executed")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.pipe, err = os.OpenFile(pipe, os.O_RDWR|syscall.O_NONBLOCK, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.pipe.Close() })
	s.executed = bufio.NewReader(s.pipe)
	for name, value := range map[string]string{"DIR": dir, "EXECUTED": pipe, "ZDOTDIR": home, "MY_OWN_VARIABLE": "x",
		"XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home, "XDG_CACHE_HOME": home, "INPUTRC": "/dev/null",
		"PATH": filepath.Join(home, "bin") + ":" + os.Getenv("PATH")} {
		t.Setenv(name, value)
	}
	command := slices.Clone(shell.command)
	for i, word := range command {
		command[i] = strings.Replace(word, "start", filepath.Join(home, "start"), 1)
	}
	s.terminal = sit(t, command...)
	s.expect("ready> ")
	return s
}

// types types a line, with tabs, and wants it to have become the execution of clai-sandbox with
// some arguments, its first. A directory's last slash and an equals sign behind an option are as
// the shell likes.
func (s *completingShell) types(t *testing.T, keys, want string) {
	t.Helper()
	s.kind(keys + "\n")
	s.pipe.SetReadDeadline(time.Now().Add(10 * time.Second))
	got, err := s.executed.ReadString('\n')
	if err != nil {
		t.Fatalf("%q: %v; the screen:\n%s", keys, err, s.screen.String())
	}
	got = strings.NewReplacer("/]", "]", os.Getenv("DIR"), "HERE").Replace(strings.TrimSpace(got))
	got = regexp.MustCompile(`\[(--[a-z-]+)=`).ReplaceAllString(got, "[$1][")
	if got != want {
		t.Errorf("%q became %s, want %s", keys, got, want)
	}
}

// leaveShell ends the shell. Nothing has executed clai-sandbox but the lines that were entered.
func (s *completingShell) leaveShell(t *testing.T) {
	t.Helper()
	s.kind("exit\n")
	s.leave(0)
	s.pipe.SetReadDeadline(time.Now())
	if left, _ := s.executed.ReadString('\n'); left != "" {
		t.Errorf("completing executed something: %s", left)
	}
}

func TestTheTabKeyCompletes(t *testing.T) {
	for name := range completingShells {
		t.Run(name, func(t *testing.T) {
			s := startShell(t, name, newApp())
			for _, c := range []struct{ keys, want string }{
				// Commands and options. A directory of the same name is not meant.
				{"clai-sandbox ru\t--net\tdis\t-- true", "[run][--network][disabled][--][true]"},
				{"clai-sandbox doctor --js\t", "[doctor][--json]"},
				{"clai-sandbox completion zs\t", "[completion][zsh]"},
				{"clai-sandbox --vers\t", "[--version]"},
				{"A=b clai-sandbox expl\t--allow-n\t", "[explain][--allow-nesting]"},
				// Values.
				{"clai-sandbox run --network=ena\t-- true", "[run][--network][enabled][--][true]"},
				{"clai-sandbox run --session-bus fil\ttrue", "[run][--session-bus][filtered][true]"},
				{"clai-sandbox run --workspace subd\t -- true", "[run][--workspace][subdir][--][true]"},
				{"clai-sandbox run --cwd wit\t -- true", "[run][--cwd][with space][--][true]"},
				{"clai-sandbox run --workspace subf\t", "[run][--workspace][subf]"},
				{"clai-sandbox run --grant fil\t -- true", "[run][--grant][file][--][true]"},
				{"clai-sandbox run --grant file:\trw -- true", "[run][--grant][file:rw][--][true]"},
				{"clai-sandbox explain --grant=$PWD/file:\tro --grant /x:rw --path fil\t", "[explain][--grant][HERE/file:ro][--grant][/x:rw][--path][file]"},
				{"clai-sandbox run --env MY_OWN_V\tcmd", "[run][--env][MY_OWN_VARIABLE][cmd]"},
				{"clai-sandbox run --timeout 9\t cmd", "[run][--timeout][9][cmd]"},
				// The command inside, and what is its own.
				{"clai-sandbox run -- inner-com\tx", "[run][--][inner-command][x]"},
				{"clai-sandbox run inner-com\tx", "[run][inner-command][x]"},
				{"clai-sandbox run --json --env A=b --grant /x:ro --network=disabled -- inner-com\tx", "[run][--json][--env][A=b][--grant][/x:ro][--network][disabled][--][inner-command][x]"},
				{"clai-sandbox run -- inner-command --netw\t", "[run][--][inner-command][--netw]"},
				{"clai-sandbox run inner-command --netw\t", "[run][inner-command][--netw]"},
				{"clai-sandbox run -- clai-sandbox", "[run][--][clai-sandbox]"},
			} {
				s.types(t, c.keys, c.want)
			}
			if name != "bash" { // which is not asked for a command's completion without bash-completion
				s.types(t, "clai-sandbox run -- inner-command al\t", "[run][--][inner-command][alpha]")
				s.types(t, "clai-sandbox run --env A=b inner-command al\t", "[run][--env][A=b][inner-command][alpha]")
				s.types(t, "clai-sandbox run -- clai-sandbox run --net\tdis\t-- inner-command be\t", "[run][--][clai-sandbox][run][--network][disabled][--][inner-command][beta]")
			} else {
				s.types(t, "clai-sandbox run -- cat fil\t", "[run][--][cat][file]")
			}
			s.leaveShell(t)
		})
	}
}

func TestEveryShellKnowsEveryOption(t *testing.T) {
	for name := range completingShells {
		t.Run(name, func(t *testing.T) {
			s := startShell(t, name, newApp())
			tried := map[string]bool{} // of one that several commands have, the first is enough
			completedApp(newApp()).each(func(c completedCommand) {
				for _, o := range c.options {
					if tried[o.name+"\n"+o.help] {
						continue
					}
					tried[o.name+"\n"+o.help] = true
					typed := "clai-sandbox " + strings.TrimSpace(c.path+" ")
					s.types(t, typed+" --"+shortest(o, c.options)+"\t", strings.TrimPrefix("["+strings.ReplaceAll(c.path, " ", "][")+"]", "[]")+"[--"+o.name+"]")
				}
			})
			s.leaveShell(t)
		})
	}
}

func TestCommandsBelowCommandsComplete(t *testing.T) {
	app := &cli.App{Commands: []*cli.Command{{Name: "grants", Flags: []cli.Flag{&cli.BoolFlag{Name: "all"}}, Subcommands: []*cli.Command{
		{Name: "list", Flags: []cli.Flag{&cli.StringFlag{Name: "order", Usage: "`oldest|newest` first"}}},
		{Name: "review", ArgsUsage: "accept|refuse"},
		{Name: "with", ArgsUsage: "-- COMMAND"},
	}}, {Name: "list"}}}
	for name := range completingShells {
		t.Run(name, func(t *testing.T) {
			s := startShell(t, name, app)
			s.types(t, "clai-sandbox gr\tli\t--or\tnew\t", "[grants][list][--order][newest]")
			s.types(t, "clai-sandbox grants --al\trev\tacc\t", "[grants][--all][review][accept]")
			s.types(t, "clai-sandbox grants list --al\t", "[grants][list][--al]")
			s.types(t, "clai-sandbox list --or\t", "[list][--or]")
			s.types(t, "clai-sandbox grants with -- inner-com\tlist --or\t", "[grants][with][--][inner-command][list][--or]")
			s.leaveShell(t)
		})
	}
}

// shortest is what must be typed of an option for it to be no other.
func shortest(o completedOption, among []completedOption) string {
	for n := 1; n < len(o.name); n++ {
		if !slices.ContainsFunc(among, func(other completedOption) bool {
			return other.name != o.name && strings.HasPrefix(other.name, o.name[:n])
		}) {
			return o.name[:n]
		}
	}
	return o.name
}

// The placeholder in an option's help is what its completion is made from.
func TestCompletionKnowsWhatStandsBehindEachOption(t *testing.T) {
	wordsOf := func(err error) []string {
		var value *profile.ValueError
		if !errors.As(err, &value) {
			t.Fatal(err)
		}
		return slices.Sorted(slices.Values(value.Want))
	}
	wanted := map[string][]string{
		"network":          wordsOf(new(profile.Network).UnmarshalText(nil)),
		"protect-mode":     wordsOf(new(profile.ProtectMode).UnmarshalText(nil)),
		"session-bus":      wordsOf(new(profile.SessionBus).UnmarshalText(nil)),
		"scope":            wordsOf(new(profile.Scope).UnmarshalText(nil)),
		"home":             wordsOf(new(profile.Home).UnmarshalText(nil)),
		"grant":            {":cow", ":ro", ":rw"},
		"host":             {"gateway", "node"},
		"access":           {"cow", "ro", "rw"},
		"workspace-access": {"cow", "none", "ro", "rw"},
		"caches":           {"cow", "off", "private", "rw"},
		"on-success":       {"apply", "ask", "discard"},
		"structured":       {"always", "auto", "never"},
		"security":         {"allowlist", "deny", "full"},
		"ask":              {"always", "off", "on-miss"},
		"format":           {"jsonl", "ocsf", "text"},
		"unattended":       {"deny", "queue"},
	}
	free := []string{"agent", "session", "ssh-agent", "sign-commits", "emoji", "avatar", "session-bus-name", "device", "protect", "unprotect", "env-as", "allow-domain", "deny-domain", "domain", "publish", "upstream-proxy", "timeout", "idle", "limit", "json-fd", "join", "arg-pattern", "base-hash", "for", "reason", "listen", "output-limit", "part", "from-run", "preset", "image", "max-size", "max-entries", "suite", "mirror", "include", "since", "lines", "key", "containers", "at", "project", "branch", "max-runs", "after", "shown", "sender"}
	completedApp(newApp()).each(func(c completedCommand) {
		for _, o := range c.options {
			if o.value.kind == anything && !slices.Contains(free, o.name) {
				t.Errorf("nothing is known of what stands behind --%s", o.name)
			}
			if got := slices.Sorted(slices.Values(o.value.words)); !slices.Equal(got, wanted[o.name]) {
				t.Errorf("--%s is completed with %q, and takes %q", o.name, got, wanted[o.name])
			}
		}
	})
	for _, command := range newApp().Commands {
		for _, flag := range command.Flags {
			if names := flag.Names(); len(names) != 1 {
				t.Errorf("%q: completion knows the first of an option's names only", names)
			}
		}
	}
}
