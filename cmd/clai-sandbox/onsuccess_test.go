package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/cow/changes"
	"github.com/clairun/clai-sandbox/sandbox/mounts/nomount"
)

// doesChanges has the fake of the other program be changesDaemon.
const doesChanges = "CLAI_SANDBOX_TEST_CHANGES"

// changesDaemon is what the other program does with a layer, as far as a run has it do that.
// TestScripts/changes there holds that it takes these words, and prints this.
func changesDaemon() {
	ctx, words := context.Background(), os.Args[2:]
	var layers []changes.Layer
	caller, err := profile.CurrentCaller()
	if err == nil {
		layers, err = changes.List(caller.Directories().State)
	}
	at := slices.IndexFunc(layers, func(l changes.Layer) bool { return l.Path == words[len(words)-1] })
	if err == nil && at < 0 {
		err = fmt.Errorf("no layer in %q", words)
	}
	var result *changes.Result
	if err == nil {
		switch l := layers[at]; strings.Join(words[:len(words)-1], " ") {
		case "apply --by-rules --json --agent main":
			var config *profile.Config
			if config, err = profile.Load(caller.Directories()); err == nil {
				l.Rules, err = config.ChangeRules("main")
			}
			if err == nil && l.Rules == nil {
				err = errors.New("no rules")
			}
			if err == nil {
				result, err = l.Apply(ctx, changes.Selection{ByRules: true})
			}
		case "discard --json --agent main":
			result, err = l.Discard(ctx, nil)
		case "review --agent main":
			fmt.Println("the screen of", l.Path)
			_, _ = os.Stdin.Read(make([]byte, 1))
			return
		default:
			err = fmt.Errorf("%q", words)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(statusNoSandbox)
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{"done": result.Applied, "skipped": result.Skipped, "left": result.Left})
	if len(result.Skipped) > 0 {
		os.Exit(1)
	}
}

func useChangesDaemon(t *testing.T) {
	t.Helper()
	path, err := exec.LookPath("clai-sandboxd")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(daemonVariable, path)
	t.Setenv(doesChanges, "yes")
}

func TestARunSaysWhatBecomesOfItsChanges(t *testing.T) {
	if os.Getenv(nomount.Variable) != "" {
		t.Skip("nothing is seen copy on write here")
	}
	useChangesDaemon(t)
	const cow = "clai-sandbox run --workspace-access cow "
	rules := `{"defaults": {"execution": {"changes": {"apply": ["src/**"], "never": ["no/**"]}}}}`
	p := newProject(t)
	ls := func() string { return strings.Join(strings.Fields(p.sh("ls -R")), " ") }

	// Nothing is run where it says nothing.
	for options, want := range map[string]string{
		"--on-success apply":                                      "nothing is seen copy on write; add --workspace-access cow",
		"--workspace-access cow --on-success yes":                 `--on-success "yes" is not apply, ask or discard`,
		"--workspace-access cow --on-success ask --dry-run":       "says nothing with --dry-run",
		"--workspace-access cow --on-success '' --timeout 20s":    `--on-success "" is not`,
		"--workspace-access ro --caches cow --on-success discard": "nothing is seen copy on write",
	} {
		p.wants(p.fails("clai-sandbox run "+options+" -- touch $PWD/ran"), want)
	}
	// What is kept is told to whoever said nothing about it.
	p.wants(p.sh(cow+"-- touch a 2>&1"), "what the command changed in "+p.dir+" is kept apart: clai-sandbox changes show "+p.dir)
	p.sh("$" + daemonVariable + " changes discard --json --agent main $PWD")
	// Without rules everything waits, whatever the command was.
	p.wants(p.sh(cow+"--on-success apply -- touch a 2>&1"), "no rules", "are kept: clai-sandbox changes review "+p.dir)
	p.wants(p.sh(cow+"--on-success ask -- touch b </dev/null 2>&1"), "waits for you: clai-sandbox changes review "+p.dir)
	// What earlier commands changed is not thrown away with it.
	p.wants(p.sh(cow+"--on-success discard -- touch c 2>&1"), "nothing is thrown away, because earlier commands changed something")
	p.wants(p.sh(cow+"-- ls"), "a\nb\nc\n")
	if got := ls(); got != ".:" {
		t.Error(got)
	}
	p.sh("$" + daemonVariable + " changes discard --json --agent main $PWD")
	p.wants(p.sh(cow+"--on-success discard -- touch c 2>&1"), "was thrown away")
	if got := p.sh(cow + "-- ls"); got != "" {
		t.Error(got)
	}
	// A command that failed leaves its changes where they can be seen, and its exit status is its
	// own.
	p.wants(p.sh(cow+"--on-success apply -- sh -c 'mkdir src; touch src/a; exit 7' 2>&1 || echo status $?"), "is kept apart: clai-sandbox changes show "+p.dir, "status 7")
	p.wants(p.sh(cow+"--on-success discard --timeout 1s -- sleep 9 2>&1 || echo status $?"), "is kept", "status 124")
	// Rules apply, and standard output is the command's.
	p.write(".config/clai-sandbox/config.json", rules)
	out := p.sh(cow + "--on-success apply -- sh -c 'touch src/b rest; mkdir no; touch no/x; echo mine' 2>/dev/null")
	if out != "mine\n" {
		t.Errorf("%q", out)
	}
	if got := ls(); got != ".: src ./src: a b" {
		t.Error(got)
	}
	p.wants(p.sh(cow+"--on-success apply --json -- touch src/c"), `"kind":"changes"`, "applied by the rules: src/c", "3 changes in "+p.dir+" wait for you")
	// The other program is not there: nothing is lost.
	p.wants(p.sh(daemonVariable+"=/nowhere "+cow+"--on-success discard -- true 2>&1"), "nothing is thrown away")
	p.sh("$" + daemonVariable + " changes discard --json --agent main $PWD")
	p.wants(p.sh(daemonVariable+"=/nowhere "+cow+"--on-success discard -- touch z 2>&1"), "/nowhere", "are kept")
	p.wants(p.sh(cow+"-- ls"), "z")
	t.Run("at a terminal a person is shown them", shownAtATerminal)
}

func shownAtATerminal(t *testing.T) {
	term := sit(t, "clai-sandbox", "run", "--workspace-access", "cow", "--on-success", "ask", "--", "sh", "-c", "echo x > made")
	term.expect("the screen of " + term.cmd.Dir)
	term.kind("\r")
	term.leave(0)
}
