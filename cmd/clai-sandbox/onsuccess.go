package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/cow"
)

// What becomes of changes that the command made copy on write, if it succeeded.
const (
	onSuccessApply   = "apply"
	onSuccessAsk     = "ask"
	onSuccessDiscard = "discard"
)

// An afterRun is what is to be done then with each layer of the run.
type afterRun struct {
	word   string
	layers []runLayer
}

type runLayer struct {
	path  string // the directory that is seen copy on write
	dir   string // the layer
	agent string
	held  bool // it held changes before the run
}

// onSuccess reads the option, without which all is kept. Nothing has been run yet.
func onSuccess(c *cli.Context, plan sandbox.Plan, agent string) (afterRun, error) {
	a := afterRun{word: c.String("on-success")}
	if known := []string{onSuccessApply, onSuccessAsk, onSuccessDiscard}; c.IsSet("on-success") && !slices.Contains(known, a.word) {
		return a, &usage{fmt.Sprintf("--on-success %q is not apply, ask or discard", a.word), "ask leaves all of it to you"}
	}
	for _, step := range plan.Steps {
		if step.Kind == sandbox.Bind && step.Access == profile.CopyOnWrite && step.Layer != "" && step.Purpose != sandbox.Caches {
			l := runLayer{path: step.Path, dir: step.Layer, agent: agent}
			l.held = l.changed()
			a.layers = append(a.layers, l)
		}
	}
	if len(a.layers) == 0 && c.IsSet("on-success") {
		return a, &usage{"--on-success is about changes that are kept apart, and nothing is seen copy on write", "add --workspace-access cow"}
	}
	return a, nil
}

// changed reports whether something is in the layer.
func (l runLayer) changed() bool {
	empty, err := cow.IsEmpty(l.dir)
	return err == nil && !empty
}

// done does it, and says what came of it. The exit status stays the command's.
func (a afterRun) done(succeeded bool) (notices []sandbox.Notice) {
	for _, l := range a.layers {
		if !l.changed() {
			continue
		}
		tell := func(text string) {
			notices = append(notices, sandbox.Notice{Kind: sandbox.NoticeChanges, Path: l.path, Text: text})
		}
		switch {
		case !succeeded, a.word == "":
			tell("what the command changed in " + profile.Printable(l.path) + " is kept apart: " + l.command("show"))
		case a.word == onSuccessDiscard && l.held:
			tell("nothing is thrown away, because earlier commands changed something in " + profile.Printable(l.path) + ", too: " + l.command("review"))
		case a.word == onSuccessAsk && atTerminal():
			if err := l.review(); err != nil {
				tell("the changes in " + profile.Printable(l.path) + " could not be shown: " + err.Error())
			}
		case a.word == onSuccessAsk:
			tell("what was changed in " + profile.Printable(l.path) + " waits for you: " + l.command("review"))
		default:
			for _, text := range l.settle(a.word) {
				tell(text)
			}
		}
	}
	return notices
}

// command is what a person types to see a layer.
func (l runLayer) command(name string) string {
	words := "clai-sandbox changes " + name + " "
	if l.agent != profile.DefaultAgent {
		words += "--agent " + l.agent + " "
	}
	return words + sandbox.Quote(l.path)
}

// atTerminal reports whether a person can be shown something, and press keys.
func atTerminal() bool {
	for _, stream := range []*os.File{os.Stdin, os.Stdout} {
		if _, err := unix.IoctlGetTermios(int(stream.Fd()), unix.TCGETS); err != nil {
			return false
		}
	}
	return true
}

// daemon is the other program, with a command about the layer. Standard output may be somebody's
// who wants the command's own.
func (l runLayer) daemon(words ...string) (*exec.Cmd, error) {
	path, err := daemonPath()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, append(append([]string{"changes"}, words...), "--agent", l.agent, l.path)...)
	cmd.Args[0], cmd.Stderr = delegated.Program, os.Stderr
	return cmd, nil
}

func (l runLayer) review() error {
	cmd, err := l.daemon("review")
	if err != nil {
		return err
	}
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	return cmd.Run()
}

// settle applies what the rules allow, or throws all away, and says in a line or two what came of
// it.
func (l runLayer) settle(word string) []string {
	words := []string{"discard", "--json"}
	if word == onSuccessApply {
		words = []string{"apply", "--by-rules", "--json"}
	}
	kept := "the changes in " + profile.Printable(l.path) + " are kept: " + l.command("review")
	cmd, err := l.daemon(words...)
	if err != nil {
		return []string{err.Error(), kept}
	}
	out, err := cmd.Output()
	var r struct {
		Done    []string   `json:"done"`
		Skipped []struct{} `json:"skipped"`
		Left    []string   `json:"left"`
	}
	if json.Unmarshal(out, &r) != nil { // it said why on standard error
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			return []string{err.Error(), kept}
		}
		return []string{kept}
	}
	var lines []string
	switch {
	case word == onSuccessDiscard && len(r.Skipped) == 0 && l.changed():
		return []string{kept}
	case word == onSuccessDiscard:
		return []string{"what the command changed in " + profile.Printable(l.path) + " was thrown away"}
	case len(r.Done) > 0:
		const most = 10
		names := strings.Join(r.Done[:min(len(r.Done), most)], ", ")
		if more := len(r.Done) - most; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		lines = append(lines, "applied by the rules: "+names)
	}
	for _, path := range r.Left {
		lines = append(lines, "somebody changed a file at the same moment; what was there is kept as "+path)
	}
	if n := len(r.Skipped); n > 0 {
		lines = append(lines, fmt.Sprintf("%d changes in %s wait for you: %s", n, profile.Printable(l.path), l.command("review")))
	}
	return lines
}
